package import Jobs
internal import Logging
internal import Records

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
        "SELECT key, record FROM cache WHERE key = ANY ($1) ORDER BY number",
        [.byteStrings(keys.map(\.bytes))])
      var found: [[UInt8]: [CacheEntry]] = [:]
      for row in rows.all {
        guard let key = rows.bytes(row, 0), let entry = Self.entry(rows.bytes(row, 1) ?? [], log)
        else { continue }
        found[key, default: []].append(entry)
      }
      return keys.map { found[$0.bytes] ?? [] }
    }
  }

  /// Skips an unreadable entry, because the origin can be asked instead. Variants have no response
  /// record and are skipped too.
  private static func entry(_ record: [UInt8], _ log: Logger) -> CacheEntry? {
    do { return try RecordDecoder.decode(CacheEntry.self, from: record) } catch {
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
      let totals = try transaction.totalsOfImages()
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
    let totals = try totalsOfImages()
    try saveEntries(rows) { known[$0] == false }
    // Same result as storing them one after the other: the last one stays.
    for request in requests.reversed() {
      let row = request.row
      guard known[row.digest] == false, row.bytes <= row.limit else { continue }
      try trimCache(to: row.limit, sparing: row.id, totals, lastUse: request.lastUse)
    }
    try addDeletionCandidates(deleteReservations(of: requests.map(\.holder)))
  }
}
