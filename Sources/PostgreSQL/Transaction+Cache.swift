internal import Jobs
internal import Records

/// What is to be stored as an entry of the cache, a response's or a variant's.
struct CacheRow: Sendable {
  let id: CacheEntry.ID
  /// ``CacheEntry/resource`` where that is another one than the key.
  let resource: [UInt8]?
  let digest: [UInt8]
  let bytes: Int
  /// A response as JSON. Of a variant only its name, for people: the other columns tell everything.
  let record: [UInt8]
  /// Of all entries' images: one that is larger is not stored.
  let limit: Int
  /// Whether it is one of those that are looked at together: no variant.
  let isResponse: Bool

  init(_ entry: CacheEntry, limit: Int) throws {
    (id, digest, bytes) = (entry.id, entry.image.digest.bytes, entry.image.bytes)
    resource = entry.resource == entry.id.key ? nil : entry.resource.bytes
    record = try RecordEncoder.encode(entry)
    self.limit = limit
    isResponse = true
  }

  /// One that was stored elsewhere, of either kind: with the key's next response the oldest go.
  init(
    id: CacheEntry.ID, resource: [UInt8]?, digest: [UInt8], bytes: Int, record: [UInt8], limit: Int
  ) {
    (self.id, self.resource, self.digest, self.bytes) = (id, resource, digest, bytes)
    (self.record, self.limit) = (record, limit)
    isResponse = false
  }

  init(_ variant: StoredVariant, limit: Int) {
    (id, digest, bytes) = (variant.id, variant.digest.bytes, variant.bytes)
    resource = nil
    record = Array(variant.name.utf8)
    self.limit = limit
    isResponse = false
  }
}

/// Entries of the cache: whatever changes one goes through here, so that images and counts follow.
extension Transaction {
  /// Stores entries, each in the place of the one of the same id, which is gone also where the new one is not stored: there
  /// is something newer.
  /// - Parameter isKept: whether there is an image for them.
  func keep(_ rows: [CacheRow], isKept: ([UInt8]) -> Bool) throws {
    guard !rows.isEmpty else { return }
    // Of several of one id the last one counts.
    let latest = Dictionary(rows.map { ($0.id, $0) }) { $1 }
    try makeWay(for: Array(latest.values))
    let stored = rows.filter {
      latest[$0.id]?.record == $0.record && $0.bytes <= $0.limit && isKept($0.digest)
    }
    let new = Dictionary(stored.map { ($0.id, $0) }) { $1 }.values.sorted {
      $0.digest.lexicographicallyPrecedes($1.digest)
    }
    guard !new.isEmpty else { return }
    try add(
      """
      INSERT INTO cache (key, selector, digest, bytes, stored, used, record, resource, owner)
      SELECT key, selector, digest, bytes, moment($1), moment($1), record, resource,
        (SELECT nullif(i.owner, '') FROM images i WHERE i.digest = n.digest)
      FROM unnest($2, $3, $4, $5, $6, $7) AS n (key, selector, digest, bytes, record, resource)
      """,
      [
        moment, .byteStrings(new.map(\.id.key.bytes)), .byteStrings(new.map(\.id.selector.bytes)),
        .byteStrings(new.map(\.digest)), .ints(new.map { Int64($0.bytes) }),
        .byteStrings(new.map(\.record)), .byteStrings(new.map(\.resource)),
      ])
    tallies[.entries] += new.count
    tallies[.recordBytes] += new.reduce(0) { $0 + $1.record.count }
    try countEntries(Dictionary(new.map { ($0.digest, 1) }, uniquingKeysWith: +))
  }

  /// Drops what entries take the place of: those of their ids, and by one statement with them the oldest of a response's key
  /// where there would be too many, as far as nobody waits long for that.
  private func makeWay(for rows: [CacheRow]) throws {
    let keys = Array(Set(rows.filter(\.isResponse).map(\.id.key.bytes)))
    // The bound is no argument, so that the planner expects few rows; `+ 0` keeps it from looking for them by their numbers.
    try dropEntries(
      """
      number IN (SELECT c.number FROM unnest($1, $2) AS n (key, selector)
          JOIN cache c ON c.key = n.key AND c.selector = n.selector
        UNION ALL SELECT oldest.number FROM unnest($3) AS n (key) CROSS JOIN LATERAL (
          SELECT c.number FROM cache c WHERE c.key = n.key AND c.selector <> ALL ($2)
          ORDER BY c.number + 0 DESC OFFSET \(CacheEntry.maxOfKey - 1) LIMIT 256) AS oldest)
      """,
      [
        .byteStrings(rows.map(\.id.key.bytes)), .byteStrings(rows.map(\.id.selector.bytes)),
        .byteStrings(keys),
      ])
  }

