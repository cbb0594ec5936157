package import Jobs

/// A cache entry, with the times when it was stored and last used.
struct CachedEntry {
  /// Responses and variants.
  enum Content {
    case response(CacheEntry)
    case variant(StoredVariant)
  }
  var content: Content
  var stored: Timestamp
  var used: Timestamp
  /// The order in which it was stored.
  var number: Int

  var response: CacheEntry? { if case .response(let entry) = content { entry } else { nil } }
  var variant: StoredVariant? { if case .variant(let variant) = content { variant } else { nil } }

  var image: (digest: ImageDigest, bytes: Int) {
    switch content {
    case .response(let entry): (entry.image.digest, entry.image.bytes)
    case .variant(let variant): (variant.digest, variant.bytes)
    }
  }

  /// Whether it is evicted before the other entry.
  static func < (a: CachedEntry, b: CachedEntry) -> Bool { (a.used, a.number) < (b.used, b.number) }
}

extension MemoryJobStore: CacheStore {
  package func entries(for keys: [Fingerprint]) async throws(StoreError) -> [[CacheEntry]] {
    try await mayFail(.cache)
    return keys.map { key in
      cache.filter { $0.key.key == key }.values.sorted { $0.number < $1.number }
        .compactMap(\.response)
    }
  }

  package func touch(_ uses: [CacheEntry.ID: Timestamp]) async throws(StoreError) {
    try await mayFail()
    for (id, moment) in uses {
      if let used = cache[id]?.used { cache[id]?.used = max(used, moment) }
    }
  }

  package func delete(_ ids: [CacheEntry.ID]) async throws(StoreError) {
    try await mayFail()
    for id in ids { cache[id] = nil }
  }

  package func delete(keys: [Fingerprint]) async throws(StoreError) -> Int {
    try await mayFail()
    let before = cache.count
    cache = cache.filter { !keys.contains($0.key.key) }
    return before - cache.count
  }

  func drop(_ image: CachedImage) {
    cache = cache.filter { id, entry in
      id.key != image.variants
        && !(image.keys.contains(id.key) && entry.image.digest == image.digest)
    }
  }

  package func delete(
    resource: Fingerprint, count: Int
  ) async throws(StoreError) -> [ImageDigest] {
    try await mayFail()
    let fitting = cache.filter { id, entry in
      id.key == resource || entry.response?.resource == resource
    }
    let gone = fitting.sorted { $0.value.number < $1.value.number }.prefix(count)
    for (id, _) in gone { cache[id] = nil }
    return gone.map(\.value.image.digest)
  }

  package func clear() async throws(StoreError) -> Int {
    try await mayFail()
    defer { cache = [:] }
    return cache.count
  }

  package func cacheCounts() async throws(StoreError) -> (entries: Int, bytes: Int) {
    (cache.count, cachedBytes)
  }

  package func variant(_ id: CacheEntry.ID) async throws(StoreError) -> StoredVariant? {
    try await mayFail()
    return cache[id]?.variant
  }

  package func save(
    _ variant: StoredVariant, within limit: Int, releasing holder: JobID,
    lastUse: @escaping CacheEntry.LastUse
  ) async throws(StoreError) {
    try await mayFail()
    keep(.variant(variant), as: variant.id, within: limit, lastUse)
    reservations[holder] = nil
  }

  /// Stores an entry, replacing one with the same id, if it is small enough and its image is stored.
  func keep(
    _ content: CachedEntry.Content, as id: CacheEntry.ID, within limit: Int,
    _ lastUse: CacheEntry.LastUse
  ) {
    cache[id] = nil
    let new = CachedEntry(content: content, stored: now, used: now, number: lastEntry + 1)
    guard new.image.bytes <= limit, sizes[new.image.digest] != nil else { return }
    lastEntry += 1
    cache[id] = new
    if new.response != nil { dropOldest(of: id.key) }
    evict(downTo: limit, sparing: id, lastUse)
  }

  private func dropOldest(of key: Fingerprint) {
    let entries = cache.filter { $0.key.key == key }.sorted { $0.value.number > $1.value.number }
    for (id, _) in entries.dropFirst(CacheEntry.maxOfKey) { cache[id] = nil }
  }

  /// Evicts the least recently used entries until the others fit.
  func evict(downTo limit: Int, sparing spared: CacheEntry.ID? = nil, _ lastUse: CacheEntry.LastUse)
  {
    while cachedBytes > limit,
      let last = cache.filter({ $0.key != spared }).min(by: { $0.value < $1.value })
    {
      if let moment = lastUse(last.key), moment > last.value.used {
        cache[last.key]?.used = moment
      } else {
        cache[last.key] = nil
      }
    }
  }

  private var cachedBytes: Int {
    let sizes = cache.values.map { ($0.image.digest, $0.image.bytes) }
    return Dictionary(sizes) { $1 }.values.reduce(0, +)
  }
}
