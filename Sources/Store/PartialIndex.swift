internal import Jobs

/// Which unfinished transfers are kept, in the order they came, within their limits.
struct PartialIndex {
  /// One kept transfer: the name of its files, and its bytes.
  struct Entry: Equatable {
    var name: String
    var bytes: Int
    fileprivate var number = 0

    init(name: String, bytes: Int) {
      self.name = name
      self.bytes = bytes
    }
  }

  private let maxBytes: Int
  private let maxCount: Int
  private var entries: [Fingerprint: Entry] = [:]
  /// Every key in the order of keeping; those that aren't kept under that number any more are passed over.
  private var line: ArraySlice<(number: Int, key: Fingerprint)> = []
  private var lastNumber = 0

  /// The bytes of all of them.
  private(set) var bytes = 0

  /// - Parameter maxCount: bounds memory and inodes where many are tiny.
  init(maxBytes: Int, maxCount: Int = 16_384) {
    self.maxBytes = maxBytes
    self.maxCount = maxCount
  }

  /// Keeps one more in the place of what was kept under its key.
  /// - Returns: the names that must go: the former one's, those of the longest kept, or the new one's own.
  mutating func keep(_ entry: Entry, for key: Fingerprint) -> [String] {
    guard entry.bytes <= maxBytes, maxCount > 0, maxBytes > 0 else { return [entry.name] }
    var gone = take(key).map { [$0.name] } ?? []
    lastNumber += 1
    var entry = entry
    entry.number = lastNumber
    entries[key] = entry
    line.append((entry.number, key))
    bytes += entry.bytes
    while bytes > maxBytes || entries.count > maxCount, let oldest = takeOldest() {
      gone.append(oldest.name)
    }
    compact()
    return gone
  }

  /// Whether something is kept under a key.
  func holds(_ key: Fingerprint) -> Bool { entries[key] != nil }

  /// Hands over what is kept under a key: it is so no longer.
  mutating func take(_ key: Fingerprint) -> Entry? {
    guard let entry = entries.removeValue(forKey: key) else { return nil }
    bytes -= entry.bytes
    return entry
  }

  private mutating func takeOldest() -> Entry? {
    while let (number, key) = line.popFirst() {
      if entries[key]?.number == number { return take(key) }
    }
    return nil
  }

  private mutating func compact() {
    guard line.count > 2 * entries.count + 64 else { return }
    line = line.filter { entries[$0.key]?.number == $0.number }[...]
  }
}
