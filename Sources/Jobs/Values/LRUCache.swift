/// A cache of values with costs. When the total cost exceeds the capacity, it evicts the least recently used
/// values.
///
/// Each operation takes constant time, plus constant time for each eviction.
package struct LRUCache<Key: Hashable & Sendable, Value: Sendable>: Sendable {
  /// An entry of the linked list, which is ordered by last use.
  private struct Node {
    var key: Key
    var value: Value
    var cost: Int
    var newer: Int?
    var older: Int?
  }

  /// The limit of the total cost.
  package let capacity: Int
  /// The total cost of all entries.
  package private(set) var cost = 0

  private var indices: [Key: Int] = [:]
  /// Nil for a free slot.
  private var nodes: [Node?] = []
  private var vacant: [Int] = []
  private var newest: Int?
  private var oldest: Int?

  package init(capacity: Int) { self.capacity = capacity }

  /// The number of entries.
  package var count: Int { indices.count }

  /// Returns the key's value without marking it as used.
  package func peek(_ key: Key) -> Value? {
    indices[key].flatMap { nodes[$0]?.value }
  }

  /// Returns the key's value and marks it as most recently used.
  package mutating func value(for key: Key) -> Value? {
    guard let index = indices[key], let node = nodes[index] else { return nil }
    if newest != index {
      unlink(index)
      link(index)
    }
    return node.value
  }

  /// Sets the key's value and marks it as most recently used.
  ///
  /// - Parameter cost: At least 1. A value whose cost exceeds the capacity is not stored, but the key's old
  ///   value is removed.
  /// - Returns: The evicted entries, least recently used first; or the new entry if it was not stored.
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

  /// Removes the least recently used entry.
  package mutating func removeOldest() -> (key: Key, value: Value)? {
    guard let oldest, let node = nodes[oldest] else { return nil }
    remove(node.key)
    return (node.key, node.value)
  }

  /// Removes the key's entry.
  /// - Returns: The removed value; nil if there was none.
  @discardableResult
  package mutating func remove(_ key: Key) -> Value? {
    guard let index = indices.removeValue(forKey: key) else { return nil }
    unlink(index)
    guard let node = nodes[index].take() else { return nil }
    vacant.append(index)
    cost -= node.cost
    return node.value
  }

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
