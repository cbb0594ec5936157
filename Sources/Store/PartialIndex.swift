internal import Jobs

/// Which unfinished transfers are kept, in the order they came, within their limits.
struct PartialIndex {
  /// One kept transfer: the name of its files, and its bytes.
  struct Entry: Equatable {
    var name: String
    var bytes: Int
  }

  private let maxCount: Int
  private var entries: LRUCache<Fingerprint, Entry>

  /// The bytes of all of them.
  var bytes: Int { entries.cost }

  /// - Parameter maxCount: bounds memory and inodes where many are tiny.
  init(maxBytes: Int, maxCount: Int = 16_384) {
    self.maxCount = maxCount
    entries = LRUCache(capacity: maxBytes)
  }

  /// Keeps one more in the place of what was kept under its key.
  /// - Returns: the names that must go: the former one's, those of the longest kept, or the new one's own.
  mutating func keep(_ entry: Entry, for key: Fingerprint) -> [String] {
    guard entry.bytes <= entries.capacity, maxCount > 0, entries.capacity > 0 else {
      return [entry.name]
    }
    var gone = entries.remove(key).map { [$0.name] } ?? []
    gone += entries.set(entry, for: key, cost: entry.bytes).map(\.value.name)
    while entries.count > maxCount, let oldest = entries.removeOldest() {
      gone.append(oldest.value.name)
    }
    return gone
  }

  /// Whether something is kept under a key.
  func holds(_ key: Fingerprint) -> Bool { entries.peek(key) != nil }

  /// Hands over what is kept under a key: it is so no longer.
  mutating func take(_ key: Fingerprint) -> Entry? { entries.remove(key) }
}
