package import Jobs
internal import Logging

/// A variant to store in the cache.
struct SaveVariantRequest: Sendable {
  var row: CacheRow
  /// The job whose reservation of the image is released in the same transaction.
  var holder: JobID
  var lastUse: CacheEntry.LastUse
}

/// The cache index. It is in the same database as the jobs because both refer to images.
extension SQLJobStore: CacheStore {
  /// All queries see the same snapshot.
  package func entries(for keys: [Fingerprint]) async throws(StoreError) -> [[CacheEntry]] {
    guard !keys.isEmpty else { return [] }
    return try await read { [log] transaction in
      let rows = try transaction.execute(
        "SELECT key, selector, record FROM cache WHERE key = ANY ($1) ORDER BY number",
        [.byteStrings(keys.map(\.bytes))])
      var found: [Fingerprint: [CacheEntry]] = [:]
      for row in rows.all {
        guard let entry = Self.entry(rows, row, log) else { continue }
        found[entry.id.key, default: []].append(entry)
      }
      return keys.map { found[$0] ?? [] }
    }
  }

  /// Skips an unreadable entry, because the origin can be asked instead. Variants have no response
  /// record and are skipped too.
  private static func entry(_ rows: Rows, _ row: Int, _ log: Logger) -> CacheEntry? {
    do {
      guard let key = Fingerprint(bytes: rows.bytes(row, 0) ?? []),
        let selector = Fingerprint(bytes: rows.bytes(row, 1) ?? [])
      else { throw StoreError.unreadable(detail: "a cache entry has no valid key") }
      var entry = try StoredJSON.decode(CacheEntry.self, from: rows.bytes(row, 2) ?? [])
      entry.id = CacheEntry.ID(key: key, selector: selector)
      return entry
    } catch {
      log.error("skipping unreadable cache entry", metadata: ["error": "\(error)"])
      return nil
    }
  }

  /// Updates the times when entries were last used; a time never moves backwards.
  package func touch(_ uses: [CacheEntry.ID: Timestamp]) async throws(StoreError) {
    guard !uses.isEmpty else { return }
    let uses = uses.sorted {
      $0.key.key.bytes.lexicographicallyPrecedes($1.key.key.bytes)
    }
    try await write(isSynced: false) { transaction in
      _ = try transaction.execute(
        """
        UPDATE cache SET used = n.used FROM unnest($1, $2, $3) AS n (key, selector, used)
        WHERE cache.key = n.key AND cache.selector = n.selector AND cache.used < n.used
        """,
        [
          .byteStrings(uses.map(\.key.key.bytes)), .byteStrings(uses.map(\.key.selector.bytes)),
          .ints(uses.map(\.value.milliseconds)),
        ])
    }
  }

  /// Deletes entries; their images become candidates for deletion if nothing else refers to them.
  package func delete(_ ids: [CacheEntry.ID]) async throws(StoreError) {
    guard !ids.isEmpty else { return }
    try await write { try $0.deleteEntries(ids) }
  }

  /// Deletes all entries under these keys in one transaction.
  package func delete(keys: [Fingerprint]) async throws(StoreError) -> Int {
    guard !keys.isEmpty else { return 0 }
    return try await write {
      try $0.deleteEntries(where: "key = ANY ($1)", [.byteStrings(keys.map(\.bytes))]).count
    }
  }

  /// Deletes up to `count` entries in one transaction.
  package func delete(
    resource: Fingerprint, count: Int
  ) async throws(StoreError) -> [ImageDigest] {
    try await write {
      try $0.deleteEntries(
        where: """
          number IN (SELECT number FROM cache WHERE key = $1
            UNION ALL SELECT number FROM cache WHERE resource = $1 LIMIT $2)
          """, [.bytes(resource.bytes), .int(Int64(count))])
    }
  }

  /// Deletes the entries that exist now, 500 per transaction, so that other writers do not wait
  /// long.
  package func clear() async throws(StoreError) -> Int {
    let last = try await read { try $0.execute("SELECT max(number) FROM cache").int(0, 0) }
    guard let last else { return 0 }
    var count = 0
    while true {
      let dropped = try await write {
        try $0.deleteEntries(
          where: "number IN (SELECT number FROM cache WHERE number <= $1 LIMIT 500)", [.int(last)]
        ).count
      }
      count += dropped
      if dropped == 0 { return count }
    }
  }