  /// Brings what images know of their entries in step.
  private func countEntries(_ changes: [[UInt8]: Int]) throws {
    let digests = changes.keys.sorted { $0.lexicographicallyPrecedes($1) }
    let rows = try execute(
      """
      UPDATE images SET cached = cached + n.change FROM unnest($1, $2) AS n (digest, change)
      WHERE images.digest = n.digest RETURNING images.cached, n.change, images.bytes
      """,
      [.byteStrings(digests), .ints(digests.map { Int64(changes[$0] ?? 0) })])
    for row in rows.all {
      guard let now = rows.int(row, 0), let change = rows.int(row, 1), let bytes = rows.int(row, 2)
      else { continue }
      if now > 0, now == change { tallies[.entryBytes] += Int(bytes) }
      if now == 0, change < 0 { tallies[.entryBytes] -= Int(bytes) }
    }
  }

  func drop(_ ids: [CacheEntry.ID]) throws {
    try dropped(
      execute(
        """
        DELETE FROM cache USING unnest($1, $2) AS n (key, selector)
        WHERE cache.key = n.key AND cache.selector = n.selector
        RETURNING digest, octet_length(record)
        """,
        [.byteStrings(ids.map(\.key.bytes)), .byteStrings(ids.map(\.selector.bytes))]))
  }

  /// Drops what there is of images.
  func drop(_ images: Set<CachedImage>) throws {
    guard !images.isEmpty else { return }
    var (keys, digests): ([[UInt8]], [[UInt8]?]) = ([], [])
    for image in images {
      for key in image.keys {
        keys.append(key.bytes)
        digests.append(image.digest.bytes)
      }
      // What was made of it has digests of its own.
      keys.append(image.variants.bytes)
      digests.append(nil)
    }
    try dropped(
      execute(
        """
        DELETE FROM cache USING unnest($1, $2) AS n (key, digest)
        WHERE cache.key = n.key AND (n.digest IS NULL OR cache.digest = n.digest)
        RETURNING cache.digest, octet_length(record)
        """, [.byteStrings(keys), .byteStrings(digests)]))
  }

  /// Drops the entries that `condition` chooses.
  /// - Returns: the image of each.
  @discardableResult
  func dropEntries(_ condition: String, _ arguments: [SQLValue]) throws -> [ImageDigest] {
    try dropped(
      execute(
        "DELETE FROM cache WHERE \(condition) RETURNING digest, octet_length(record)", arguments))
  }

  /// Notes that entries are gone, and their references with them.
  @discardableResult
  private func dropped(_ rows: Rows) throws -> [ImageDigest] {
    guard !rows.isEmpty else { return [] }
    var counts: [[UInt8]: Int] = [:]
    for row in rows.all {
      counts[rows.bytes(row, 0) ?? [], default: 0] -= 1
      tallies[.entries] -= 1
      tallies[.recordBytes] -= Int(rows.int(row, 1) ?? 0)
    }
    try countEntries(counts)
    try noteCandidates(Set(counts.keys))
    return rows.all.compactMap { rows.digest($0, 0) }
  }

  /// Lets the least recently used entries go until the others fit, or it has taken enough time: the next that stores or
  /// completes anything goes on.
  /// - Parameters:
  ///   - spared: one that stays, as long as it is not the only one that is left.
  ///   - lastUse: looked at for each that would go: one used since is noted so, and stays for now.
  func trimCache(
    to limit: Int, sparing spared: CacheEntry.ID? = nil, _ totals: Totals,
    lastUse: CacheEntry.LastUse
  ) throws {
    // So many that no more come than go.
    while totals.cacheSize > limit, hasTime || givingWay.trims < 4 {
      givingWay.trims += 1
      let oldest = try execute(
        """
        SELECT number, key, selector, used, bytes + octet_length(record) FROM cache
        WHERE (key, selector) IS DISTINCT FROM ($1::bytea, $2::bytea) ORDER BY used, number LIMIT 256
        """, [.bytes(spared?.key.bytes), .bytes(spared?.selector.bytes)])
      guard !oldest.isEmpty else {
        if spared != nil { return }
        throw StoreError.unavailable(detail: "the cache's bytes were counted wrong")
      }
      // So much at the most: another one may have the same image.
      var (next, going, bytes) = (Int64.max, [Int64](), 0)
      for row in oldest.all where totals.cacheSize - bytes > limit {
        // One that stays for now may yet be the oldest.
        guard let used = oldest.int(row, 3), used <= next else { break }
        if let moment = try spare(oldest, row, lastUse) {
          next = min(next, moment)
        } else if let number = oldest.int(row, 0) {
          going.append(number)
          bytes += Int(oldest.int(row, 4) ?? 0)
        }
      }
      try dropEntries("number = ANY ($1)", [.ints(going)])
    }
  }

  /// Notes that the entry of that row was used, if later than is noted.
  /// - Returns: when.
  private func spare(_ rows: Rows, _ row: Int, _ lastUse: CacheEntry.LastUse) throws -> Int64? {
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
