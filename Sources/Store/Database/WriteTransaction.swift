internal import Foundation
internal import GRDB
internal import GRDBSQLite
internal import Glibc
internal import Jobs
internal import Synchronization

/// A write transaction with its counters. Only the writing thread uses it.
struct WriteTransaction {
  let db: Database
  var counters: StoreCounters
  let held: LoadingRowCache
  /// The number of references to images that this transaction may still remove.
  var removableReferences = Self.maxRemovedReferences
  /// The number of rejected lines and batches that this transaction may still delete.
  var deletableLines = 5_000

  /// - Returns: the number of changed rows.
  @discardableResult
  func execute(_ sql: String, _ arguments: StatementArguments = []) throws -> Int {
    try db.cachedStatement(sql: sql).execute(arguments: arguments)
    return db.changesCount
  }

  func one(_ sql: String, _ arguments: StatementArguments = []) throws -> Row? {
    try Row.fetchOne(db.cachedStatement(sql: sql), arguments: arguments)
  }

  /// Returns whether the query has a result. Fetching a `Row` would take several times as long,
  /// because GRDB builds a table of its column names.
  func exists(_ sql: String, _ arguments: StatementArguments = []) throws -> Bool {
    try Int.fetchOne(db.cachedStatement(sql: sql), arguments: arguments) != nil
  }

  func all(_ sql: String, _ arguments: StatementArguments = []) throws -> [Row] {
    try Row.fetchAll(db.cachedStatement(sql: sql), arguments: arguments)
  }
}

/// The rows of jobs. All changes go through these functions, so that tags, references to images and
/// counters stay consistent.
extension WriteTransaction {
  /// Inserts a row. A job behind a parked one of the same origin is parked at once, because it
  /// could not be claimed before that one.
  mutating func insert(_ new: JobRow) throws {
    var row = new
    if row.waiting == .ready, try counters.queues.deferred.isAhead(of: row, db) {
      row.waiting = .parked
    }
    let defaults = try row.defaults?.stored()
    try execute(
      """
      INSERT INTO jobs (id, owner, phase, priority, rank, waiting, not_before, claim, claimed_at, finished_at,
        expires_at, image, source, tags, record, origin, request, low, batch, line, defaults)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
      """,
      [
        row.id, row.owner, row.phase.code, row.priority, row.rank, row.waiting.rawValue,
        row.notBefore,
        row.claim, row.claimedAt, row.finishedAt, row.expiresAt, row.image, row.source, row.tags,
        row.record, row.originData, row.request, row.low, row.batch, row.line,
        defaults?.digest.data,
      ])
    counters.recordChange(from: nil, to: row)
    try addTags(of: row)
  }

  /// Replaces `old` by `new`. The caller updates the references to images.
  mutating func replace(_ old: JobRow, by new: JobRow) throws {
    guard !new.hasSameColumns(as: old) else {
      try execute("UPDATE jobs SET record = ? WHERE number = ?", [new.record, new.number])
      if new.slots != old.slots {
        counters.recordChange(from: old, to: new)
      } else {
        counters.countRecord(from: old, to: new)
      }
      return held.update(new)
    }
    try execute(
      """
      UPDATE jobs SET phase = ?, priority = ?, rank = ?, waiting = ?, not_before = ?, claim = ?, claimed_at = ?,
        finished_at = ?, expires_at = ?, image = ?, source = ?, tags = ?, record = ?, origin = ?, request = ?, low = ?,
        code = ?
      WHERE number = ?
      """,
      [
        new.phase.code, new.priority, new.rank, new.waiting.rawValue, new.notBefore, new.claim,
        new.claimedAt, new.finishedAt, new.expiresAt, new.image, new.source, new.tags, new.record,
        new.originData, new.request, new.low, new.code, new.number,
      ])
    counters.recordChange(from: old, to: new)
    held.update(new)
    if (old.phase, old.expiresAt, old.tags) != (new.phase, new.expiresAt, new.tags) {
      try removeTags(of: old)
      try addTags(of: new)
    }
  }

