public import Jobs

/// An entry, and when it came and was last used.
struct CachedEntry {
  var entry: CacheEntry
  var stored: Timestamp
  var used: Timestamp
  /// Its place among those stored.
  var number: Int

  /// Whether it gives way before the other.
  static func < (a: CachedEntry, b: CachedEntry) -> Bool { (a.used, a.number) < (b.used, b.number) }
}

extension MemoryJobStore: CacheStore {
  public func entries(for keys: [Fingerprint]) async throws(StoreError) -> [[CacheEntry]] {
    try mayFail()
    return keys.map { key in
      cache.values.filter { $0.entry.id.key == key }.sorted { $0.number < $1.number }.map(\.entry)
    }
  }

  public func replace(_ entry: CacheEntry) async throws(StoreError) {
    try mayFail()
    guard cache[entry.id]?.entry.image.digest == entry.image.digest else { return }
    cache[entry.id]?.entry = entry
  }

  public func touch(_ uses: [CacheEntry.ID: Timestamp]) async throws(StoreError) {
    try mayFail()
    for (id, moment) in uses {
      latest = max(latest, moment)
      if let used = cache[id]?.used { cache[id]?.used = max(used, moment) }
    }
  }

  public func drop(_ ids: [CacheEntry.ID]) async throws(StoreError) {
    try mayFail()
    for id in ids { cache[id] = nil }
  }

  public func drop(key: Fingerprint) async throws(StoreError) -> Int {
    try mayFail()
    let before = cache.count
    cache = cache.filter { $0.key.key != key }
    return before - cache.count
  }

  public func clear() async throws(StoreError) -> Int {
    try mayFail()
    defer { cache = [:] }
    return cache.count
  }

  public func cacheCounts() async throws(StoreError) -> (entries: Int, bytes: Int) {
    (cache.count, cachedBytes)
  }

  /// Stores an entry in the place of the one of the same id, if it is small enough and its image is kept.
  func keep(_ entry: CacheEntry, within limit: Int) {
    cache[entry.id] = nil
    guard entry.image.bytes <= limit, sizes[entry.image.digest] != nil else { return }
    evict(downTo: limit - entry.image.bytes)
    lastEntry += 1
    cache[entry.id] = CachedEntry(entry: entry, stored: now, used: now, number: lastEntry)
  }

  /// Lets the least recently used entries go until the others fit.
  func evict(downTo limit: Int) {
    while cachedBytes > limit, let last = cache.min(by: { $0.value < $1.value }) {
      cache[last.key] = nil
    }
  }

  private var cachedBytes: Int { cache.values.map(\.entry.image.bytes).reduce(0, +) }
}
