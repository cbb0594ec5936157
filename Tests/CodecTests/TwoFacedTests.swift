import CCodecs
import Codec
import Jobs
import TestSupport
import Testing

/// Files that contain more than one image. The decoder and the reader of pixels must find the same one, so that only
/// a checked image is shown.
@Suite("A file with two images")
struct TwoFacedTests {
  struct File: CustomTestStringConvertible, Sendable {
    var testDescription: String
    var bytes: [UInt8]
    /// The same image alone; nil if the file must be refused.
    var shown: [UInt8]?

    init(_ name: String, _ bytes: [UInt8], shows shown: [UInt8]? = nil) {
      (testDescription, self.bytes, self.shown) = (name, bytes, shown)
    }
  }

  /// Larger images than the shown ones exceed these limits, and so does more memory than they take.
  static let limits = DecodeLimits(maxPixels: 400 * 400, maxDimension: 400)

  @Test(
    "a file with two images is refused, or its variants show the checked image",
    arguments: webps + jpegs + pngs + gifs + avifs)
  func shows(file: File) throws {
    for pieces in [7, .max] {
      let decoding = Decoding(file.bytes, pieces: pieces, limits: Self.limits)
      guard let shown = file.shown else {
        let isRefused = decoding.isBroken || decoding.error?.isOfSides == true
        #expect(isRefused, "\(decoding.result)")
        return
      }
      let (image, alone) = try (decoding.result.get(), Decoding(shown).result.get())
      #expect((image.width, image.height) == (alone.width, alone.height))
      #expect(image.lqip == alone.lqip)
      for variant in [Variant(.png), Variant(.png, 9, 40, fit: .cover)] {
        let rendered = Rendered(file.bytes, as: variant, described: image)
        #expect(try rendered.result.get() == Rendered(shown, as: variant).result.get())
      }
      guard let open = image.format.openPixels else { continue }
      let pixels = ReadPixels(file.bytes, as: image, by: open)
      #expect((pixels.width, pixels.height) == (image.width, image.height))
    }
  }

  @Test(
    "a reader refuses a file that is described as its other image", arguments: webps + gifs + avifs)
  func otherFace(file: File) throws {
    guard let shown = file.shown, var image = Decoding(shown).description else { return }
    (image.width, image.height) = (16_383, 16_383)
    let open = try #require(image.format.openPixels)
    let pixels = ReadPixels(file.bytes, as: image, by: open)
    #expect(pixels.fault == .broken && pixels.rgba.isEmpty)
  }

  @Test(
    "a reader refuses a file whose description is of another image",
    arguments: Fixtures.known.map(\.name))
  func description(name: String) throws {
    let file = Fixtures.image(name)
    let image = try #require(Decoding(file).description)
    var others = [image, image, image, image, image, image, image, image]
    others[0].width += 1
    others[1].height += 1
    others[2].width -= 1
    (others[3].width, others[3].height) = (image.height, image.width)
    others[4].width = 0
    (others[5].width, others[5].height) = (0, 0)
    others[6].isProgressive.toggle()
    others[7].hasAlpha.toggle()
    for other in others where other != image {
      // In a WebP, later frames may be transparent.
      if image.format == .webp, image.frames > 1, other.hasAlpha != image.hasAlpha { continue }
      if let open = image.format.openPixels {
        let pixels = ReadPixels(file, as: other, by: open)
        #expect(pixels.fault == .broken && pixels.width == 0, "\(other)")
      }
      let rendered = Rendered(file, as: Variant(.png, 8), described: other)
      #expect(
        rendered.result
          == .failure(.broken(format: image.format, detail: "not the image decoded before")))
    }
  }
}

extension CodecError {
  fileprivate var isOfSides: Bool {
    if case .dimensionTooLarge = self { true } else { false }
  }
}

// MARK: WebP

extension TwoFacedTests {
  private typealias Chunk = WebPFixture.Chunk

