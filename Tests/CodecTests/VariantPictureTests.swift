import Codec
import Jobs
import TestSupport
import Testing

@Suite("The pixels of a variant")
struct VariantPictureTests {
  typealias Case = PillowJudge.Case

  /// Renders the cases, and expects at least this likeness to Pillow's results.
  static func expect(
    _ cases: [Case], atLeast floor: Double,
    _ more: (Case, PillowJudge.Verdict) -> Void = { _, _ in }
  ) throws {
    for (item, verdict) in try PillowJudge.judge(cases) {
      #expect(verdict.psnr >= floor, "\(item.name) \(item.variant): \(verdict)")
      #expect(verdict.format == item.variant.format.rawValue)
      #expect(verdict.metadata == [])
      more(item, verdict)
    }
  }

  @Test("a variant equals Pillow's Lanczos scaling of the same pixels")
  func scaling() throws {
    let sizes = [(500, 500), (333, 90), (64, 64), (17, 400), (1, 1), (1002, 756)]
    var cases = sizes.map { Case(name: "large.png", variant: Variant(.png, $0.0, $0.1)) }
    cases += ["photo.png", "interlaced.png", "small.png", "grey.png"].flatMap { name in
      [
        Case(name: name, variant: Variant(.png, 47)),
        Case(name: name, variant: Variant(.png, nil, 7)),
      ]
    }
    try Self.expect(cases, atLeast: 45)
  }

  @Test("a variant is enlarged and distorted as by Pillow")
  func enlarging() throws {
    let sizes = [(400, 300), (161, 121), (10, 500), (700, 11), (640, 120)]
    try Self.expect(
      sizes.map { Case(name: "photo.png", variant: Variant(.png, $0.0, $0.1, fit: .fill)) },
      atLeast: 45)
    try Self.expect(
      ["alpha.png", "dot.png"].map { Case(name: $0, variant: Variant(.png, 450, 450, fit: .fill)) },
      atLeast: 40)
  }

  @Test("a variant with cover is cropped equally on both sides")
  func covering() throws {
    // 160 × 120: for a square the middle 120 columns, for 2:1 the middle 80 rows.
    try Self.expect(
      [
        Case(
          name: "photo.png", variant: Variant(.png, 50, 50, fit: .cover), box: [20, 0, 140, 120]),
        Case(
          name: "photo.png", variant: Variant(.png, 80, 40, fit: .cover), box: [0, 20, 160, 100]),
        Case(
          name: "photo.png", variant: Variant(.png, 300, 300, fit: .cover), box: [20, 0, 140, 120]),
      ], atLeast: 45)
  }

  @Test("a variant is cropped at its position in the upright image", arguments: 1...8)
  func position(orientation: Int) throws {
    let name = "turned-\(orientation).png"
    let image = try Decoding(PillowJudge.source(name)).result.get()
    let stored = [Double(image.width), Double(image.height)]
    let (width, height) = orientation > 4 ? (stored[1], stored[0]) : (stored[0], stored[1])
    // Twice as wide, then twice as high as the image.
    var wide = Variant(.png, Int(width), Int(height / 2), fit: .cover)
    var high = Variant(.png, Int(width / 2), Int(height), fit: .cover)
    var cases: [Case] = []
    for (x, y) in [(0, 0), (100, 100), (25, 75)] {
      wide.position = Variant.Position(x: x, y: y)
      high.position = wide.position
      let (top, left) = (height / 2 * Double(y) / 100, width / 2 * Double(x) / 100)
      cases.append(Case(name: name, variant: wide, box: [0, top, width, top + height / 2]))
      cases.append(Case(name: name, variant: high, box: [left, 0, left + width / 2, height]))
    }
    // Pillow does not use pixels outside the crop.
    try Self.expect(cases, atLeast: 37)
  }

  @Test("a variant is upright for every orientation, pixel by pixel", arguments: 1...8)
  func orientation(value: Int) throws {
    try Self.expect([Case(name: "turned-\(value).png", variant: Variant(.png))], atLeast: 99)
    var best = Variant(.jpeg, 40, 40)
    best.quality = 100
    try Self.expect(
      [
        Case(name: "turned-\(value).png", variant: Variant(.png, 31, 40)),
        Case(name: "turned-\(value).png", variant: Variant(.png, 150, 90, fit: .fill)),
        Case(name: "turned-\(value).png", variant: best),
      ], atLeast: 38)
    try Self.expect(
      [Case(name: "turned-\(value).jpg", variant: Variant(.png, 200, 200))], atLeast: 40)
  }

