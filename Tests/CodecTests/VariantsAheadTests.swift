import Codec
import Jobs
import TestSupport
import Testing

/// Their likeness to Pillow's results is tested together with other variants; see ``PillowJudge``.
@Suite("Variants made during a decode")
struct VariantsDuringDecodeTests {
  static let sizes = [
    Variant(.jpeg, 64), Variant(.png, 40, 40, fit: .cover), Variant(.webp, 100),
    Variant(.jpeg, 150, 20, fit: .fill), Variant(.avif, 32), Variant(.jpeg, 5), Variant(.png, 3),
    Variant(.jpeg),
  ]
  static let decoded = Fixtures.known.filter {
    [.jpeg, .png].contains($0.description.format) && !$0.name.hasPrefix("flat")
  }.map(\.name)

  @Test(
    "variants made during a decode are complete and have the rendered sizes", arguments: decoded)
  func made(name: String) throws {
    let file = Fixtures.image(name)
    let plain = Decoding(file)
    for pieces in [1_000, .max] {
      let decoding = Decoding(file, pieces: pieces, variants: Self.sizes)
      #expect(decoding.description == plain.description)
      #expect(decoding.headers.count == 1)
      #expect(decoding.variants.count == Self.sizes.count)
      for (variant, made) in zip(Self.sizes, decoding.variants) {
        let file = try #require(made, "\(variant)")
        let image = try #require(Decoding(file).description)
        let size = try StreamingRenderer().size(of: variant, from: plain.result.get())
        #expect((image.width, image.height) == size, "\(variant)")
        #expect(image.format.rawValue == variant.format.rawValue)
      }
    }
  }

  @Test(
    "variants made during a decode do not depend on how the bytes are split", arguments: decoded)
  func pieces(name: String) {
    let file = Fixtures.image(name)
    let whole = Decoding(file, variants: Self.sizes).variants
    #expect(Decoding(file, pieces: 7, variants: Self.sizes).variants == whole)
  }

  @Test(
    "variants made during a decode do not change which files are refused",
    arguments: ["small.jpg", "scans.jpg", "small.png"])
  func refused(name: String) {
    let file = Fixtures.image(name)
    // EOI or IEND may be missing.
    let end = file.count - (name == "small.png" ? 12 : 2)
    for count in stride(from: 1, to: end, by: 3) {
      let part = Array(file.prefix(count))
      let decoding = Decoding(part, pieces: 90, variants: Self.sizes)
      #expect(decoding.error == Decoding(part).error, "\(count) bytes")
      #expect(decoding.variants == [])
    }
  }

  @Test("variants without enough memory are left out, and the image is still accepted")
  func memory() throws {
    let least = try #require(Decoding(Fixtures.jpeg).headers.first).decodingMemory
    var limits = DecodeLimits(maxMemory: least)
    #expect(
      Decoding(Fixtures.jpeg, limits: limits, variants: Self.sizes).variants
        == Self.sizes.map { _ in nil })
    let header = try #require(Decoding(Fixtures.jpeg, variants: Self.sizes).headers.first)
    #expect(header.decodingMemory > least)
    limits.maxMemory = header.decodingMemory
    #expect(!Decoding(Fixtures.jpeg, limits: limits, variants: Self.sizes).variants.contains(nil))
    let huge = Decoding(Fixtures.jpeg, variants: [Variant(.jpeg, 70_000, 2, fit: .fill)])
    #expect(huge.variants == [nil] && huge.error == nil)
  }

  @Test("variants of other formats are left to the renderer")
  func others() {
    for name in ["small.webp", "small.gif", "small.avif", "small.jxl"] {
      let decoding = Decoding(Fixtures.image(name), variants: [Variant(.jpeg, 9)])
      #expect(decoding.error == nil && decoding.variants == [nil])
    }
  }

  @Test("variants are upright, or left to the renderer if the PNG's EXIF follows its pixels")
  func orientation() {
    var png = PNGFixture(width: 40, height: 20)
    let exif = PNGFixture.chunk("eXIf", EXIFFixture.tiff(orientation: 6, isBigEndian: true))
    png.before = [exif]
    let early = Decoding(png.bytes, variants: [Variant(.png, 10)]).variants[0]
    #expect(early.map { Decoding($0).description?.height } == 20)
    png.before = []
    let file = Array(png.bytes.dropLast(12)) + exif + png.bytes.suffix(12)
    let late = Decoding(file, variants: [Variant(.png, 10)])
    #expect(late.description?.orientation == 6 && late.variants == [nil])
  }

  @Test("a decode with variants can be abandoned at any step")
  func lettingGo() throws {
    for name in ["photo.jpg", "photo-progressive.jpg", "rgba.png"] {
      for count in 0..<30 {
        let decoder = StreamingCodec().makeDecoder(
          limits: DecodeLimits(), variants: Self.sizes.map { VariantRequest($0) })
        decoder.append(Fixtures.image(name))
        for _ in 0..<count { _ = try decoder.step() }
      }
    }
  }
}
