import Codec
import Jobs
import TestSupport
import Testing

@Suite("A GIF that is not whole")
struct BrokenGIFTests {
  @Test(
    "is cut short wherever it ends, if only its trailer is missing",
    arguments: ["small.gif", "interlaced.gif", "transparent.gif", "mono.gif", "animated.gif"])
  func cutShort(name: String) {
    let whole = Fixtures.image(name)
    for count in 1..<whole.count {
      let pieces = count % 3 == 0 ? 1 : count % 3 == 1 ? 50 : .max
      let decoding = Decoding(Array(whole.prefix(count)), pieces: pieces)
      #expect(decoding.error == .cutShort, "\(count) bytes: \(decoding.result)")
    }
  }

  @Test("has too few codes, or ones that stand for nothing")
  func codes() {
    var gif = GIFFixture(width: 4, height: 2)
    #expect(Decoding(gif.bytes).description != nil)
    // Code size 2: clear is 4, end is 5, three bits each to begin with.
    for codes in [[4, 0, 5], [4, 0, 0, 0, 5], [4, 7], [4, 5], [], [6, 6], [4, 0, 7]] as [[Int]] {
      gif.frames[0].codes = codes
      for size in [1, .max] {
        let decoding = Decoding(gif.bytes, pieces: size)
        #expect(decoding.isBroken, "\(codes): \(decoding.result)")
      }
    }
  }

  @Test("says what makes no sense", arguments: 0..<6)
  func nonsense(index: Int) {
    var gif = GIFFixture(width: 4, height: 2)
    switch index {
    case 0: gif.width = 0
    case 1: gif.height = 0
    case 2: gif.frames[0].width = 0
    case 3: gif.frames = []
    case 4: gif.frames[0].codeSize = 0
    default: gif.frames[0].codeSize = 9
    }
    #expect(Decoding(gif.bytes).isBroken)
  }

  @Test("has bytes between its blocks")
  func between() {
    var gif = GIFFixture(width: 4, height: 2)
    gif.before = [0]
    #expect(Decoding(gif.bytes).isBroken)
  }

  @Test("may have extensions of any number, codes after its last pixel and no clear code")
  func odd() {
    var gif = GIFFixture(width: 4, height: 2)
    let expected = Decoding(gif.bytes).description
    let comment = [0x21, 0xFE, 3, 65, 66, 67, 2, 65, 66, 0] as [UInt8]
    gif.before = Array(repeatElement(comment, count: 3000).joined())
    #expect(Decoding(gif.bytes, pieces: 7).description == expected)
    for codes in [Array(GIFFixture.zeros(8).dropFirst()), GIFFixture.zeros(8) + [0, 0, 0, 7, 7]] {
      gif.frames[0].codes = codes
      #expect(Decoding(gif.bytes, pieces: 3).description == expected, "\(codes)")
    }
  }

  @Test("may have frames that leave the canvas: they are decoded whole")
  func outside() {
    var gif = GIFFixture(width: 4, height: 2)
    gif.frames.append(.init(left: 3, top: 100, width: 4, height: 2))
    #expect(Decoding(gif.bytes).description?.frames == 2)
    gif.frames[1].codes = [4, 0, 5]
    #expect(Decoding(gif.bytes).isBroken)
  }

  @Test("is transparent where its first frame is, or leaves some of the canvas free")
  func transparency() {
    var gif = GIFFixture(width: 4, height: 2)
    #expect(Decoding(gif.bytes).description?.hasAlpha == false)
    gif.before = [0x21, 0xF9, 4, 1, 0, 0, 0, 0]
    #expect(Decoding(gif.bytes, pieces: 1).description?.hasAlpha == true)
    gif.before = []
    gif.width = 5
    #expect(Decoding(gif.bytes).description?.hasAlpha == true)
  }
}