  @Test("a variant has no fringes at transparent edges")
  func alpha() throws {
    let red = Variant.Color(red: 230, green: 20, blue: 90)
    for name in ["alpha.png", "interlaced-alpha.png"] {
      try Self.expect([Case(name: name, variant: Variant(.png))], atLeast: 99)
      let cases = [
        Case(name: name, variant: Variant(.png, 77)), Case(name: name, variant: Variant(.png, 150)),
        Case(name: name, variant: Variant(.png, 100, background: red)),
      ]
      try Self.expect(cases, atLeast: 42) { item, verdict in
        #expect(verdict.mode == (item.variant.background == nil ? "RGBA" : "RGB"))
        #expect(verdict.alpha ?? 0 >= 45)
      }
      try Self.expect(
        [
          Case(name: name, variant: Variant(.jpeg, 120)),
          Case(name: name, variant: Variant(.jpeg, 120, background: red)),
        ], atLeast: 27)
    }
    // Gray on a colored background is not gray.
    for background in [red, Variant.Color(red: 9, green: 9, blue: 9)] {
      let variant = Variant(.png, 40, background: background)
      try Self.expect([Case(name: "grey-alpha.png", variant: variant)], atLeast: 42) {
        #expect($1.mode == (background == red ? "RGB" : "L"))
      }
    }
  }

  @Test(
    "a variant of any PNG kind has the same pixels at its own size",
    arguments: [
      "mono.png", "grey.png", "grey-alpha.png", "grey16.png", "palette.png", "palette-2bit.png",
      "palette-transparent.png", "rgb.png", "rgb-transparent.png", "rgba.png", "rgb16.png",
      "interlaced.png", "animated.png", "srgb.png", "grey-wide.png", "broken-profile.png",
    ])
  func kinds(name: String) throws {
    // 16 bits may be rounded up or down.
    let floor = name.contains("16") ? 48.0 : 99
    try Self.expect([Case(name: name, variant: Variant(.png))], atLeast: floor)
  }

  @Test(
    "a variant applies its image's color profile",
    arguments: ["wide.png", "wide-alpha.png", "grey-gamma.png"])
  func profiles(name: String) throws {
    try Self.expect([Case(name: name, variant: Variant(.png))], atLeast: 50)
    try Self.expect([Case(name: name, variant: Variant(.png, 60))], atLeast: 40)
    // The profile must make a difference.
    var png = Rendered(PillowJudge.source(name), as: Variant(.png)).file
    let plain = Rendered(PillowJudge.source("photo.png"), as: Variant(.png)).file
    #expect(png != plain)
    png = Rendered(PillowJudge.source("srgb.png"), as: Variant(.png)).file
    #expect(png == plain)
  }

  @Test("a variant of a JPEG has its profile and its inks converted to sRGB")
  func inks() throws {
    try Self.expect([Case(name: "wide.jpg", variant: Variant(.png))], atLeast: 45)
    try Self.expect([Case(name: "wide.jpg", variant: Variant(.png, 60))], atLeast: 36)
    for name in ["inks.jpg", "inks-profile.jpg"] {
      let sizes: [Int?] = [nil, 190, 90]
      try Self.expect(sizes.map { Case(name: name, variant: Variant(.png, $0)) }, atLeast: 38)
    }
  }

  @Test(
    "a variant of a JPEG is close to Pillow's even if decoded at a reduced scale",
    arguments: ["large.jpg", "large-progressive.jpg", "large-grey.jpg"])
  func shrinking(name: String) throws {
    let widths = [1003, 700, 502, 501, 251, 250, 126, 125, 63, 62, 31, 5, 1]
    try Self.expect(widths.map { Case(name: name, variant: Variant(.png, $0)) }, atLeast: 40)
  }

  @Test(
    "a variant of any JPEG kind is close to Pillow's",
    arguments: Fixtures.known.map(\.name).filter {
      $0.hasSuffix(".jpg") && !$0.hasPrefix("flat")
    })
  func jpegKinds(name: String) throws {
    try Self.expect([Case(name: name, variant: Variant(.png))], atLeast: 40)
  }

  @Test("a variant with extreme proportions has at least one pixel per side")
  func extremes() throws {
    let cases = [
      Case(name: "dot.png", variant: Variant(.png, 9, 9)),
      Case(name: "line.png", variant: Variant(.png, 512, 512)),
      Case(name: "column.png", variant: Variant(.png, 512, 512)),
      Case(name: "line.png", variant: Variant(.png, 300, 40, fit: .fill)),
      Case(name: "column.png", variant: Variant(.png, 40, 300, fit: .fill)),
      Case(name: "line.jpg", variant: Variant(.png, 512, 512)),
      Case(
        name: "line.png", variant: Variant(.png, 40, 40, fit: .cover),
        box: [14999.5, 0, 15000.5, 1]),
      Case(
        name: "column.png", variant: Variant(.png, 5, 900, fit: .cover),
        box: [0, 14910, 1, 15090]),
    ]
    try Self.expect(cases, atLeast: 40)
  }

  @Test("a variant as a JPEG is as good as its quality requires")
  func quality() throws {
    var sizes: [Int] = []
    for (quality, floor) in [(1, 18.0), (50, 28), (80, 31), (100, 40)] {
      var variant = Variant(.jpeg, 400)
      variant.quality = quality
      try Self.expect([Case(name: "large.png", variant: variant)], atLeast: floor)
      sizes.append(Rendered(PillowJudge.source("large.png"), as: variant).file?.count ?? 0)
    }
    #expect(sizes == sizes.sorted() && Set(sizes).count == sizes.count)
  }
}
