internal import Foundation
internal import GRDB
package import Jobs
internal import Logging

/// The cache index. It is in the same database as the jobs because both refer to images.
extension SQLiteJobStore: CacheStore {
  /// Reads the entries on a reading thread. All queries see the same snapshot.
  package func entries(for keys: [Fingerprint]) async throws(StoreError) -> [[CacheEntry]] {
    try await read { [log] db in
      let statement = try db.cachedStatement(
        sql: "SELECT record FROM cache WHERE key = ? ORDER BY number")
      return try keys.map { key in
        try Data.fetchAll(statement, arguments: [key.data]).compactMap { Self.entry($0, log) }
      }
    }
  }

  /// Skips an unreadable entry, because the origin can be asked instead.
  private static func entry(_ record: Data, _ log: Logger) -> CacheEntry? {
    do { return try CacheRecord.entry(from: record) } catch {
      log.error("skipping unreadable cache entry", metadata: ["error": "\(error)"])
      return nil
    }
  }

  /// Updates the times when entries were last used; a time never moves backwards.
  package func touch(_ uses: [CacheEntry.ID: Timestamp]) async throws(StoreError) {
    guard !uses.isEmpty else { return }
    try await writer.perform(isSynced: false) { transaction in
      for (id, moment) in uses { try transaction.touch(id, at: moment) }
    }
  }

  /// Deletes entries; their images become candidates for deletion if nothing else refers to them.
  package func delete(_ ids: [CacheEntry.ID]) async throws(StoreError) {
    guard !ids.isEmpty else { return }
    try await writer.perform { transaction in
      var references = ReferenceChanges()
      try transaction.deleteEntries(ids, &references)
      try transaction.apply(references)
    }
  }

  /// Deletes all entries under these keys in one commit.
  package func delete(keys: [Fingerprint]) async throws(StoreError) -> Int {
    guard !keys.isEmpty else { return 0 }
    return try await writer.perform { transaction in
      try keys.reduce(0) { try $0 + transaction.deleteEntries(where: "key = ?", [$1.data]) }
    }
  }

  /// Deletes up to `count` entries in one commit.
  package func delete(
    resource: Fingerprint, count: Int
  ) async throws(StoreError) -> [ImageDigest] {
    try await writer.perform { try $0.deleteEntries(ofResource: resource, count: count) }
  }

  /// Deletes the entries that exist now, 500 per commit, so that other writers do not wait long.
  package func clear() async throws(StoreError) -> Int {
    let last = try await writer.perform {
      try $0.one("SELECT max(number) FROM cache")?[0] as Int64?
    }
    guard let last else { return 0 }
    var count = 0
    while true {
      let dropped = try await writer.perform {
        try $0.deleteEntries(
          where: "number IN (SELECT number FROM cache WHERE number <= ? LIMIT 500)", [last])
      }
      count += dropped
      if dropped == 0 { return count }
    }
  }

  /// Reads the variant on a reading thread.
  package func variant(_ id: CacheEntry.ID) async throws(StoreError) -> StoredVariant? {
    try await read { db in
      let statement = try db.cachedStatement(
        sql: "SELECT record, digest, bytes FROM cache WHERE key = ? AND selector = ?")
      guard
        let row = try Row.fetchOne(statement, arguments: [id.key.data, id.selector.data]),
        let digest = ImageDigest(bytes: row[1] as Data)
      else { return nil }
      let name = String(decoding: row[0] as Data, as: UTF8.self)
      return StoredVariant(id: id, name: name, digest: digest, bytes: row[2])
    }
  }

  /// Stores a variant and releases the reservation of its image, in one commit.
  package func save(
    _ variant: StoredVariant, within limit: Int, releasing holder: JobID,
    lastUse: @escaping CacheEntry.LastUse
  ) async throws(StoreError) {
    try await writer.perform { [now] in
      try $0.saveVariant(
        CacheRow(variant), within: limit, releasing: holder.data, at: now(), lastUse: lastUse)
    }
  }

  /// The counts after the last commit. Does not use the disk.
  package func cacheCounts() async throws(StoreError) -> (entries: Int, bytes: Int) {
    writer.cacheCounts
  }
}
