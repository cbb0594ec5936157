internal import Foundation
internal import GRDB
package import Jobs
internal import Records

/// Export to another store.
extension SQLiteJobStore: ExportedStore {
  /// Returns only ids, so that a long queue needs only a few megabytes.
  package func queueOrder() async throws(StoreError) -> [JobID] {
    try await read { db in
      try Data.fetchAll(
        db, sql: "SELECT id FROM jobs WHERE phase = 0 ORDER BY priority DESC, rank, number"
      ).compactMap { JobID(data: $0) }
    }
  }

  /// Returns idempotency keys in the order of their rows.
  package func keys(
    after number: Int64, count: Int
  ) async throws(StoreError) -> [Exported<ExportedKey>] {
    try await read { db in
      try Row.fetchAll(
        db,
        sql: """
          SELECT number, owner, key, fingerprint, created_at, jobs FROM keys
          WHERE number > ? ORDER BY number LIMIT ?
          """, arguments: [number, count]
      ).map { row in Exported(row[0]) { try ExportedKey(row) } }
    }
  }

  /// Returns cache entries in the order of their rows, as searches return the entries of one key.
  package func entries(
    after number: Int64, count: Int
  ) async throws(StoreError) -> [Exported<ExportedEntry>] {
    try await read { db in
      try Row.fetchAll(
        db,
        sql: """
          SELECT number, key, selector, resource, digest, bytes, stored, used, record FROM cache
          WHERE number > ? ORDER BY number LIMIT ?
          """, arguments: [number, count]
      ).map { row in Exported(row[0]) { try ExportedEntry(row) } }
    }
  }
}

extension SQLiteJobStore {
  /// Returns batches in the order of their rows.
  package func batches(
    after number: Int64, count: Int
  ) async throws(StoreError) -> [Exported<Batch>] {
    try await read { db in
      try Row.fetchAll(
        db, sql: "SELECT number, record FROM batches WHERE number > ? ORDER BY number LIMIT ?",
        arguments: [number, count]
      ).map { row in
        Exported(row[0]) { try RecordDecoder.decode(Batch.self, from: Array(row[1] as Data)) }
      }
    }
  }

  /// Returns a batch's rejected lines in the order of their rows.
  package func rejectedLines(
    of number: Int64, after line: Int64, count: Int
  ) async throws(StoreError) -> [Exported<RejectedLine>] {
    try await read { db in
      try Row.fetchAll(
        db,
        sql: """
          SELECT line, record FROM rejected_lines WHERE batch = ? AND line > ? ORDER BY line LIMIT ?
          """, arguments: [number, line, count]
      ).map { row in
        Exported(row[0]) {
          try RecordDecoder.decode(RejectedLine.self, from: Array(row[1] as Data))
        }
      }
    }
  }

  /// Returns messages in the order of their rows.
  package func messages(
    after number: Int64, count: Int
  ) async throws(StoreError) -> [Exported<WebhookMessage>] {
    try await read { db in
      try Row.fetchAll(
        db, sql: "SELECT record, rowid FROM messages WHERE rowid > ? ORDER BY rowid LIMIT ?",
        arguments: [number, count]
      ).map { row in Exported(row[1]) { try MessageRecord.message(row) } }
    }
  }
}

extension ExportedKey {
  fileprivate init(_ row: Row) throws {
    guard let fingerprint = ImageDigest(bytes: row[3] as Data) else {
      throw StoreError.unreadable(detail: "the key of row \(row[0] as Int64) has no fingerprint")
    }
    self.init(
      key: IdempotencyKey(
        owner: Owner(String(decoding: row[1] as Data, as: UTF8.self)),
        key: String(decoding: row[2] as Data, as: UTF8.self), fingerprint: fingerprint),
      since: Timestamp(milliseconds: row[4]), jobs: IdempotencyKeys.ids(row[5]))
  }
}

extension ExportedEntry {
  fileprivate init(_ row: Row) throws {
    guard let key = Fingerprint(bytes: row[1] as Data),
      let selector = Fingerprint(bytes: row[2] as Data),
      let image = ImageDigest(bytes: row[4] as Data)
    else {
      throw StoreError.unreadable(detail: "the cache entry of row \(row[0] as Int64) is invalid")
    }
    self.init(
      id: CacheEntry.ID(key: key, selector: selector),
      resource: (row[3] as Data?).flatMap { Fingerprint(bytes: $0) }, image: image, bytes: row[5],
      moments: (Timestamp(milliseconds: row[6]), Timestamp(milliseconds: row[7])),
      record: [UInt8](row[8] as Data))
  }
}

/// The tables, without a running store.
extension SQLiteJobStore {
  /// Returns the version of a database's tables. Only reads the database, even while another
  /// process uses it.
  ///
  /// - Throws: `.unavailable` if a newer release wrote it or it can't be read.
  package static func versions(at path: String) throws(StoreError) -> TableVersions {
    let latest = Schema.migrator.migrations.count
    guard FileManager.default.fileExists(atPath: path) else {
      return TableVersions(found: 0, latest: latest)
    }
    do {
      var options = GRDB.Configuration()
      options.readonly = true
      let database = try DatabaseQueue(path: path, configuration: options)
      defer { try? database.close() }
      return try database.read { db in
        guard try !Schema.migrator.hasBeenSuperseded(db) else {
          throw StoreError.unavailable(detail: "\(path) was written by a newer release")
        }
        return TableVersions(
          found: try Schema.migrator.appliedIdentifiers(db).count, latest: latest)
      }
    } catch {
      throw StoreError(cause: error)
    }
  }
}