  package func variant(_ id: CacheEntry.ID) async throws(StoreError) -> StoredVariant? {
    try await read { transaction in
      let rows = try transaction.execute(
        "SELECT record, digest, bytes FROM cache WHERE key = $1 AND selector = $2",
        [.bytes(id.key.bytes), .bytes(id.selector.bytes)])
      guard let digest = rows.digest(0, 1), let bytes = rows.int(0, 2) else { return nil }
      let name = String(decoding: rows.bytes(0, 0) ?? [], as: UTF8.self)
      return StoredVariant(id: id, name: name, digest: digest, bytes: Int(bytes))
    }
  }

  /// Stores a variant and releases the reservation of its image, in one transaction together with
  /// other queued requests.
  package func save(
    _ variant: StoredVariant, within limit: Int, releasing holder: JobID,
    lastUse: @escaping CacheEntry.LastUse
  ) async throws(StoreError) {
    let request = SaveVariantRequest(
      row: CacheRow(variant, limit: limit), holder: holder, lastUse: lastUse)
    _ = try await writing.perform(.keep(request))
  }

  /// Reads the counters.
  package func cacheCounts() async throws(StoreError) -> (entries: Int, bytes: Int) {
    try await read { transaction in
      let totals = try transaction.totals()
      return (totals[.entries], totals[.entryBytes])
    }
  }
}

extension Transaction {
  /// Stores variants with a fixed number of statements, as long as nothing has to be evicted.
  func saveVariants(_ requests: [SaveVariantRequest]) throws {
    guard !requests.isEmpty else { return }
    // If several requests have the same name, the last one wins.
    let rows = Array(Dictionary(requests.map { ($0.row.id, $0.row) }) { $1 }.values)
    let known = try lockForReferences(Set(rows.map(\.digest)), toCount: true)
    let totals = try totals()
    try saveEntries(rows, storing: CacheRow.latest(of: rows) { known[$0] == false })
    // Same result as storing them one after the other: the last one stays.
    for request in requests.reversed() {
      let row = request.row
      guard known[row.digest] == false, row.bytes <= row.limit else { continue }
      try trimCache(to: row.limit, sparing: row.id, totals, lastUse: request.lastUse)
    }
    try addDeletionCandidates(deleteReservations(of: requests.map(\.holder)))
  }
}

/// A cache entry to store: a response or a variant.
struct CacheRow: Sendable {
  let id: CacheEntry.ID
  /// ``CacheEntry/resource`` if it differs from the key.
  let resource: [UInt8]?
  let digest: [UInt8]
  let bytes: Int
  /// A response as JSON. For a variant only its name, for display: the other columns contain the
  /// rest.
  let record: [UInt8]
  /// The limit for all entries' images. An image that is larger is not stored.
  let limit: Int
  /// Whether it is a response. Responses of one key are searched together; variants are not.
  let isResponse: Bool

  init(_ entry: CacheEntry, limit: Int) throws {
    (id, digest, bytes) = (entry.id, entry.image.digest.bytes, entry.image.bytes)
    resource = entry.resource == entry.id.key ? nil : entry.resource.bytes
    record = try StoredJSON.encode(entry)
    self.limit = limit
    isResponse = true
  }

  init(_ variant: StoredVariant, limit: Int) {
    (id, digest, bytes) = (variant.id, variant.digest.bytes, variant.bytes)
    resource = nil
    record = Array(variant.name.utf8)
    self.limit = limit
    isResponse = false
  }
}

extension CacheRow {
  /// The rows to store, in the order of their images. If several have the same id, the last one wins.
  /// - Parameter isStored: whether the entry's image is stored.
  static func latest(of rows: [CacheRow], isStored: ([UInt8]) -> Bool) -> [CacheRow] {
    Dictionary(rows.map { ($0.id, $0) }) { $1 }.values
      .filter { $0.bytes <= $0.limit && isStored($0.digest) }
      .sorted { $0.digest.lexicographicallyPrecedes($1.digest) }
  }
}

