import Codec
import Jobs
import TestSupport
import Testing

@Suite("A variant")
struct VariantTests {
  struct Expected: Sendable {
    var width, height: Int?
    var fit: Variant.Fit
    var size: [Int]
  }

  /// For an image of 1600 × 1200.
  static let sizes: [Expected] = [
    Expected(fit: .contain, size: [1600, 1200]),
    Expected(fit: .fill, size: [1600, 1200]),
    Expected(width: 800, fit: .contain, size: [800, 600]),
    Expected(height: 333, fit: .scaleDown, size: [444, 333]),
    Expected(width: 333, fit: .scaleDown, size: [333, 250]),
    Expected(width: 100, height: 100, fit: .contain, size: [100, 75]),
    Expected(width: 3000, height: 100, fit: .contain, size: [133, 100]),
    Expected(width: 3000, height: 3000, fit: .contain, size: [1600, 1200]),
    Expected(width: 3000, fit: .scaleDown, size: [1600, 1200]),
    Expected(width: 1, height: 1000, fit: .contain, size: [1, 1]),
    Expected(width: 3200, fit: .cover, size: [3200, 2400]),
    Expected(height: 2400, fit: .fill, size: [3200, 2400]),
    Expected(width: 3000, height: 100, fit: .cover, size: [3000, 100]),
    Expected(width: 3000, height: 100, fit: .fill, size: [3000, 100]),
    Expected(width: 0, height: -5, fit: .fill, size: [1, 1]),
  ]

  @Test("a variant has the size that its fit defines", arguments: sizes)
  func size(expected: Expected) {
    let renderer = StreamingRenderer()
    let variant = Variant(.png, expected.width, expected.height, fit: expected.fit)
    var image = ImageDescription(format: .jpeg, width: 1600, height: 1200)
    for orientation in 1...8 {
      image.orientation = orientation
      if orientation == 5 { swap(&image.width, &image.height) }
      let size = renderer.size(of: variant, from: image)
      #expect([size.width, size.height] == expected.size, "orientation \(orientation)")
    }
  }

  @Test("a variant with contain is enlarged if allowed")
  func enlarging() {
    var image = ImageDescription(format: .jpeg, width: 1600, height: 1200)
    for (width, height, fit, size) in [
      (3200, 9000, .contain, [3200, 2400]), (nil, 2400, .contain, [3200, 2400]),
      (3200, nil, .contain, [3200, 2400]), (100, 100, .contain, [100, 75]),
      (nil, nil, .contain, [1600, 1200]), (3200, 2400, .scaleDown, [1600, 1200]),
      (1 << 24, nil, .contain, [1 << 24, 3 << 22]),
    ] as [(Int?, Int?, Variant.Fit, [Int])] {
      var variant = Variant(.png, width, height, fit: fit)
      variant.enlarge = true
      for orientation in [1, 6] {
        image.orientation = orientation
        if orientation == 6 { swap(&image.width, &image.height) }
        let (width, height) = StreamingRenderer().size(of: variant, from: image)
        #expect([width, height] == size)
        if orientation == 6 { swap(&image.width, &image.height) }
      }
    }
  }

  @Test("a variant of an absurd size is refused without integer overflow")
  func absurd() {
    let variant = Variant(.jpeg, .max, .max, fit: .fill)
    let image = ImageDescription(format: .jpeg, width: 24, height: 16)
    #expect(StreamingRenderer().size(of: variant, from: image).width > 65_500)
    #expect(StreamingRenderer().memory(for: variant, from: image) > 1 << 40)
    let refused = Rendered(Fixtures.smallJPEG, as: Variant(.jpeg, 70_000, 2, fit: .fill))
    guard case .failure(.dimensionTooLarge(70_000, 2, limit: 65_500)) = refused.result else {
      Issue.record("\(refused.result)")
      return
    }
  }

