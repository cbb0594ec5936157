internal import Jobs

/// An index of the stored partial transfers, in order of insertion, with limits on their bytes and
/// number.
struct PartialIndex {
  /// One transfer: the name of its files, and its size in bytes.
  struct Entry: Equatable {
    var name: String
    var bytes: Int
  }

  private let maxCount: Int
  private var entries: LRUCache<Fingerprint, Entry>

  /// The size in bytes of all transfers.
  var bytes: Int { entries.cost }

  /// - Parameter maxCount: limits memory and inodes if many transfers are tiny.
  init(maxBytes: Int, maxCount: Int = 16_384) {
    self.maxCount = maxCount
    entries = LRUCache(capacity: maxBytes)
  }

  /// Adds a transfer and replaces the one under the same key.
  /// - Returns: the names of the transfers to delete: the replaced one, the oldest ones beyond the
  ///   limits, or the new one if it is too large.
  mutating func insert(_ entry: Entry, for key: Fingerprint) -> [String] {
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

  /// Returns whether a transfer is stored under a key.
  func contains(_ key: Fingerprint) -> Bool { entries.peek(key) != nil }

  /// Removes and returns the transfer stored under a key.
  mutating func remove(_ key: Fingerprint) -> Entry? { entries.remove(key) }
}
