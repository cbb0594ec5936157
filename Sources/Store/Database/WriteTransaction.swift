internal import Foundation
internal import GRDB
internal import Jobs

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
