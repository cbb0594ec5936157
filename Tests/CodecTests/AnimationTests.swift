import Codec
import Jobs
import TestSupport
import Testing

@Suite("An animation")
struct AnimationTests {
  static let samples = [
    "animated.webp", "animated-lossless.webp", "animated.gif", "animated.avif",
    "animated.jxl",
  ]

  @Test("an animation with more frames than allowed is refused", arguments: samples)
  func frames(name: String) {
    let whole = Fixtures.image(name)
    #expect(Decoding(whole, limits: DecodeLimits(maxFrames: 4)).description?.frames == 4)
    for pieces in [10, .max] {
      let decoding = Decoding(whole, pieces: pieces, limits: DecodeLimits(maxFrames: 3))
      #expect(decoding.error == .tooManyFrames(limit: 3))
    }
  }

  @Test("a GIF with thousands of frames in few bytes is refused at the limit")
  func many() {
    var gif = GIFFixture(width: 4, height: 2)
    gif.frames = Array(repeating: gif.frames[0], count: 20_000)
    #expect(Decoding(gif.bytes).error == .tooManyFrames(limit: 500))
    let all = Decoding(gif.bytes, pieces: 4096, limits: DecodeLimits(maxFrames: 20_000))
    #expect(all.description?.frames == 20_000)
  }

  @Test("the frames of an animation may have 16 times the allowed pixels of an image")
  func pixels() {
    var gif = GIFFixture(width: 4, height: 2)
    gif.frames = Array(repeating: gif.frames[0], count: 16)
    let limits = DecodeLimits(maxPixels: 8)
    #expect(Decoding(gif.bytes, limits: limits).description?.frames == 16)
    gif.frames.append(gif.frames[0])
    #expect(Decoding(gif.bytes, limits: limits).error == .tooManyFrames(limit: 16))

    var webp = WebPFixture(Fixtures.image("animated.webp"))
    let frame = webp.chunks.first { $0.tag == "ANMF" }
    webp.chunks.append(contentsOf: repeatElement(frame!, count: 30))
    let tight = DecodeLimits(maxPixels: 40 * 30)
    #expect(Decoding(webp.bytes).description?.frames == 34)
    guard case .tooManyFrames(let limit) = Decoding(webp.bytes, limits: tight).error else {
      Issue.record("all frames were decoded")
      return
    }
    // Some frames are smaller than the canvas.
    #expect(16..<34 ~= limit)
  }

  @Test("a frame of 65,535 pixels a side on a small canvas counts with its full size")
  func hugeFrames() {
    var gif = GIFFixture(width: 4, height: 2)
    let limits = DecodeLimits(maxPixels: 1_000_000)
    gif.frames.append(.init(width: 65_535, height: 65_535))
    let tooMany = CodecError.tooManyPixels(width: 65_535, height: 65_535, limit: 1_000_000)
    #expect(Decoding(gif.bytes, limits: limits).error == tooMany)
    // The canvas has the size of the first frame.
    gif.frames.removeFirst()
    let tooLarge = CodecError.dimensionTooLarge(width: 65_535, height: 65_535, limit: 30_000)
    #expect(Decoding(gif.bytes, limits: limits).error == tooLarge)
  }

  @Test("an animation in few bytes may not have many more pixels than a still image")
  func fewBytes() {
    // A frame has about 50 bytes and a million pixels.
    let frame = WebPFixture.flat(width: 1000, height: 1000, argb: 0xFF_20_40_60)
    var webp = WebPFixture.animation(width: 1000, height: 1000)
    webp.chunks += (0..<16).map { _ in .frame(frame, width: 1000, height: 1000) }
    #expect(webp.bytes.count < 1000)
    let limits = DecodeLimits(maxPixels: 1_000_000)
    for pieces in [60, .max] {
      let decoding = Decoding(webp.bytes, pieces: pieces, limits: limits)
      #expect(decoding.error == .tooManyFrames(limit: 1))
    }
    #expect(
      Decoding(webp.bytes, limits: DecodeLimits(maxPixels: 16_000_000)).description?.frames == 16)
    // Bytes without pixels count too: the sender could have sent another image instead.
    webp.chunks.insert(.init(tag: "JUNK", content: [UInt8](repeating: 0, count: 15_000)), at: 1)
    #expect(Decoding(webp.bytes, limits: limits).description?.frames == 16)
    // 16 images are the limit, however many bytes there are.
    webp.chunks.append(webp.chunks[2])
    #expect(Decoding(webp.bytes, limits: limits).error == .tooManyFrames(limit: 16))
  }
}