/// Cache entries. All changes go through these functions, so that references to images and counters
/// stay consistent.
extension Transaction {
  /// Stores entries. An existing entry with the same id as one of the rows is deleted even if the new one is not
  /// stored, because it is outdated.
  /// - Parameters:
  ///   - new: the rows to store, see ``CacheRow/latest(of:isStored:)``.
  ///   - counted: images whose rows count these entries already.
  func saveEntries(_ rows: [CacheRow], storing new: [CacheRow], counted: Set<[UInt8]> = []) throws {
    guard !rows.isEmpty else { return }
    try deleteReplacedEntries(for: Array(Dictionary(rows.map { ($0.id, $0) }) { $1 }.values))
    guard !new.isEmpty else { return }
    try add(
      """
      INSERT INTO cache (key, selector, digest, bytes, stored, used, record, resource, owner)
      SELECT key, selector, digest, bytes, moment($1), moment($1), record, resource,
        (SELECT nullif(i.owner, $8) FROM images i WHERE i.digest = n.digest)
      FROM unnest($2, $3, $4, $5, $6, $7) AS n (key, selector, digest, bytes, record, resource)
      """,
      [
        moment, .byteStrings(new.map(\.id.key.bytes)), .byteStrings(new.map(\.id.selector.bytes)),
        .byteStrings(new.map(\.digest)), .ints(new.map { Int64($0.bytes) }),
        .byteStrings(new.map(\.record)), .byteStrings(new.map(\.resource)),
        .bytes(Image.ofSeveral),
      ])
    tallies[.entries] += new.count
    tallies[.recordBytes] += new.reduce(0) { $0 + $1.record.count }
    let uncounted = new.filter { !counted.contains($0.digest) }
    try countEntries(Dictionary(uncounted.map { ($0.digest, 1) }, uniquingKeysWith: +))
  }

  /// Deletes the entries that are replaced, and the oldest responses of a key beyond the limit, up to 256, so that
  /// other transactions do not wait long.
  private func deleteReplacedEntries(for rows: [CacheRow]) throws {
    let ids = Set(rows.map(\.id))
    let variants = rows.filter { !$0.isResponse }.map(\.id)
    var numbers: [Int64] = []
    if !variants.isEmpty {
      let found = try execute(
        """
        SELECT c.number FROM unnest($1, $2) AS n (key, selector)
        JOIN cache c ON c.key = n.key AND c.selector = n.selector
        """,
        [.byteStrings(variants.map(\.key.bytes)), .byteStrings(variants.map(\.selector.bytes))])
      numbers += found.all.compactMap { found.int($0, 0) }
    }
    // The number of responses under each key that stay.
    var kept: [Fingerprint: Int] = [:]
    for row in rows where row.isResponse { kept[row.id.key, default: 0] += 1 }
    if !kept.isEmpty {
      let found = try execute(
        // `+ 0` prevents a scan by number.
        "SELECT number, key, selector FROM cache WHERE key = ANY ($1) ORDER BY number + 0 DESC",
        [.byteStrings(kept.keys.map(\.bytes))])
      for row in found.all {
        guard let number = found.int(row, 0),
          let key = Fingerprint(bytes: found.bytes(row, 1) ?? [])
        else { continue }
        let selector = Fingerprint(bytes: found.bytes(row, 2) ?? [])
        if let selector, ids.contains(CacheEntry.ID(key: key, selector: selector)) {
          numbers.append(number)
        } else if kept[key, default: 0] < CacheEntry.maxOfKey {
          kept[key, default: 0] += 1
        } else if numbers.count < 256 {
          numbers.append(number)
        }
      }
    }
    if !numbers.isEmpty { try deleteEntries(where: "number = ANY ($1)", [.ints(numbers.sorted())]) }
  }

  /// Updates the number of cache entries in the images' rows.
  private func countEntries(_ changes: [[UInt8]: Int]) throws {
    guard !changes.isEmpty else { return }
    let digests = changes.keys.sorted { $0.lexicographicallyPrecedes($1) }
    let rows = try execute(
      """
      UPDATE images SET cached = cached + n.change FROM unnest($1, $2) AS n (name, change)
      WHERE digest = n.name RETURNING digest, cached, bytes
      """,
      [.byteStrings(digests), .ints(digests.map { Int64(changes[$0] ?? 0) })])
    for row in rows.all {
      guard let change = rows.bytes(row, 0).flatMap({ changes[$0] }), let now = rows.int(row, 1),
        let bytes = rows.int(row, 2)
      else { continue }
      if now > 0, now == change { tallies[.entryBytes] += Int(bytes) }
      if now == 0, change < 0 { tallies[.entryBytes] -= Int(bytes) }
    }
  }

