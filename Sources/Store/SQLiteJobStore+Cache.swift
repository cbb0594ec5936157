internal import Foundation
internal import GRDB
public import Jobs
internal import Logging

/// The cache's entries, beside the jobs: both refer to images.
extension SQLiteJobStore: CacheStore {
  /// Looks the entries up on a thread that reads, all as of the same moment.
  public func entries(for keys: [Fingerprint]) async throws(StoreError) -> [[CacheEntry]] {
    try await read { [log] db in
      let statement = try db.cachedStatement(
        sql: "SELECT record FROM cache WHERE key = ? ORDER BY number")
      return try keys.map { key in
        try Data.fetchAll(statement, arguments: [key.data]).compactMap { Self.entry($0, log) }
      }
    }
  }

  /// One that can't be read is as good as none: the origin has another.
  private static func entry(_ record: Data, _ log: Logger) -> CacheEntry? {
    do { return try CacheRecord.entry(from: record) } catch {
      log.error("a cache entry's record can't be read", metadata: ["error": "\(error)"])
      return nil
    }
  }

  /// Notes when entries were last used; never an earlier moment than is known.
  public func touch(_ uses: [CacheEntry.ID: Timestamp]) async throws(StoreError) {
    guard !uses.isEmpty else { return }
    try await writer.perform(isSynced: false) { transaction in
      for (id, moment) in uses { try transaction.touch(id, at: moment) }
    }
  }

  /// Forgets entries; their images are abandoned where nothing else refers to them.
  public func drop(_ ids: [CacheEntry.ID]) async throws(StoreError) {
    guard !ids.isEmpty else { return }
    try await writer.perform { transaction in
      var references = ReferenceChanges()
      try transaction.drop(ids, &references)
      try transaction.apply(references)
    }
  }

  /// Forgets everything under these keys, in one commit.
  public func drop(keys: [Fingerprint]) async throws(StoreError) -> Int {
    guard !keys.isEmpty else { return 0 }
    return try await writer.perform { transaction in
      try keys.reduce(0) { try $0 + transaction.dropEntries("key = ?", [$1.data]) }
    }
  }

  /// Forgets entries in one commit.
  public func drop(
    resource: Fingerprint, count: Int
  ) async throws(StoreError) -> [ImageDigest] {
    try await writer.perform { try $0.drop(resource: resource, count: count) }
  }

  /// Forgets what there is at this moment, so many entries a commit that nobody waits for long.
  public func clear() async throws(StoreError) -> Int {
    let last = try await writer.perform {
      try $0.one("SELECT max(number) FROM cache")?[0] as Int64?
    }
    guard let last else { return 0 }
    var count = 0
    while true {
      let dropped = try await writer.perform {
        try $0.dropEntries(
          "number IN (SELECT number FROM cache WHERE number <= ? LIMIT 500)", [last])
      }
      count += dropped
      if dropped == 0 { return count }
    }
  }

  /// Looks the variant up on a thread that reads.
  public func variant(_ id: CacheEntry.ID) async throws(StoreError) -> StoredVariant? {
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

  /// Keeps a variant and ends the reservation of its image, in one commit.
  public func keep(
    _ variant: StoredVariant, within limit: Int, releasing holder: JobID,
    lastUse: @escaping CacheEntry.LastUse
  ) async throws(StoreError) {
    try await writer.perform { [now] in
      try $0.keep(
        CacheRow(variant), within: limit, releasing: holder.data, at: now(), lastUse: lastUse)
    }
  }

  /// What the last commit left; asks no disk.
  public func cacheCounts() async throws(StoreError) -> (entries: Int, bytes: Int) {
    writer.cacheCounts
  }
}
