internal import Foundation
internal import GRDB
public import Jobs
internal import Records

/// What another store takes over.
extension SQLiteJobStore: ExportedStore {
  /// Ids only, so that a long queue is a few megabytes.
  public func queueOrder() async throws(StoreError) -> [JobID] {
    try await read { db in
      try Data.fetchAll(
        db, sql: "SELECT id FROM jobs WHERE phase = 0 ORDER BY priority DESC, rank, number"
      ).compactMap { JobID(data: $0) }
    }
  }

  /// By the table's own order.
  public func keys(after number: Int64, count: Int) async throws(StoreError) -> [ExportedKey] {
    try await read { db in
      try Row.fetchAll(
        db,
        sql: """
          SELECT number, owner, key, fingerprint, created_at, jobs FROM keys
          WHERE number > ? ORDER BY number LIMIT ?
          """, arguments: [number, count]
      ).map { row in
        guard let fingerprint = ImageDigest(bytes: row[3] as Data) else {
          throw StoreError.unreadable(
            detail: "the key of row \(row[0] as Int64) has no fingerprint")
        }
        return ExportedKey(
          number: row[0],
          key: IdempotencyKey(
            owner: Owner(String(decoding: row[1] as Data, as: UTF8.self)),
            key: String(decoding: row[2] as Data, as: UTF8.self), fingerprint: fingerprint),
          since: Timestamp(milliseconds: row[4]), jobs: IdempotencyKeys.ids(row[5]))
      }
    }
  }

  /// By the table's own order, in which the entries of one key are looked at.
  public func entries(
    after number: Int64, count: Int
  ) async throws(StoreError) -> [ExportedEntry] {
    try await read { db in
      try Row.fetchAll(
        db,
        sql: """
          SELECT number, key, selector, resource, digest, bytes, stored, used, record FROM cache
          WHERE number > ? ORDER BY number LIMIT ?
          """, arguments: [number, count]
      ).map { row in
        guard let key = Fingerprint(bytes: row[1] as Data),
          let selector = Fingerprint(bytes: row[2] as Data),
          let image = ImageDigest(bytes: row[4] as Data)
        else {
          throw StoreError.unreadable(detail: "the cache's row \(row[0] as Int64) makes no sense")
        }
        return ExportedEntry(
          number: row[0], id: CacheEntry.ID(key: key, selector: selector),
          resource: (row[3] as Data?).flatMap { Fingerprint(bytes: $0) }, image: image,
          bytes: row[5],
          moments: (Timestamp(milliseconds: row[6]), Timestamp(milliseconds: row[7])),
          record: [UInt8](row[8] as Data))
      }
    }
  }
}

extension SQLiteJobStore {
  /// By the table's own order.
  public func batches(
    after number: Int64, count: Int
  ) async throws(StoreError) -> [(number: Int64, batch: Batch)] {
    try await read { db in
      try BatchRow.fetchAll("number > ? ORDER BY number LIMIT ?", [number, count], db)
        .map { (number: $0.number, batch: $0.batch) }
    }
  }

  /// By the table's own order.
  public func rejectedLines(
    of number: Int64, after line: Int, count: Int
  ) async throws(StoreError) -> [RejectedLine] {
    try await read { db in
      let records = try Data.fetchAll(
        db,
        sql: """
          SELECT record FROM rejected_lines WHERE batch = ? AND line > ? ORDER BY line LIMIT ?
          """, arguments: [number, line, count])
      return try records.map { try RecordDecoder.decode(RejectedLine.self, from: Array($0)) }
    }
  }

  /// By the table's own order.
  public func messages(
    after number: Int64, count: Int
  ) async throws(StoreError) -> [(number: Int64, message: WebhookMessage)] {
    try await read { db in
      try Row.fetchAll(
        db, sql: "SELECT record, rowid FROM messages WHERE rowid > ? ORDER BY rowid LIMIT ?",
        arguments: [number, count]
      ).map { (number: $0[1], message: try MessageRecord.message($0)) }
    }
  }
}

/// The tables apart from a service.
extension SQLiteJobStore {
  /// How far a database's tables are. It is only read, also while a service has it.
  ///
  /// - Throws: `.unavailable` when a newer release wrote it, or it can't be read.
  public static func versions(at path: String) throws(StoreError) -> TableVersions {
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