  private static let hidden = WebPFixture.flat(width: 16_383, height: 16_383, argb: 0xFF_FF_00_00)
  private static let good = WebPFixture.flat(width: 300, height: 300, argb: 0xFF_00_80_40)
  private static let canvas = Chunk.canvas(width: 300, height: 300, flags: 0)
  private static let announced = Chunk.canvas(width: 300, height: 300, flags: 0x02)
  private static let goodFrame = Chunk.frame(good, width: 300, height: 300)
  private static let hiddenFrame = Chunk.frame(hidden, width: 16_383, height: 16_383)

  private static func webp(_ name: String, _ chunks: [Chunk], _ shown: [Chunk]?) -> File {
    File(
      "WebP: " + name, WebPFixture(chunks: chunks).bytes,
      shows: shown.map { WebPFixture(chunks: $0).bytes })
  }

  static let webps = [
    webp("an unannounced frame", [hiddenFrame, good], [good]),
    webp("a frame in a still image", [canvas, hiddenFrame, good], [good]),
    webp(
      "a still image before frames", [announced, hidden, goodFrame], [goodFrame].with(announced)),
    webp(
      "a still image after frames", [announced, goodFrame, hidden], [goodFrame].with(announced)),
    webp("a second image", [good, hidden], [good]),
    webp("a second image, and the first inside it", [hidden, good], nil),
    webp(
      "a second canvas", [good, .canvas(width: 16_383, height: 16_383, flags: 2), hidden], [good]),
    webp(
      "a second canvas before the image",
      [canvas, .canvas(width: 16_383, height: 16_383, flags: 2), good], [good]),
    webp(
      "a frame with two images",
      [announced, .frame(good, hidden, width: 300, height: 300)], [goodFrame].with(announced)),
    webp(
      "a frame with the wrong image first",
      [announced, .frame(hidden, good, width: 300, height: 300)], nil),
    webp(
      "a frame in a frame",
      [announced, .frame(hiddenFrame, good, width: 300, height: 300)], [goodFrame].with(announced)),
    webp(
      "a profile that contains an image",
      [canvas, .init(tag: "ICCP", content: hidden.bytes), good],
      [good]),
    webp(
      "metadata that contain a file",
      [canvas, .init(tag: "EXIF", content: hiddenFrame.bytes), good],
      [good]),
    webp("unannounced alpha", [.init(tag: "ALPH", content: [0, 1, 2]), good], [good]),
    File(
      "WebP: a second file after it",
      WebPFixture(chunks: [good]).bytes + WebPFixture(chunks: [hidden]).bytes,
      shows: WebPFixture(chunks: [good]).bytes),
  ]
}

extension [WebPFixture.Chunk] {
  fileprivate func with(_ canvas: Element) -> Self { [canvas] + self }
}

// MARK: JPEG

extension TwoFacedTests {
  private static let large = Fixtures.jpeg
  private static let small = Fixtures.smallJPEG

  private static func jpeg(
    _ name: String, shows: Bool, of file: [UInt8] = small,
    _ change: (inout JPEGFixture, JPEGFixture) -> Void
  ) -> File {
    var jpeg = JPEGFixture(file)
    change(&jpeg, JPEGFixture(large))
    return File("JPEG: " + name, jpeg.bytes, shows: shows ? file : nil)
  }

