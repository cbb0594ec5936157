/// Values under keys: once their costs exceed a capacity, the least recently used go.
///
/// Each operation takes constant time, but for evictions, each of which was an insertion before.
package struct LRUCache<Key: Hashable & Sendable, Value: Sendable>: Sendable {
  /// An entry between the one that was used after it and the one that was used before it.
  private struct Node {
    var key: Key
    var value: Value
    var cost: Int
    var newer: Int?
    var older: Int?
  }

  /// What the costs of all entries may come to.
  package let capacity: Int
  /// What they come to.
  package private(set) var cost = 0

  private var indices: [Key: Int] = [:]
  /// Nil where an entry was.
  private var nodes: [Node?] = []
  private var vacant: [Int] = []
  private var newest: Int?
  private var oldest: Int?

  /// An empty one.
  package init(capacity: Int) { self.capacity = capacity }

  /// How many entries there are.
  package var count: Int { indices.count }

  /// The key's value, without counting as a use of it.
  package func peek(_ key: Key) -> Value? {
    indices[key].flatMap { nodes[$0]?.value }
  }

  /// The key's value, which from now on is the most recently used.
  package mutating func value(for key: Key) -> Value? {
    guard let index = indices[key], let node = nodes[index] else { return nil }
    if newest != index {
      unlink(index)
      link(index)
    }
    return node.value
  }

  /// Sets a value in the place of the key's former one, as the most recently used.
  ///
  /// - Parameter cost: of at least 1. One above the capacity is not taken, and the former one goes all the same.
  /// - Returns: what went because the capacity was exceeded, the least recently used first; the new one, where it was
  ///   not taken.
  @discardableResult
  package mutating func set(
    _ value: Value, for key: Key, cost added: Int = 1
  ) -> [(key: Key, value: Value)] {
    remove(key)
    guard added <= capacity else { return [(key, value)] }
    let index = vacant.popLast() ?? nodes.count
    if index == nodes.count { nodes.append(nil) }
    nodes[index] = Node(key: key, value: value, cost: added)
    indices[key] = index
    cost += added
    link(index)
    var evicted: [(key: Key, value: Value)] = []
    while cost > capacity, let oldest = removeOldest() { evicted.append(oldest) }
    return evicted
  }

  /// Removes the least recently used one.
  package mutating func removeOldest() -> (key: Key, value: Value)? {
    guard let oldest, let node = nodes[oldest] else { return nil }
    remove(node.key)
    return (node.key, node.value)
  }

  /// Removes a key.
  /// - Returns: the value that it had.
  @discardableResult
  package mutating func remove(_ key: Key) -> Value? {
    guard let index = indices.removeValue(forKey: key) else { return nil }
    unlink(index)
    guard let node = nodes[index].take() else { return nil }
    vacant.append(index)
    cost -= node.cost
    return node.value
  }

  /// Removes all entries.
  package mutating func removeAll() { self = LRUCache(capacity: capacity) }

  private mutating func link(_ index: Int) {
    nodes[index]?.older = newest
    nodes[index]?.newer = nil
    if let newest { nodes[newest]?.newer = index }
    newest = index
    oldest = oldest ?? index
  }

  private mutating func unlink(_ index: Int) {
    guard let node = nodes[index] else { return }
    if let newer = node.newer { nodes[newer]?.older = node.older } else { newest = node.older }
    if let older = node.older { nodes[older]?.newer = node.newer } else { oldest = node.newer }
  }
}
