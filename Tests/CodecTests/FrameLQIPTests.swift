import Codec
import Jobs
import TestSupport
import Testing

@Suite("An LQIP of frames")
struct FrameLQIPTests {
  @Test("the LQIP of an animation shows its first frame")
  func animation() throws {
    var gif = GIFFixture(width: 8, height: 8)
    gif.frames[0].codes = GIFFixture.codes(Array(repeating: 1, count: 64))
    let still = try #require(Decoding(gif.bytes).lqip)
    #expect(still.dominantColor == [255, 0, 0])
    var other = GIFFixture.Frame(width: 8, height: 8)
    other.table = [UInt8](repeating: 90, count: 12)
    gif.frames.append(other)
    for pieces in [1, 7, .max] { #expect(Decoding(gif.bytes, pieces: pieces).lqip == still) }
    gif.frames.removeFirst()
    #expect(Decoding(gif.bytes).lqip?.dominantColor == [90, 90, 90])

    for name in ["animated.webp", "animated-lossless.webp"] {
      var webp = WebPFixture(Fixtures.image(name))
      let all = try #require(Decoding(webp.bytes).lqip)
      let first = try #require(webp.chunks.firstIndex { $0.tag == "ANMF" })
      webp.chunks.removeSubrange((first + 1)...)
      #expect(Decoding(webp.bytes).lqip == all)
    }

    // Red, then blue.
    let blinking = try #require(Decoding(Fixtures.image("blinking.avif")).lqip)
    let colour = blinking.dominantColor
    for (level, expected) in zip(colour, [255, 0, 0]) { #expect(abs(Int(level) - expected) < 8) }
  }

  @Test("the LQIP of a GIF shows the frame at its place on the canvas, clipped to it")
  func place() throws {
    var gif = GIFFixture(width: 8, height: 8)
    (gif.width, gif.height) = (16, 16)
    gif.frames[0].codes = GIFFixture.codes(Array(repeating: 3, count: 64))
    for (left, top, visible) in [(0, 0, 0), (8, 0, 1), (0, 8, 2), (8, 8, 3), (60, 0, 4)] {
      (gif.frames[0].left, gif.frames[0].top) = (left, top)
      let lqip = try #require(Decoding(gif.bytes, pieces: 5).lqip)
      let hash = try #require(ShownThumbHash(lqip.thumbHash))
      for (quarter, cell) in hash.means(columns: 2, rows: 2).enumerated() {
        #expect((cell[3] > 0.6) == (quarter == visible), "\(left), \(top): \(cell)")
      }
      #expect(lqip.dominantColor == (visible < 4 ? [0, 0, 255] : [0, 0, 0]))
    }
    (gif.frames[0].left, gif.frames[0].top) = (12, 12)
    #expect(Decoding(gif.bytes).lqip?.dominantColor == [0, 0, 255])
  }

  @Test("the LQIP of an interlaced GIF has its rows in order", arguments: [1, 7, 16, 33])
  func interlaced(height: Int) throws {
    // The color of each row, from top to bottom.
    let indices = (0..<height).map { [1, 2, 3, 2][$0 * 4 / height] }
    var plain = GIFFixture(width: 3, height: height)
    plain.frames[0].codes = GIFFixture.codes(indices.flatMap { [$0, $0, $0] })
    var gif = plain
    gif.frames[0].isInterlaced = true
    let passes = [(0, 8), (4, 8), (2, 4), (1, 2)]
    let order = passes.flatMap { start, step in stride(from: start, to: height, by: step) }
    gif.frames[0].codes = GIFFixture.codes(
      order.flatMap { Array(repeating: indices[$0], count: 3) })
    let expected = try #require(Decoding(plain.bytes).lqip)
    for pieces in [1, 9, .max] {
      #expect(Decoding(gif.bytes, pieces: pieces).lqip == expected)
    }
  }

  @Test("the LQIP of a GIF has transparency and the frame's own colors")
  func colours() throws {
    var gif = GIFFixture(width: 16, height: 8)
    let row = Array(repeating: 2, count: 8) + Array(repeating: 1, count: 8)
    gif.frames[0].codes = GIFFixture.codes((0..<8).flatMap { _ in row })
    gif.frames[0].table = [0, 0, 0, 250, 200, 10, 9, 9, 9, 8, 8, 8]
    gif.before = GIFFixture.transparent(2)
    for pieces in [1, 5, .max] {
      let lqip = try #require(Decoding(gif.bytes, pieces: pieces).lqip)
      #expect(lqip.dominantColor == [250, 200, 10])
      let hash = try #require(ShownThumbHash(lqip.thumbHash))
      let cells = hash.means(columns: 4, rows: 1)
      #expect(cells[0][3] < 0.2 && cells[3][3] > 0.8)
    }
  }

  @Test("the LQIP of a WebP shows the frame at its place on the canvas", arguments: [0, 1])
  func part(half: Int) throws {
    var webp = WebPFixture(Fixtures.image("animated.webp"))
    // 40 × 30 on twice the width.
    webp.chunks[0].content[4] = 79
    let first = try #require(webp.chunks.firstIndex { $0.tag == "ANMF" })
    webp.chunks[first].content[0] = UInt8(half * 20)
    let decoding = Decoding(webp.bytes)
    #expect(decoding.description?.width == 80 && decoding.description?.hasAlpha == true)
    let lqip = try #require(decoding.lqip)
    let hash = try #require(ShownThumbHash(lqip.thumbHash))
    let cells = hash.means(columns: 4, rows: 1)
    #expect(cells[half * 3][3] > 0.8 && cells[3 - half * 3][3] < 0.2)
  }
}
