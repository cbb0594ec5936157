internal import Foundation
internal import GRDB
internal import Jobs

/// Entries of the cache: whatever changes one goes through here, so that images and counts follow.
extension Ledger {
  /// Stores an entry in the place of the one of the same id; others give way to it, the least recently used ones first.
  ///
  /// One that is larger than the limit, or whose image is not kept, is not stored. The one before is gone all the same:
  /// there is something newer.
  mutating func keep(
    _ row: CacheRow, within limit: Int, at moment: Timestamp, _ references: inout ReferenceChanges
  ) throws {
    try drop([row.id], &references)
    let (digest, bytes) = (row.digest.data, row.bytes)
    guard bytes <= limit, try references.begins(digest) || isKept(digest) else { return }
    try evict(downTo: limit - bytes, &references)
    try execute(
      """
      INSERT INTO cache (key, selector, digest, bytes, stored, used, record) VALUES (?, ?, ?, ?, ?, ?, ?)
      """,
      [
        row.id.key.data, row.id.selector.data, digest, bytes, moment.milliseconds,
        moment.milliseconds, row.record,
      ])
    tallies.cacheEntries += 1
    tallies.cacheBytes += bytes
    references.store(digest, bytes: bytes, at: moment)
  }

  /// Stores a variant and ends the reservation of its image.
  mutating func keep(
    _ variant: CacheRow, within limit: Int, releasing holder: Data, at moment: Timestamp
  ) throws {
    var references = ReferenceChanges()
    try keep(variant, within: limit, at: moment, &references)
    try endReservations(of: holder, &references)
    try apply(references)
  }

  /// Lets the least recently used entries go until the others fit.
  mutating func evict(downTo limit: Int, _ references: inout ReferenceChanges) throws {
    while tallies.cacheBytes > limit {
      let evicted = try dropEntries(
        "number = (SELECT number FROM cache ORDER BY used, number LIMIT 1)", [], &references)
      guard evicted > 0 else {
        throw StoreError.unavailable(detail: "the cache's bytes were counted wrong")
      }
    }
  }

  /// Writes an entry's new record, if it is still the one with that image.
  func replace(_ entry: CacheEntry, record: Data) throws {
    try execute(
      "UPDATE cache SET record = ? WHERE key = ? AND selector = ? AND digest = ?",
      [record, entry.id.key.data, entry.id.selector.data, entry.image.digest.data])
  }

  func touch(_ id: CacheEntry.ID, at moment: Timestamp) throws {
    try execute(
      "UPDATE cache SET used = ? WHERE key = ? AND selector = ? AND used < ?",
      [moment.milliseconds, id.key.data, id.selector.data, moment.milliseconds])
  }

  mutating func drop(_ ids: [CacheEntry.ID], _ references: inout ReferenceChanges) throws {
    for id in ids {
      _ = try dropEntries(
        "key = ? AND selector = ?", [id.key.data, id.selector.data], &references)
    }
  }

  /// Drops the entries that `condition` chooses, and ends their references.
  /// - Returns: how many.
  mutating func dropEntries(_ condition: String, _ arguments: StatementArguments) throws -> Int {
    var references = ReferenceChanges()
    let count = try dropEntries(condition, arguments, &references)
    try apply(references)
    return count
  }

  private mutating func dropEntries(
    _ condition: String, _ arguments: StatementArguments, _ references: inout ReferenceChanges
  ) throws -> Int {
    let rows = try all(
      "DELETE FROM cache WHERE \(condition) RETURNING digest, bytes", arguments)
    for row in rows {
      references.drop(row[0])
      tallies.cacheEntries -= 1
      tallies.cacheBytes -= row[1] as Int
    }
    return rows.count
  }
}
