import CCodecs
import Codec
import Jobs
import TestSupport
import Testing

@Suite("An incomplete or broken GIF")
struct BrokenGIFTests {
  @Test(
    "a GIF is cut short wherever its first frame lacks data",
    arguments: ["small.gif", "interlaced.gif", "transparent.gif", "mono.gif"])
  func cutShort(name: String) throws {
    let whole = Fixtures.image(name)
    let expected = try #require(Decoding(whole).description)
    var longestCut = 0
    for count in 1..<whole.count {
      let pieces = count % 3 == 0 ? 1 : count % 3 == 1 ? 50 : .max
      let decoding = Decoding(Array(whole.prefix(count)), pieces: pieces)
      if decoding.error == .cutShort {
        #expect(longestCut == count - 1, "\(count) bytes were an image before")
        longestCut = count
      } else {
        #expect(decoding.description == expected, "\(count) bytes: \(decoding.result)")
      }
    }
    // After the last pixel, there are an end code of at most two bytes, the end of the blocks and the trailer.
    #expect(whole.count - longestCut <= 5)
  }

  /// Two frames, each after an extension.
  private static func animation() -> (bytes: [UInt8], second: Int) {
    var gif = GIFFixture(width: 4, height: 2)
    gif.frames[0].control = GIFFixture.control(disposal: 1)
    let second = gif.bytes.count - 1
    gif.frames.append(gif.frames[0])
    return (gif.bytes, second)
  }

  @Test("a GIF that is cut between frames has the complete frames, within one it is cut short")
  func cutAnimation() {
    let (whole, second) = Self.animation()
    // The extension before the second frame has 8 bytes.
    for count in 1..<whole.count {
      let frames = Decoding(Array(whole.prefix(count)), pieces: count % 2 == 0 ? 1 : .max)
        .description?.frames
      if second..<second + 9 ~= count {
        #expect(frames == 1, "\(count) bytes")
      } else if count > second {
        // The end of the blocks and the trailer may be missing.
        #expect(frames == (count < whole.count - 2 ? nil : 2), "\(count) of \(whole.count) bytes")
      }
    }
  }

  @Test(
    "a GIF ends at a byte that starts no block, once a frame is complete",
    arguments: [[0], [0, 0x3B], [13, 10, 0x3B], [10], Array("<!-- -->".utf8), [0xFF, 0x2C, 1]]
      as [[UInt8]])
  func otherEnd(end: [UInt8]) {
    let (whole, second) = Self.animation()
    let (first, both) = (Array(whole.prefix(second)), Array(whole.dropLast()))
    for pieces in [1, .max] {
      #expect(Decoding(first + end, pieces: pieces).description?.frames == 1)
      #expect(Decoding(both + end, pieces: pieces).description?.frames == 2)
      // Later bytes are ignored.
      let rest = Array(whole.dropFirst(second))
      #expect(Decoding(first + end + rest, pieces: pieces).description?.frames == 1)
    }
  }

  @Test("an animated variant can be made of a GIF without its end")
  func animatedVariant() throws {
    let (whole, second) = Self.animation()
    var variant = Variant(.webp)
    variant.isAnimated = true
    let expected = try Rendered(whole, as: variant).result.get()
    for end in [[], [0], [0x21], [0x21, 0xFE, 5, 1]] as [[UInt8]] {
      #expect(Rendered(whole.dropLast() + end, as: variant).file == expected)
    }
    let still = try Rendered(Array(whole.prefix(second)), as: variant).result.get()
    #expect(try Decoding(still).result.get().frames == 1)
  }

