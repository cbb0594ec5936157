import Codec
import Jobs
import TestSupport
import Testing

@Suite("A complete image")
struct WholeImageTests {
  @Test(
    "a complete image has the description that Pillow gives", arguments: Fixtures.known.map(\.name))
  func agreesWithPillow(name: String) {
    let expected = Fixtures.known.first { $0.name == name }?.description
    let decoding = Decoding(Fixtures.image(name))
    #expect(decoding.description == expected, "\(decoding.result)")
    #expect(decoding.headers.count == 1)
    #expect(decoding.headers.first?.width == expected?.width)
    #expect(decoding.headers.first?.height == expected?.height)
    #expect(decoding.headers.first?.format == expected?.format)
  }

  @Test("a complete image is the same however its bytes are split", arguments: [1, 2, 7, 1000])
  func splits(size: Int) {
    for (name, expected) in Fixtures.known where size > 2 || Fixtures.image(name).count < 4000 {
      let decoding = Decoding(Fixtures.image(name), pieces: size)
      #expect(decoding.description == expected, "\(name): \(decoding.result)")
      #expect(decoding.headers.count == 1)
    }
  }

  @Test("a PNG of any kind is decoded", arguments: PNGFixture.kinds, [false, true])
  func kinds(kind: (colourType: UInt8, depth: UInt8), isInterlaced: Bool) {
    for (width, height) in [(1, 1), (2, 3), (5, 1), (1, 9), (9, 8), (33, 17)] as [(UInt32, UInt32)]
    {
      var png = PNGFixture(width: width, height: height)
      (png.colourType, png.depth, png.isInterlaced) = (kind.colourType, kind.depth, isInterlaced)
      var expected = ImageDescription(format: .png, width: Int(width), height: Int(height))
      expected.isProgressive = isInterlaced
      expected.hasAlpha = kind.colourType >= 4
      for size in [1, 7, .max] {
        let decoding = Decoding(png.bytes, pieces: size)
        #expect(decoding.description == expected, "\(width) x \(height): \(decoding.result)")
      }
    }
  }

  @Test(
    "bytes after the end of an image are ignored",
    arguments: [
      "photo.jpg", "photo.png", "photo.webp", "animated.webp", "photo.gif", "small.avif",
      "animated.avif", "small.jxl", "boxed.jxl", "recompressed.jxl", "animated.jxl",
      "small.heic", "grid.heic", "sequence.heic", "small.ico", "old.ico",
    ])
  func trailingBytes(name: String) {
    let image = Fixtures.image(name)
    for tail in [[0], [UInt8](repeating: 0xFF, count: 100_000), image, Fixtures.progressiveJPEG] {
      #expect(Decoding(image + tail).description != nil)
      #expect(Decoding(image + tail, pieces: 1000).description != nil)
    }
  }

  @Test(
    "a complete image is finished before the end of the bytes is reported",
    arguments: Fixtures.known.map(\.name)
  )
  func finishesWithoutEnd(name: String) throws {
    let decoder = StreamingCodec().makeDecoder(limits: DecodeLimits())
    decoder.append(Fixtures.image(name))
    var step = try decoder.step()
    while step != .needsBytes {
      if case .finished = step {
        #expect(try decoder.step() == step)
        return
      }
      step = try decoder.step()
    }
    // The library's arithmetic decoder can't wait for bytes, so all must be present.
    #expect(name.hasPrefix("arithmetic"))
  }

  @Test("an image has its EXIF orientation in either byte order", arguments: 1...8, [false, true])
  func orientation(value: Int, isBigEndian: Bool) {
    for type in [3, 4] as [UInt16] {
      let tiff = EXIFFixture.tiff(orientation: UInt16(value), isBigEndian: isBigEndian, type: type)
      var jpeg = JPEGFixture(Fixtures.smallJPEG)
      jpeg.insert(EXIFFixture.app1(tiff))
      #expect(Decoding(jpeg.bytes, pieces: 3).description?.orientation == value)

      var png = PNGFixture(width: 3, height: 3)
      png.before = [PNGFixture.chunk("eXIf", tiff)]
      #expect(Decoding(png.bytes, pieces: 3).description?.orientation == value)
      (png.before, png.after) = (png.after, png.before)
      #expect(Decoding(png.bytes).description?.orientation == value)
    }
  }

  @Test("a tRNS chunk makes a PNG transparent")
  func transparency() {
    var png = PNGFixture(width: 3, height: 3)
    png.before = [PNGFixture.chunk("tRNS", [0, 1, 0, 2, 0, 3])]
    #expect(Decoding(png.bytes).description?.hasAlpha == true)
  }

  @Test(
    "only the bits of the image's depth count in a PNG's transparent color",
    arguments: [1, 2, 4, 8, 16])
  func transparentColour(depth: UInt8) {
    var png = PNGFixture(width: 9, height: 5)
    (png.depth, png.colourType) = (depth, 0)
    png.before = [PNGFixture.chunk("tRNS", [0, 0])]
    let wanted = Decoding(png.bytes).description
    png.before = [PNGFixture.chunk("tRNS", [depth == 16 ? 0 : 0xFF, 0])]
    // The image is completely transparent.
    #expect(wanted?.hasAlpha == true && wanted?.lqip == nil)
    #expect(Decoding(png.bytes).description == wanted)
    #expect(Decoding(png.bytes, variants: [Variant(.png, 4)]).description == wanted)
  }

  @Test("an image with an invalid EXIF block is upright", arguments: 0..<8)
  func nonsense(index: Int) {
    let sound = EXIFFixture.tiff(orientation: 6, isBigEndian: true)
    let blocks: [[UInt8]] = [
      EXIFFixture.tiff(orientation: 9, isBigEndian: true),
      EXIFFixture.tiff(orientation: 0, isBigEndian: false),
      EXIFFixture.tiff(orientation: 6, isBigEndian: true, type: 2),
      EXIFFixture.tiff(orientation: 6, isBigEndian: true, directory: .max),
      EXIFFixture.tiff(orientation: 6, isBigEndian: false, directory: 0, entries: .max),
      Array(sound.prefix(15)), [], Array(repeating: 0x4D, count: 60_000),
    ]
    var jpeg = JPEGFixture(Fixtures.smallJPEG)
    jpeg.insert(EXIFFixture.app1(blocks[index]))
    #expect(Decoding(jpeg.bytes).description?.orientation == 1)
  }
}
