internal import Foundation
internal import GRDB
internal import Jobs

/// Cache entries. All changes go through these functions, so that references to images and counters
/// stay consistent.
extension WriteTransaction {
  /// Stores an entry and evicts the least recently used ones beyond the limit.
  ///
  /// An entry that is larger than the limit, or whose image is not stored, is not stored. The
  /// existing entry with the same id is deleted in any case, because it is outdated.
  mutating func saveEntry(
    _ row: CacheRow, within limit: Int, at moment: Timestamp, lastUse: CacheEntry.LastUse,
    arriving: ImageDigest? = nil, _ references: inout ReferenceChanges
  ) throws {
    try deleteEntries([row.id], &references)
    let (digest, bytes) = (row.digest.data, row.bytes)
    let isArriving = arriving == row.digest
    guard bytes <= limit, try isArriving || references.begins(digest) || isStored(digest) else {
      return
    }
    if try isArriving || !isCached(digest) { counters.cacheBytes += bytes }
    try execute(
      """
      INSERT INTO cache (key, selector, digest, bytes, stored, used, record, resource)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?)
      """,
      [
        row.id.key.data, row.id.selector.data, digest, bytes, moment.milliseconds,
        moment.milliseconds, row.record, row.resource?.data,
      ])
    let number = db.lastInsertedRowID
    counters.cacheEntries += 1
    counters.cacheRecordBytes += row.record.count
    references.addEntry(digest, bytes: bytes, at: moment)
    if row.isResponse { try deleteOldest(of: row.id.key, &references) }
    try evict(downTo: limit, sparing: number, lastUse: lastUse, &references)
  }

  /// Deletes the oldest entries of a key beyond the limit, up to 256, so that other writers do not
  /// wait long.
  private mutating func deleteOldest(
    of key: Fingerprint, _ references: inout ReferenceChanges
  ) throws {
    let first = try one(
      "SELECT number FROM cache WHERE key = ? ORDER BY number DESC LIMIT 1 OFFSET ?",
      [key.data, CacheEntry.maxOfKey])
    // Usually the key has fewer entries.
    guard let first else { return }
    let number: Int64 = first[0]
    _ = try deleteEntries(
      where: "number IN (SELECT number FROM cache WHERE key = ? AND number <= ? LIMIT 256)",
      [key.data, number], &references)
  }

  private func isCached(_ digest: Data) throws -> Bool {
    try exists("SELECT 1 FROM cache WHERE digest = ? LIMIT 1", [digest])
  }

  /// Stores a variant and releases the reservation of its image.
  mutating func saveVariant(
    _ variant: CacheRow, within limit: Int, releasing holder: Data, at moment: Timestamp,
    lastUse: CacheEntry.LastUse
  ) throws {
    var references = ReferenceChanges()
    try saveEntry(variant, within: limit, at: moment, lastUse: lastUse, &references)
    try deleteReservations(of: holder, &references)
    try apply(references)
  }

  /// Evicts the least recently used entries until the others fit.
  /// - Parameters:
  ///   - spared: the number of an entry that stays.
  ///   - lastUse: called for each entry before its eviction. If the entry was used since, the time
  ///     is stored and the entry stays for now.
  mutating func evict(
    downTo limit: Int, sparing spared: Int64? = nil, lastUse: CacheEntry.LastUse,
    _ references: inout ReferenceChanges
  ) throws {
    while counters.cacheSize > limit {
      let oldest = try one(
        "SELECT number, key, selector, used FROM cache WHERE number IS NOT ? ORDER BY used, number LIMIT 1",
        [spared])
      guard let oldest else {
        if spared != nil { return }
        throw StoreError.unavailable(detail: "the cache's byte count is wrong")
      }
      let number: Int64 = oldest[0]
      if let moment = newerLastUse(of: oldest, lastUse) {
        try execute("UPDATE cache SET used = ? WHERE number = ?", [moment, number])
      } else {
        _ = try deleteEntries(where: "number = ?", [number], &references)
      }
    }
  }

  /// Returns the entry's last use if it is later than the stored one.
  private func newerLastUse(of row: Row, _ lastUse: CacheEntry.LastUse) -> Int64? {
    guard let key = Fingerprint(bytes: row[1] as Data),
      let selector = Fingerprint(bytes: row[2] as Data),
      let moment = lastUse(CacheEntry.ID(key: key, selector: selector))?.milliseconds
    else { return nil }
    return moment > row[3] as Int64 ? moment : nil
  }

  func touch(_ id: CacheEntry.ID, at moment: Timestamp) throws {
    try execute(
      "UPDATE cache SET used = ? WHERE key = ? AND selector = ? AND used < ?",
      [moment.milliseconds, id.key.data, id.selector.data, moment.milliseconds])
  }

  mutating func deleteEntries(_ ids: [CacheEntry.ID], _ references: inout ReferenceChanges) throws {
    for id in ids {
      let arguments: StatementArguments = [id.key.data, id.selector.data]
      // Usually there is no such entry.
      guard try exists("SELECT 1 FROM cache WHERE key = ? AND selector = ?", arguments) else {
        continue
      }
      _ = try deleteEntries(where: "key = ? AND selector = ?", arguments, &references)
    }
  }

  /// Deletes the entries of images.
  mutating func deleteEntries(ofImages images: Set<CachedImage>) throws {
    var references = ReferenceChanges()
    for image in images {
      _ = try deleteEntries(where: "key = ?", [image.variants.data], &references)
      for key in image.keys {
        _ = try deleteEntries(
          where: "key = ? AND digest = ?", [key.data, image.digest.data], &references)
      }
    }
    try apply(references)
  }

  /// Deletes up to `count` entries of a resource.
  /// - Returns: the image of each entry.
  mutating func deleteEntries(ofResource: Fingerprint, count: Int) throws -> [ImageDigest] {
    var references = ReferenceChanges()
    let gone = try deleteRows(
      where: """
        number IN (SELECT number FROM cache WHERE key = ?1
          UNION ALL SELECT number FROM cache WHERE resource = ?1 LIMIT ?2)
        """, [ofResource.data, count], &references)
    try apply(references)
    return gone.compactMap { ImageDigest(bytes: $0) }
  }

  /// Deletes the entries that match a condition, with their references.
  /// - Returns: the number of deleted entries.
  mutating func deleteEntries(where condition: String, _ arguments: StatementArguments) throws
    -> Int
  {
    var references = ReferenceChanges()
    let count = try deleteEntries(where: condition, arguments, &references)
    try apply(references)
    return count
  }

  private mutating func deleteEntries(
    where condition: String, _ arguments: StatementArguments, _ references: inout ReferenceChanges
  ) throws -> Int {
    try deleteRows(where: condition, arguments, &references).count
  }

  /// - Returns: the digest of each deleted entry's image.
  mutating func deleteRows(
    where condition: String, _ arguments: StatementArguments, _ references: inout ReferenceChanges
  ) throws -> [Data] {
    let rows = try all(
      "DELETE FROM cache WHERE \(condition) RETURNING digest, bytes, length(record)", arguments)
    var sizes: [Data: Int] = [:]
    for row in rows {
      references.deleteEntry(row[0])
      sizes[row[0]] = row[1]
      counters.cacheEntries -= 1
      counters.cacheRecordBytes -= row[2] as Int
    }
    for (digest, bytes) in sizes where try !isCached(digest) { counters.cacheBytes -= bytes }
    return rows.map { $0[0] }
  }
}
