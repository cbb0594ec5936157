import Jobs
import Testing

/// Compares each text that lists image formats with the table of `ImageFormat`. A failure names the file and what is
/// missing in it.
@Suite("Lists of image formats")
struct FormatListTests {
  private static let phrases: [(path: String, phrase: String)] = [
    ("README.md", "completely** (\(ImageFormat.usual.phrase))"),
    (
      "docs/formats.md",
      "**Read:** \(ImageFormat.usual.phrase); \(ImageFormat.optional.phrase) if `decode.formats`"
    ),
    ("docs/formats.md", "\(ImageFormat.needingIsolation.phrase) need the sandbox"),
    ("openapi.yaml", "The detected format: \(ticked). Later versions"),
  ]

  private static var ticked: String {
    let names = ImageFormat.allCases.map { "`\($0.rawValue)`" }
    return names.dropLast().joined(separator: ", ") + " or " + names[names.count - 1]
  }

  @Test("a text lists the formats of the table", arguments: phrases.indices)
  func phrase(index: Int) {
    let (path, phrase) = Self.phrases[index]
    let text = Readme.file(path).replacing(#/\s+/#, with: " ")
    #expect(text.contains(phrase), "\(path) does not say: \(phrase)")
  }

  @Test(
    "each format has a row in the tables of formats and of steps", arguments: ImageFormat.allCases)
  func rows(format: ImageFormat) {
    for (page, section) in [
      (Documentation.formats, "Validation"), (Documentation.limits, "Decoding steps"),
    ] {
      let names = page.table(section).compactMap(\.first).flatMap { $0.split(separator: ", ") }
      #expect(names.contains(format.name[...]), "\(page.path): \(section) lacks \(format.name)")
    }
  }

  @Test("each response with an image has the media type of each format")
  func responses() {
    let lines = Readme.file("openapi.yaml").split(separator: "\n")
    let schema = "{ schema: { $ref: '#/components/schemas/ImageBytes' } }"
    func responses(with type: String) -> Int {
      lines.count { $0.hasSuffix(" \(type): \(schema)") }
    }
    let expected = responses(with: "application/octet-stream")
    #expect(expected > 0)
    for type in ImageFormat.allCases.map(\.contentType) {
      #expect(responses(with: type) == expected, "openapi.yaml: responses with \(type)")
    }
  }
}
