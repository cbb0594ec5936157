import Codec
import Jobs
import TestSupport
import Testing

/// The images were decoded completely before, and their bytes were damaged afterwards.
@Suite("Rendering damaged bytes")
struct HostileVariantTests {
  static let seeds =
    HostileTests.seeds + [
      "icc.jpg", "ycck.jpg", "cmyk.jpg", "wide.png", "inks-profile.jpg",
      "interlaced-alpha.png", "grey-gamma.png",
    ]

  static let variants = [
    Variant(.png, 9, 40, fit: .cover), Variant(.jpeg, 20, 20), Variant(.png),
    Variant(.jpeg, 90, 50, fit: .fill),
  ]

  @Test("rendering damaged bytes ends with a result or an error", arguments: seeds)
  func mutants(name: String) throws {
    var random = SeededRandom(UInt64(name.utf8.reduce(9) { $0 &* 31 &+ UInt64($1) }))
    let seed = PillowJudge.source(name)
    let image = try Decoding(seed).result.get()
    for round in 0..<60 {
      var bytes = seed
      for _ in 0..<Int.random(in: 1...5, using: &random) {
        // Most of what can break is before the pixels.
        let end = Bool.random(using: &random) ? bytes.count : min(bytes.count, 700)
        let index = Int.random(in: 0..<end, using: &random)
        if Bool.random(using: &random) {
          bytes[index] = UInt8.random(in: 0...255, using: &random)
        } else {
          bytes[index] ^= 1 << Int.random(in: 0..<8, using: &random)
        }
      }
      let variant = Self.variants[round % Self.variants.count]
      let rendered = Rendered(bytes, as: variant, described: image)
      guard let file = rendered.file else { continue }
      let size = StreamingRenderer().size(of: variant, from: image)
      let description = Decoding(file).description
      #expect(description?.width == size.width && description?.height == size.height)
    }
  }

  /// An animation whose later frames are missing is complete here.
  @Test(
    "rendering bytes that end too early is an error",
    arguments: seeds.filter { name in
      !["animated", "blinking", "sequence", "track"].contains(where: name.hasPrefix)
    })
  func truncation(name: String) throws {
    let seed = PillowJudge.source(name)
    let image = try Decoding(seed).result.get()
    for part in 0..<12 {
      let bytes = Array(seed.prefix(seed.count * part / 16))
      let rendered = Rendered(bytes, as: Variant(.jpeg, 30), described: image)
      // A JPEG with several scans shows the scans that are present.
      if rendered.file != nil { #expect(image.format == .jpeg && part > 2) }
    }
  }

  @Test("rendering an image with larger sides than described fails without the memory")
  func largerSides() throws {
    var jpeg = JPEGFixture(Fixtures.image("small-progressive.jpg"))
    let image = try Decoding(jpeg.bytes).result.get()
    jpeg.resize(width: 65_500, height: 65_500)
    var png = PNGFixture(width: 900_000, height: 900_000)
    png.isInterlaced = true
    let described = ImageDescription(format: .png, width: 12, height: 9)
    let ends = png.start + PNGFixture.chunk("IDAT", PNGFixture.zlib([0, 0, 0])) + png.end
    for variant in Self.variants {
      let first = Rendered(jpeg.bytes, as: variant, described: image)
      let second = Rendered(ends, as: variant, described: described)
      for result in [first.result, second.result] {
        guard case .failure(.broken) = result else {
          Issue.record("\(result)")
          continue
        }
      }
    }
  }
}
