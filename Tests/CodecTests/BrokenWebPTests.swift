import Codec
import Jobs
import TestSupport
import Testing

@Suite("An incomplete or broken WebP")
struct BrokenWebPTests {
  static let samples = [
    "small.webp", "small-lossless.webp", "alpha.webp", "alpha-lossless.webp", "exif.webp",
    "animated.webp", "animated-lossless.webp",
  ]

  @Test("a WebP that is cut anywhere is cut short", arguments: samples)
  func cutShort(name: String) {
    let whole = Fixtures.image(name)
    for count in 1..<whole.count {
      let pieces = count % 3 == 0 ? 1 : count % 3 == 1 ? 50 : .max
      let decoding = Decoding(Array(whole.prefix(count)), pieces: pieces)
      #expect(decoding.error == .cutShort, "\(count) bytes: \(decoding.result)")
    }
  }

  @Test("a WebP is broken if its chunks are shorter than their data", arguments: samples)
  func earlyEnd(name: String) throws {
    let webp = WebPFixture(Fixtures.image(name))
    for index in webp.chunks.indices {
      guard ["VP8 ", "VP8L", "ANMF"].contains(webp.chunks[index].tag) else { continue }
      for rest in [0, 4, webp.chunks[index].content.count / 2] {
        var cut = webp
        cut.chunks[index].content = Array(webp.chunks[index].content.prefix(rest))
        #expect(Decoding(cut.bytes).isBroken, "\(index): \(Decoding(cut.bytes).result)")
      }
      var none = webp
      none.chunks.removeAll { $0.tag == webp.chunks[index].tag }
      #expect(Decoding(none.bytes).isBroken)
    }
  }

  @Test("a WebP with other sides than its image has is broken")
  func sides() throws {
    var still = WebPFixture(Fixtures.image("exif.webp"))
    still.chunks[0].content[4] += 1
    #expect(Decoding(still.bytes).isBroken)
    var animation = WebPFixture(Fixtures.image("animated.webp"))
    let frame = try #require(animation.chunks.firstIndex { $0.tag == "ANMF" })
    animation.chunks[frame].content[6] -= 1
    #expect(Decoding(animation.bytes).isBroken)
  }

  @Test("a WebP with a frame outside the canvas is broken")
  func outside() throws {
    var animation = WebPFixture(Fixtures.image("animated.webp"))
    let frame = try #require(animation.chunks.firstIndex { $0.tag == "ANMF" })
    animation.chunks[frame].content[0] += 1
    #expect(Decoding(animation.bytes).isBroken)
    #expect(Decoding(animation.bytes).headers.count == 1)
  }

  @Test("a WebP with a chunk longer than the file or too short is broken")
  func lengths() {
    let webp = WebPFixture(Fixtures.image("small.webp"))
    var long = webp.bytes
    long[16] += 10
    #expect(Decoding(long).isBroken)
    for tag in ["VP8 ", "VP8L", "VP8X"] {
      var short = webp
      short.chunks[0].tag = tag
      short.chunks[0].content = [0x2F, 0, 0]
      #expect(Decoding(short.bytes).isBroken, "\(tag)")
    }
  }

  @Test("a WebP may have any chunks that no pixel depends on")
  func otherChunks() {
    let expected = Decoding(Fixtures.image("exif.webp")).description
    var webp = WebPFixture(Fixtures.image("exif.webp"))
    webp.chunks.insert(
      contentsOf: repeatElement(.init(tag: "JUNK", content: [1, 2, 3]), count: 2000), at: 1)
    webp.chunks.insert(
      .init(tag: "XMP ", content: [UInt8](repeating: 0, count: 300_001)), at: 2)
    webp.chunks.append(.init(tag: "ANMF", content: [0]))
    webp.chunks.append(.init(tag: "VP8L", content: [0]))
    for size in [100, .max] {
      let decoding = Decoding(webp.bytes, pieces: size)
      #expect(decoding.description == expected, "\(decoding.result)")
    }
  }

  @Test("a WebP may omit the padding of its last chunk")
  func padding() {
    var webp = WebPFixture(Fixtures.image("small.webp"))
    webp.chunks.append(.init(tag: "JUNK", content: [1, 2, 3]))
    var bytes = Array(webp.bytes.dropLast())
    bytes[4] -= 1
    #expect(Decoding(bytes, pieces: 5).description != nil)
  }
}
