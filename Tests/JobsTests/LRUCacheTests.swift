import Testing

@testable import Jobs

@Suite("An LRU cache")
struct LRUCacheTests {
  /// A simple model of the cache: an array with the most recently used entry last.
  private struct Model {
    var capacity: Int
    var entries: [(key: Int, value: Int, cost: Int)] = []
    var cost: Int { entries.reduce(0) { $0 + $1.cost } }

    mutating func use(_ key: Int) -> Int? {
      guard let index = entries.firstIndex(where: { $0.key == key }) else { return nil }
      entries.append(entries.remove(at: index))
      return entries.last?.value
    }

    mutating func set(_ value: Int, for key: Int, cost: Int) -> [Int] {
      entries.removeAll { $0.key == key }
      guard cost <= capacity else { return [value] }
      entries.append((key, value, cost))
      var evicted: [Int] = []
      while self.cost > capacity { evicted.append(entries.removeFirst().value) }
      return evicted
    }
  }

  @Test("the cache behaves like its model for random operations", arguments: [0, 1, 2, 7, 40])
  func model(capacity: Int) {
    var random = SystemRandomNumberGenerator()
    var cache = LRUCache<Int, Int>(capacity: capacity)
    var model = Model(capacity: capacity)
    for step in 0..<20_000 {
      let key = Int.random(in: 0..<24, using: &random)
      switch Int.random(in: 0..<10, using: &random) {
      case 0:
        let removed = cache.remove(key)
        #expect(removed == model.entries.first { $0.key == key }?.value)
        model.entries.removeAll { $0.key == key }
      case 1:
        let oldest = cache.removeOldest()
        #expect(oldest?.value == model.entries.first?.value)
        if !model.entries.isEmpty { model.entries.removeFirst() }
      case 2 where step.isMultiple(of: 97):
        cache.removeAll()
        model.entries = []
      case 2...5:
        let cost = Int.random(in: 1...5, using: &random)
        let evicted = cache.set(step, for: key, cost: cost).map(\.value)
        #expect(evicted == model.set(step, for: key, cost: cost))
      default:
        #expect(cache.peek(key) == model.entries.first { $0.key == key }?.value)
        let value = cache.value(for: key)
        #expect(value == model.use(key))
      }
      #expect(cache.count == model.entries.count && cache.cost == model.cost)
    }
  }

  @Test("the cache keeps a value that is used often, and never exceeds its capacity")
  func recent() {
    var cache = LRUCache<Int, Int>(capacity: 10)
    for key in 0..<1_000 {
      cache.set(-key, for: key)
      let first = cache.value(for: 0)
      #expect(first == 0, "the key is used often")
      #expect(cache.count <= 10)
      for younger in max(0, key - 4)...key { #expect(cache.peek(younger) == -younger) }
    }
    #expect(cache.peek(500) == nil)
  }
}