  @Test(
    "a GIF whose first frame exceeds its screen has that frame's size",
    arguments: [(0, 0), (0, 2), (4, 0), (3, 2), (4, 1), (9, 1), (2, 9)])
  func smallScreen(width: Int, height: Int) throws {
    var gif = GIFFixture(width: 4, height: 2)
    gif.frames[0].codes = GIFFixture.codes([0, 1, 2, 3, 3, 2, 1, 0])
    let expected = ReadPixels(gif.bytes, by: gif_pixels_open).rgba
    #expect(expected.count == 32)
    (gif.width, gif.height) = (width, height)
    // The frame's offset is ignored.
    (gif.frames[0].left, gif.frames[0].top) = (3, 1)
    for pieces in [1, .max] {
      let decoding = Decoding(gif.bytes, pieces: pieces)
      #expect(decoding.description == ImageDescription(format: .gif, width: 4, height: 2))
      #expect(decoding.headers.map(\.width) == [4])
    }
    #expect(ReadPixels(gif.bytes, by: gif_pixels_open).rgba == expected)
    let limits = DecodeLimits(maxPixels: 7)
    let refused = CodecError.tooManyPixels(width: 4, height: 2, limit: 7)
    #expect(Decoding(gif.bytes, limits: limits).error == refused)
    // Later frames are clipped to that size.
    var second = GIFFixture.Frame(left: 2, top: 1, width: 4, height: 2)
    second.codes = GIFFixture.codes([3, 3, 3, 3, 3, 3, 3, 3])
    gif.frames.append(second)
    let frames = try #require(ShownFrames(gif.bytes)?.frames)
    #expect(frames[0].pixels == expected)
    // The color of index 3, in the table after the screen.
    let color = Array(gif.bytes[22..<25]) + [255]
    #expect(frames[1].pixels == expected[..<24] + color + color)
  }

  @Test("a later frame of a GIF may have no pixels and then draws nothing")
  func emptyFrame() throws {
    var gif = GIFFixture(width: 4, height: 2)
    let full = gif.frames[0]
    for (width, height) in [(0, 0), (0, 2), (4, 0)] {
      gif.frames = [full, .init(width: width, height: height), full]
      gif.frames[1].control = GIFFixture.control(disposal: 2, hundredths: 7)
      for codes in [nil, [], [4, 0, 5]] as [[Int]?] {
        gif.frames[1].codes = codes
        for pieces in [1, .max] {
          #expect(Decoding(gif.bytes, pieces: pieces).description?.frames == 3)
        }
        let frames = try #require(ShownFrames(gif.bytes)?.frames)
        #expect(frames.map(\.milliseconds) == [100, 70, 100])
        #expect(frames.allSatisfy { $0.pixels == frames[0].pixels })
        let few = Decoding(gif.bytes, limits: DecodeLimits(maxFrames: 2))
        #expect(few.error == .tooManyFrames(limit: 2))
      }
      // A first frame without pixels leaves nothing to show.
      gif.frames.removeFirst()
      #expect(Decoding(gif.bytes).isBroken)
    }
  }

  @Test("a GIF with too few codes or with invalid codes is broken")
  func codes() {
    var gif = GIFFixture(width: 4, height: 2)
    #expect(Decoding(gif.bytes).description != nil)
    // Code size 2: clear is 4, end is 5; codes have three bits at first.
    for codes in [[4, 0, 5], [4, 0, 0, 0, 5], [4, 7], [4, 5], [], [6, 6], [4, 0, 7]] as [[Int]] {
      gif.frames[0].codes = codes
      for size in [1, .max] {
        let decoding = Decoding(gif.bytes, pieces: size)
        #expect(decoding.isBroken, "\(codes): \(decoding.result)")
      }
    }
  }

  @Test("a GIF with invalid header fields is broken", arguments: 0..<5)
  func nonsense(index: Int) {
    var gif = GIFFixture(width: 4, height: 2)
    switch index {
    case 0: gif.frames[0].width = 0
    case 1: gif.frames[0].height = 0
    case 2: gif.frames = []
    case 3: gif.frames[0].codeSize = 0
    default: gif.frames[0].codeSize = 9
    }
    #expect(Decoding(gif.bytes).isBroken)
  }

  @Test("a GIF with a byte that starts no block before its first frame is broken")
  func between() {
    var gif = GIFFixture(width: 4, height: 2)
    gif.before = [0]
    #expect(Decoding(gif.bytes).isBroken)
  }

  @Test("a GIF may have many extensions, codes after its last pixel and no clear code")
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

  @Test("frames outside a GIF's canvas are decoded completely")
  func outside() {
    var gif = GIFFixture(width: 4, height: 2)
    gif.frames.append(.init(left: 3, top: 100, width: 4, height: 2))
    #expect(Decoding(gif.bytes).description?.frames == 2)
    gif.frames[1].codes = [4, 0, 5]
    #expect(Decoding(gif.bytes).isBroken)
  }

  @Test("a GIF is transparent if its first frame is or does not cover the canvas")
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
