internal import Jobs

/// The values that were used last, in two generations: when the younger is full the older is dropped.
struct RecentValues<Key: Hashable & Sendable, Value: Sendable>: Sendable {
  private var young: [Key: Value] = [:]
  private var old: [Key: Value] = [:]
  private let capacity: Int

  /// - Parameter capacity: values that are held at the least; up to twice as many.
  init(capacity: Int) { self.capacity = max(1, capacity) }

  var count: Int { young.count + old.count }

  /// The value, which is the youngest from now on.
  mutating func value(for key: Key) -> Value? {
    if let value = young[key] { return value }
    guard let value = old.removeValue(forKey: key) else { return nil }
    set(value, for: key)
    return value
  }

  mutating func set(_ value: Value, for key: Key) {
    old[key] = nil
    young[key] = value
    guard young.count >= capacity else { return }
    old = young
    young = [:]
  }

  mutating func removeAll() {
    young = [:]
    old = [:]
  }
}