  @Test("a variant is rendered in steps, and the result can be read again")
  func steps() throws {
    let bytes = Fixtures.image("flat-paeth.png")
    let rendered = Rendered(bytes, as: Variant(.png, 100))
    #expect(rendered.file != nil)
    #expect(rendered.steps > 10)
    let image = ImageDescription(format: .jpeg, width: 24, height: 16)
    let rendering = StreamingRenderer().render(Fixtures.smallJPEG, of: image, as: Variant(.png))
    var file: [UInt8]?
    while file == nil { file = try rendering.file() }
    #expect(try rendering.file() == file)
  }

  @Test("a variant has the same bytes each time", arguments: [OutputFormat.jpeg, .png])
  func determinism(format: OutputFormat) {
    let variant = Variant(format, 77, 50, fit: .cover)
    let first = Rendered(Fixtures.progressiveJPEG, as: variant).file
    #expect(first != nil)
    #expect(Rendered(Fixtures.progressiveJPEG, as: variant).file == first)
  }

  @Test(
    "variants of one decode equal single ones at that scale, and failures affect no other",
    arguments: ["photo.jpg", "photo.png", "photo.webp", "photo.gif", "small.avif", "alpha.jxl"])
  func together(name: String) throws {
    let bytes = Fixtures.image(name)
    let image = try Decoding(bytes).result.get()
    let variants = [
      Variant(.png, image.width * 9 / 10), Variant(.jpeg, 70_000, 2, fit: .fill),
      Variant(.jpeg, image.width * 8 / 10), Variant(.webp, image.width * 9 / 10),
    ]
    let rendering = StreamingRenderer().render(bytes, of: image, as: variants)
    var all: [Result<[UInt8], CodecError>]?
    while all == nil { all = try rendering.step() }
    #expect(all?.map { try? $0.get() } == variants.map { Rendered(bytes, as: $0).file })
    #expect(all?.map { (try? $0.get()) == nil } == [false, true, false, false])
  }

  @Test("a variant decoded at the scale of a larger one is another rendition")
  func scales() throws {
    let (bytes, renderer) = (Fixtures.jpeg, StreamingRenderer())
    let image = try Decoding(bytes).result.get()
    let (small, large) = (Variant(.png, 30), Variant(.png, 400))
    var beside = small
    beside.shrink = renderer.shrink(for: large, from: image)
    #expect(renderer.shrink(for: small, from: image) != beside.shrink)
    let rendering = renderer.render(bytes, of: image, as: [small, large])
    var all: [Result<[UInt8], CodecError>]?
    while all == nil { all = try rendering.step() }
    let together = try #require(all?.first).get()
    #expect(together == Rendered(bytes, as: beside).file)
    #expect(together != Rendered(bytes, as: small).file, "the two scales differ")

    let stored = StoredImage(
      description: image, digest: ImageDigest(of: bytes), bytes: bytes.count, url: nil,
      variant: .regular, modifiedAt: Timestamp(milliseconds: 0))
    let renditions = [small, beside, large].map { Rendition(of: stored, as: $0, by: renderer) }
    #expect(Set(renditions.map(\.id)).count == 3)
    #expect(renditions[0].decode != renditions[2].decode, "together they have other pixels")
    #expect(renditions[1].decode == renditions[2].decode)
  }

  @Test("a rendering can be abandoned at any step")
  func lettingGo() throws {
    for name in ["photo.jpg", "photo-progressive.jpg", "flat-paeth.png", "rgba.png"] {
      let bytes = Fixtures.image(name)
      let image = try Decoding(bytes).result.get()
      for count in 0..<4 {
        let rendering = StreamingRenderer().render(bytes, of: image, as: Variant(.jpeg, 900))
        for _ in 0..<count { _ = try rendering.file() }
      }
    }
  }

  @Test("a variant in a format without an encoder is refused")
  func unwritten() {
    for format in OutputFormat.allCases {
      let isWritten = StreamingRenderer().formats.contains(format)
      let rendered = Rendered(Fixtures.smallPNG, as: Variant(format))
      #expect((rendered.file != nil) == isWritten)
    }
    #expect(StreamingRenderer().formats.isSuperset(of: [.jpeg, .png]))
  }
}