  static let jpegs: [File] = [
    jpeg("a thumbnail in EXIF", shows: true) { jpeg, _ in
      jpeg.insert(JPEGFixture.segment(0xE1, Array("Exif\0\0".utf8) + large))
    },
    jpeg("a thumbnail in JFIF's extension", shows: true) { jpeg, _ in
      jpeg.insert(JPEGFixture.segment(0xE0, Array("JFXX\0".utf8) + [0x10] + large))
    },
    jpeg("an image in a comment", shows: true) { jpeg, _ in
      jpeg.insert(JPEGFixture.segment(0xFE, large))
    },
    File(
      "JPEG: a second image by MPF",
      JPEGFixture(small).inserting(
        JPEGFixture.segment(0xE2, Array("MPF\0".utf8) + large.prefix(90)))
        + large, shows: small),
    jpeg("two frame headers, the larger first", shows: false) { jpeg, large in
      jpeg.insert(large.segments[large.index(of: 0xC0)!].bytes)
    },
    jpeg("two frame headers, the larger last", shows: false) { jpeg, large in
      jpeg.segments.insert(large.segments[large.index(of: 0xC0)!], at: jpeg.index(of: 0xDA)!)
    },
    jpeg("a frame header after the scan", shows: false) { jpeg, large in
      jpeg.segments.insert(
        large.segments[large.index(of: 0xC0)!], at: jpeg.segments.count - 1)
    },
    jpeg("a second start", shows: false) { jpeg, large in
      jpeg.segments.insert(contentsOf: large.segments, at: 1)
    },
    jpeg("a second start between scans", shows: false, of: Fixtures.image("small-progressive.jpg"))
    {
      jpeg, large in
      jpeg.segments.insert(contentsOf: large.segments, at: jpeg.segments.count - 2)
    },
    File("JPEG: a second file after it", small + large, shows: small),
  ]
}

extension JPEGFixture {
  fileprivate func inserting(_ segment: [UInt8]) -> [UInt8] {
    var copy = self
    copy.insert(segment)
    return copy.bytes
  }
}

// MARK: PNG

extension TwoFacedTests {
  private static let huge = PNGFixture(width: 16_383, height: 16_383)

  private static func png(_ name: String, _ before: [UInt8], _ after: [UInt8], shows: Bool) -> File
  {
    var png = PNGFixture(width: 300, height: 200)
    let alone = png.bytes
    (png.before, png.after) = ([before], [after])
    return File("PNG: " + name, png.bytes, shows: shows ? alone : nil)
  }

  static let pngs = [
    png("a second IHDR before the data", header(huge), [], shows: false),
    png("a second IHDR after the data", [], header(huge), shows: false),
    png("a second image's data", [], PNGFixture.chunk("tEXt", [1]) + pixels, shows: false),
    png("an animation with larger frames", animation, later, shows: true),
    png(
      "an animation whose first frame is its default image", animation + control, later, shows: true
    ),
    png("a file in a text", PNGFixture.chunk("zTXt", huge.start), [], shows: true),
    File(
      "PNG: a second file after it", Fixtures.smallPNG + huge.start + pixels + huge.end,
      shows: Fixtures.smallPNG),
    File("PNG: another header first", header(huge).inserted(in: Fixtures.smallPNG)),
  ]

  private static func header(_ png: PNGFixture) -> [UInt8] { PNGFixture.chunk("IHDR", png.header) }
  private static let pixels = PNGFixture.chunk(
    "IDAT", PNGFixture.zlib([UInt8](repeating: 0, count: 900)))
  private static let animation = PNGFixture.chunk("acTL", [0, 0, 0, 2, 0, 0, 0, 0])
  private static let control = PNGFixture.chunk(
    "fcTL",
    PNGFixture.big(0) + PNGFixture.big(16_383) + PNGFixture.big(16_383)
      + [UInt8](repeating: 0, count: 14))
  private static let later =
    control + PNGFixture.chunk("fdAT", [0, 0, 0, 1] + PNGFixture.zlib([0]))
}

extension [UInt8] {
  /// Inserts the bytes after the signature.
  fileprivate func inserted(in png: [UInt8]) -> [UInt8] { png.prefix(8) + self + png.dropFirst(8) }
}

// MARK: GIF

extension TwoFacedTests {
  private static func gif(
    _ name: String, shows: Bool = true, alone: (inout GIFFixture) -> Void = { _ in },
    _ change: (inout GIFFixture) -> Void
  ) -> File {
    var gif = GIFFixture(width: 30, height: 20)
    alone(&gif)
    let shown = gif.bytes
    change(&gif)
    return File("GIF: " + name, gif.bytes, shows: shows ? shown : nil)
  }

