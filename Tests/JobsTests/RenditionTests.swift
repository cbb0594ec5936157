import TestSupport
import Testing

@testable import Jobs

@Suite("A rendition")
struct RenditionTests {
  private static func rendition(
    _ format: OutputFormat = .jpeg, alpha: Bool = false, orientation: Int = 1, digest: UInt8 = 1,
    _ ask: (inout Variant) -> Void = { _ in }
  ) -> Rendition {
    var description = ImageDescription(format: .png, width: 400, height: 300)
    description.hasAlpha = alpha
    description.orientation = orientation
    let image = StoredImage(
      description: description, digest: ImageDigest(bytes: [UInt8](repeating: digest, count: 32))!,
      bytes: 10, url: nil, variant: .regular, modifiedAt: Timestamp(milliseconds: 0))
    var variant = Variant(format: format)
    ask(&variant)
    return Rendition(of: image, as: variant, by: FakeRenderer())
  }

  private static let equal: [(String, [Rendition])] = [
    (
      "jpeg",
      [
        rendition(), rendition { $0.width = 400 }, rendition { $0.width = 9_999 },
        rendition { ($0.width, $0.height) = (400, 9_999) },
        rendition { ($0.width, $0.height, $0.fit) = (400, 300, .cover) },
        rendition { ($0.width, $0.height, $0.fit) = (400, 300, .fill) },
        rendition { $0.background = .init(red: 1, green: 2, blue: 3) },
      ]
    ),
    (
      "jpeg 100x75 fill",
      [
        rendition { $0.width = 100 }, rendition { $0.height = 75 },
        rendition { ($0.width, $0.height) = (100, 75) },
        rendition { ($0.width, $0.height) = (100, 200) },
        rendition { ($0.width, $0.height, $0.fit) = (100, 200, .scaleDown) },
        rendition { ($0.width, $0.fit) = (100, .fill) },
        rendition { ($0.width, $0.height, $0.fit) = (100, 75, .cover) },
      ]
    ),
    ("jpeg 100x100 cover", [rendition { ($0.width, $0.height, $0.fit) = (100, 100, .cover) }]),
    ("jpeg 100x100 fill", [rendition { ($0.width, $0.height, $0.fit) = (100, 100, .fill) }]),
    ("jpeg 800x600 fill", [rendition { ($0.width, $0.height, $0.fit) = (800, 600, .cover) }]),
    ("jpeg 75x100 fill", [rendition(orientation: 6) { $0.width = 75 }]),
    ("png", [rendition(.png), rendition(.png) { $0.quality = 7 }, rendition(.png, alpha: true)]),
    ("jpeg q7", [rendition { $0.quality = 7 }]),
    ("webp q7", [rendition(.webp) { $0.quality = 7 }]),
    (
      "jpeg #ffffff",
      [
        rendition(alpha: true),
        rendition(alpha: true) { $0.background = .init(red: 255, green: 255, blue: 255) },
      ]
    ),
    (
      "webp q80 #0a0b0c",
      [
        rendition(.webp, alpha: true) {
          ($0.quality, $0.background) = (80, .init(red: 10, green: 11, blue: 12))
        }
      ]
    ),
  ]

  @Test("requests with equal results have equal renditions", arguments: equal)
  func normalised(name: String, renditions: [Rendition]) {
    for rendition in renditions { #expect(rendition.variant.name == name) }
  }

  @Test("the options of a rendition resolve to the same rendition", arguments: equal)
  func settled(name: String, renditions: [Rendition]) {
    for rendition in renditions {
      guard case .image(let image) = rendition.source else {
        Issue.record("the source is not an image")
        continue
      }
      let again = Rendition(of: image, as: rendition.variant, by: FakeRenderer())
      #expect(again == rendition)
    }
  }

  @Test("different renditions have different IDs")
  func distinct() throws {
    let all = Self.equal.compactMap(\.1.first) + [Self.rendition(digest: 2)]
    #expect(Set(all.map(\.id)).count == all.count)
    let keys = Set(all.map(\.id.key))
    #expect(keys.count == 2, "one key for each image")
  }

  @Test("the ID of a rendition is the same in every process")
  func lasting() {
    // If this value changes, `Rendition.recipe` must be increased too.
    #expect(Rendition.recipe == 2)
    #expect(
      Self.rendition { $0.width = 100 }.digest.hex
        == "eba5cea07d9964d03d9ce6944b994a403015caadb54f47e408ebef0dc2cc2fe8")
  }

  @Test("a rendition has the size of its result")
  func size() {
    let rendition = Self.rendition(orientation: 8) { $0.height = 200 }
    #expect(rendition.width == 150)
    #expect(rendition.height == 200)
  }
}
