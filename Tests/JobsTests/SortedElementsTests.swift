import TestSupport
import Testing

@testable import Jobs

@Suite("A sorted set in chunks")
struct SortedElementsTests {
  @Test("elements stay in order, whatever is inserted and removed", arguments: 1...4)
  func sorted(seed: UInt64) {
    var random = SeededNumbers(state: seed)
    var (elements, model) = (SortedElements<Int>(), Set<Int>())
    for _ in 0..<5_000 {
      let element = Int.random(in: 0..<700, using: &random)
      if model.insert(element).inserted {
        elements.insert(element)
      } else if Bool.random(using: &random) {
        elements.remove(element)
        model.remove(element)
      }
      elements.remove(700 + element)
    }
    #expect(Array(elements.ascending) == model.sorted())
    #expect(Array(elements.descending) == model.sorted(by: >))
    #expect(elements.last == model.max())
    for element in model { elements.remove(element) }
    #expect(elements.isEmpty)
  }
}