  func deleteEntries(_ ids: [CacheEntry.ID]) throws {
    try countDeleted(
      execute(
        """
        DELETE FROM cache WHERE (key, selector) IN (SELECT n.key, n.selector FROM unnest($1, $2) AS n (key, selector))
        RETURNING digest, length(record)
        """,
        [.byteStrings(ids.map(\.key.bytes)), .byteStrings(ids.map(\.selector.bytes))]))
  }

  /// Deletes the entries of images.
  func deleteEntries(ofImages images: Set<CachedImage>) throws {
    guard !images.isEmpty else { return }
    let responses = images.flatMap { image in image.keys.map { (key: $0, digest: image.digest) } }
    try deleteEntries(
      where: "(key, digest) IN (SELECT n.key, n.digest FROM unnest($1, $2) AS n (key, digest))",
      [.byteStrings(responses.map(\.key.bytes)), .byteStrings(responses.map(\.digest.bytes))])
    // Variants of the image have other digests.
    try deleteEntries(where: "key = ANY ($1)", [.byteStrings(images.map(\.variants.bytes))])
  }

  /// Deletes the entries that match a condition.
  /// - Returns: the image of each entry.
  @discardableResult
  func deleteEntries(where condition: String, _ arguments: [SQLValue]) throws -> [ImageDigest] {
    try countDeleted(
      execute(
        "DELETE FROM cache WHERE \(condition) RETURNING digest, length(record)", arguments))
  }

  /// Updates the counters and references after entries were deleted.
  @discardableResult
  private func countDeleted(_ rows: Rows) throws -> [ImageDigest] {
    guard !rows.isEmpty else { return [] }
    var counts: [[UInt8]: Int] = [:]
    for row in rows.all {
      counts[rows.bytes(row, 0) ?? [], default: 0] -= 1
      tallies[.entries] -= 1
      tallies[.recordBytes] -= Int(rows.int(row, 1) ?? 0)
    }
    try countEntries(counts)
    try addDeletionCandidates(Set(counts.keys))
    return rows.all.compactMap { rows.digest($0, 0) }
  }

  /// Evicts the least recently used entries until the others fit or the time is up. The next
  /// transaction that stores or completes something continues.
  /// - Parameters:
  ///   - spared: an entry that stays unless it is the only one left.
  ///   - lastUse: called for each entry before its eviction. If the entry was used since, the time
  ///     is stored and the entry stays for now.
  func trimCache(
    to limit: Int, sparing spared: CacheEntry.ID? = nil, _ totals: Totals,
    lastUse: CacheEntry.LastUse
  ) throws {
    // At least four rounds per transaction, so that entries are evicted faster than they are added.
    while totals.cacheSize > limit, hasTime || evictions.trims < 4 {
      evictions.trims += 1
      let oldest = try execute(
        """
        SELECT number, key, selector, used, bytes + length(record) FROM cache
        WHERE NOT (key = $1 AND selector = $2) ORDER BY used, number LIMIT 256
        """, [.bytes(spared?.key.bytes ?? []), .bytes(spared?.selector.bytes ?? [])])
      guard !oldest.isEmpty else {
        if spared != nil { return }
        throw StoreError.unavailable(detail: "the cache's byte count is wrong")
      }
      // An upper bound: several entries may share one image, whose bytes count once.
      var (next, going, bytes) = (Int64.max, [Int64](), 0)
      for row in oldest.all where totals.cacheSize - bytes > limit {
        // An entry whose time was updated may still be the oldest one.
        guard let used = oldest.int(row, 3), used <= next else { break }
        if let moment = try updateLastUse(oldest, row, lastUse) {
          next = min(next, moment)
        } else if let number = oldest.int(row, 0) {
          going.append(number)
          bytes += Int(oldest.int(row, 4) ?? 0)
        }
      }
      try deleteEntries(where: "number = ANY ($1)", [.ints(going)])
    }
  }

  /// Stores the entry's last use if it is later than the stored one.
  /// - Returns: the new time.
  private func updateLastUse(_ rows: Rows, _ row: Int, _ lastUse: CacheEntry.LastUse) throws
    -> Int64?
  {
    guard let key = Fingerprint(bytes: rows.bytes(row, 1) ?? []),
      let selector = Fingerprint(bytes: rows.bytes(row, 2) ?? []),
      let moment = lastUse(CacheEntry.ID(key: key, selector: selector))?.milliseconds,
      moment > rows.int(row, 3) ?? .max
    else { return nil }
    try execute(
      "UPDATE cache SET used = $2 WHERE number = $1", [.int(rows.int(row, 0)), .int(moment)])
    return moment
  }
}
