import Jobs
import TestSupport
import Testing

@Suite("A built-in placeholder")
struct PlaceholderTests {
  @Test(
    "a built-in placeholder has the format and size of its description",
    arguments: Placeholder.allCases)
  func described(placeholder: Placeholder) throws {
    let image = PlaceholderImage.builtIn(for: placeholder)
    let decoded = try Decoding(image.bytes).result.get()
    let facts = image.description
    #expect(decoded.format == facts.format && decoded.hasAlpha == facts.hasAlpha)
    #expect([decoded.width, decoded.height] == [facts.width, facts.height])
  }

  @Test("each kind has an image of its own")
  func kinds() {
    #expect(PlaceholderImage.builtIn(for: .loading) != .builtIn(for: .failure))
  }
}