  mutating func delete(_ row: JobRow) throws {
    try execute("DELETE FROM jobs WHERE number = ?", [row.number])
    counters.recordChange(from: row, to: nil)
    held.remove(row)
    try removeTags(of: row)
    try apply(ReferenceChanges(from: row, to: nil, holding: nil))
  }

  func addTags(of row: JobRow) throws {
    for tag in row.readableTags {
      try execute(
        "INSERT INTO tags (owner, tag, phase, id, expires_at) VALUES (?, ?, ?, ?, ?)",
        [row.owner, tag, row.phase.code, row.id, row.expiresAt])
    }
  }

  func removeTags(of row: JobRow) throws {
    for tag in row.readableTags {
      try execute(
        "DELETE FROM tags WHERE owner = ? AND tag = ? AND phase = ? AND id = ?",
        [row.owner, tag, row.phase.code, row.id])
    }
  }
}

/// The linked SQLite library.
package enum SQLiteLibrary {
  /// The version, such as `3.40.1`.
  package static var version: String { String(cString: sqlite3_libversion()) }

  private static let failures = Atomic<Int>(0)

  /// The number of failed syncs in this process. Includes failures that SQLite does not return as
  /// an error, when it moves a log into the database after a commit.
  static var failedSyncs: Int { failures.load(ordering: .acquiring) }

  /// Starts counting failed syncs. Must be read before a database is opened.
  static let countsFailedSyncs: Void = {
    Database.logError = { code, _ in
      if code == .SQLITE_IOERR_FSYNC { failures.add(1, ordering: .acquiringAndReleasing) }
    }
  }()
}

/// The file of a database's write-ahead log.
struct DatabaseLog: Sendable {
  private let path: String

  /// - Parameter database: the path of the database file.
  init(of database: String) { path = database + "-wal" }

  /// Writes the whole log again and syncs it. No other writer may append to it meanwhile.
  ///
  /// After a failed sync, the system treats the unwritten data as written, and no later sync writes
  /// it. SQLite would append to such a log, and after a power failure the log would end at the gap.
  /// Moving the log into the database is no solution, because the database is consistent only
  /// together with the log until the move is complete.
  func rewrite() throws(StoreError) {
    let descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)
    guard descriptor >= 0 else {
      if errno == ENOENT { return }
      throw StoreError(errno: errno, "opening the database's log")
    }
    // SQLite has no lock on this file that closing the descriptor could release.
    defer { close(descriptor) }
    var offset = 0
    while true {
      let piece = ImageFolder.read(descriptor, at: offset, count: 1 << 20)
      if piece.isEmpty { break }
      guard lseek(descriptor, off_t(offset), SEEK_SET) == off_t(offset) else {
        throw StoreError(errno: errno, "rewriting the database's log")
      }
      let code = ImageFolder.write(piece, to: descriptor)
      guard code == 0 else { throw StoreError(errno: code, "rewriting the database's log") }
      offset += piece.count
    }
    guard fsync(descriptor) == 0 else {
      throw StoreError(errno: errno, "syncing the database's log")
    }
  }
}

extension StoreError {
  /// Converts an error of the layers below to the error that callers see.
  init(cause: any Error) {
    switch cause {
    case let error as StoreError: self = error
    case let error as DatabaseError where error.isDiskFull: self = .full
    case let error as CocoaError: self = .unavailable(detail: error.localizedDescription)
    default: self = .unavailable(detail: "\(cause)")
    }
  }
}

extension DatabaseError {
  /// SQLite reports ENOSPC as SQLITE_FULL, except for the shared memory file, which grows with the
  /// log.
  var isDiskFull: Bool {
    resultCode == .SQLITE_FULL || extendedResultCode == .SQLITE_IOERR_SHMSIZE
  }
}