  static let gifs = [
    gif("a second frame", { $0.frames.append(.init(left: 3, top: 3, width: 9, height: 9)) }),
    gif("a second frame outside the canvas") {
      $0.frames.append(.init(left: 65_000, top: 65_000, width: 20, height: 10))
    },
    gif(
      "a first frame larger than the canvas",
      alone: { $0.frames[0] = .init(width: 40, height: 20) }, { _ in }),
    gif("a frame of no width", shows: false) {
      $0.frames.insert(.init(width: 0, height: 20), at: 0)
    },
    gif("a frame of no height") { $0.frames.append(.init(width: 20, height: 0)) },
    gif("a canvas of no width") { $0.width = 0 },
    gif("a frame in a comment") {
      $0.before = [0x21, 0xFE, 10, 0x2C, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]
    },
    gif("a file in an application's extension") {
      $0.before = [0x21, 0xFF, 11] + Array("GIF89aXXXXX".utf8) + [1, 0x3B, 0]
    },
    File(
      "GIF: a second file after it",
      GIFFixture(width: 30, height: 20).bytes + GIFFixture(width: 300, height: 20).bytes,
      shows: GIFFixture(width: 30, height: 20).bytes),
  ]
}

// MARK: AVIF

extension TwoFacedTests {
  private static func avif(
    _ name: String, of file: String, shows: Bool = true, _ change: (inout [UInt8]) -> Void
  ) -> File {
    let whole = Fixtures.image(file)
    var bytes = whole
    change(&bytes)
    return File("AVIF: " + name, bytes, shows: shows ? whole : nil)
  }

  /// A box with a head and this content.
  private static func box(_ name: String, _ content: [UInt8]) -> [UInt8] {
    PNGFixture.big(UInt32(content.count + 8)) + Array(name.utf8) + content
  }

  static let avifs = [
    avif("a second file after it", of: "small.avif") { $0 += Fixtures.image("grid.avif") },
    avif("a second meta box after it", of: "small.avif") {
      let other = Fixtures.image("grid.avif")
      let meta = other.firstIndex(of: "meta")!
      $0 += other[(meta - 4)...]
    },
    avif("another file in a free box before its boxes", of: "small.avif") {
      // The offsets in the file stay valid, because the box is the last one.
      $0 += box("free", Fixtures.image("grid.avif"))
    },
    avif("a primary item that does not exist", of: "grid.avif", shows: false) {
      let place = $0.firstIndex(of: "pitm")!
      $0[place + 9] = 99
    },
  ]

  @Test("an AVIF is its primary item for the decoder and for all readers")
  func primaryItem() throws {
    let grid = Fixtures.image("grid.avif")
    let place = try #require(grid.firstIndex(of: "pitm"))
    var faces: Set<[Int]> = []
    for item in 1...6 as ClosedRange<UInt8> {
      var bytes = grid
      bytes[place + 9] = item
      guard let image = Decoding(bytes).description else { continue }
      faces.insert([image.width, image.height])
      let pixels = ReadPixels(bytes, as: image, by: avif_pixels_open)
      #expect(pixels.rgba.count == image.width * image.height * 4)
      // The description of one item does not match another item.
      let own = try #require(Decoding(grid).description)
      if own != image {
        #expect(ReadPixels(bytes, as: own, by: avif_pixels_open).fault == .broken)
      }
    }
    #expect(faces.count > 1)
  }

  @Test("an AVIF is its sequence or its item by its major brand, for all readers")
  func sequence() throws {
    for brand in ["avis", "avif"] {
      var bytes = Fixtures.image("animated.avif")
      bytes.replaceSubrange(8..<12, with: brand.utf8)
      guard let image = Decoding(bytes).description else { continue }
      #expect(ReadPixels(bytes, as: image, by: avif_pixels_open).width == image.width)
      var other = image
      other.frames = image.frames == 1 ? 2 : 1
      #expect(ReadPixels(bytes, as: other, by: avif_pixels_open).fault == .broken)
    }
  }
}

extension [UInt8] {
  /// The index of these letters.
  fileprivate func firstIndex(of letters: String) -> Int? {
    indices.first { self[$0...].starts(with: letters.utf8) }
  }
}
