internal import Foundation
internal import GRDB
internal import Jobs

/// The database within one write transaction, with what is counted beside it. Only the writer's thread has one.
struct WriteTransaction {
  let db: Database
  var counters: StoreCounters
  let held: HeldRows
  /// How many jobs and entries may still let go of their images in it.
  var yielding = Self.portion
  /// How many rejected lines may still be forgotten in it, and batches with them.
  var forgettable = 5_000

  /// - Returns: how many rows changed.
  @discardableResult
  func execute(_ sql: String, _ arguments: StatementArguments = []) throws -> Int {
    try db.cachedStatement(sql: sql).execute(arguments: arguments)
    return db.changesCount
  }

  func one(_ sql: String, _ arguments: StatementArguments = []) throws -> Row? {
    try Row.fetchOne(db.cachedStatement(sql: sql), arguments: arguments)
  }

  /// Whether the query finds anything. A row takes several times as long: GRDB makes a table of its columns' names.
  func exists(_ sql: String, _ arguments: StatementArguments = []) throws -> Bool {
    try Int.fetchOne(db.cachedStatement(sql: sql), arguments: arguments) != nil
  }

  func all(_ sql: String, _ arguments: StatementArguments = []) throws -> [Row] {
    try Row.fetchAll(db.cachedStatement(sql: sql), arguments: arguments)
  }
}

/// Rows of jobs: whatever changes one goes through here, so that tags, images and counts follow.
extension WriteTransaction {
  /// A job that is behind a parked one of its origin waits with that one from the start: it could not go before it.
  mutating func insert(_ new: JobRow) throws {
    var row = new
    if row.waiting == .ready, try counters.parked.isAhead(of: row, db) { row.waiting = .parked }
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
    counters.move(from: nil, to: row)
    try addTags(of: row)
  }

  /// Writes `new` in the place of `old`; what that means for images is the caller's to note.
  mutating func replace(_ old: JobRow, by new: JobRow) throws {
    guard !new.hasSameColumns(as: old) else {
      try execute("UPDATE jobs SET record = ? WHERE number = ?", [new.record, new.number])
      if new.places != old.places {
        counters.move(from: old, to: new)
      } else {
        counters.countRecord(from: old, to: new)
      }
      return held.note(new)
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
    counters.move(from: old, to: new)
    held.note(new)
    if (old.phase, old.expiresAt, old.tags) != (new.phase, new.expiresAt, new.tags) {
      try removeTags(of: old)
      try addTags(of: new)
    }
  }

  mutating func delete(_ row: JobRow) throws {
    try execute("DELETE FROM jobs WHERE number = ?", [row.number])
    counters.move(from: row, to: nil)
    held.forget(row)
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
