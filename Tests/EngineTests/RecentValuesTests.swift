import Testing

@testable import Engine
@testable import Jobs

@Suite("Recent values")
struct RecentValuesTests {
  @Test("are those that were used last, and never more than twice as many as said")
  func recent() {
    var values = RecentValues<Int, Int>(capacity: 10)
    for key in 0..<1_000 {
      values.set(-key, for: key)
      #expect(values.value(for: 0) == 0, "it is used again and again")
      #expect(values.count <= 20)
      for younger in max(0, key - 4)...key { #expect(values.value(for: younger) == -younger) }
    }
    #expect(values.value(for: 500) == nil)
  }

  @Test("are replaced and removed")
  func removed() {
    var values = RecentValues<String, Int>(capacity: 2)
    for (key, value) in [("a", 1), ("b", 2), ("c", 3), ("a", 4)] { values.set(value, for: key) }
    #expect(values.value(for: "a") == 4 && values.value(for: "c") == 3)
    values.removeAll()
    #expect(values.value(for: "a") == nil)
    #expect(values.count == 0)
  }
}
