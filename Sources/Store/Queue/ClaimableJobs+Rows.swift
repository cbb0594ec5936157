internal import Foundation
internal import GRDB
internal import Jobs

/// The queues in memory, and the rows that they count.
extension ClaimableJobs {
  /// Loads the queues from the database.
  init(_ db: Database) throws {
    self.init()
    let stages = "\(BatchStage.cancelling.rawValue), \(BatchStage.purged.rawValue)"
    for number in try Int64.fetchAll(
      db, sql: "SELECT number FROM batches WHERE stage IN (\(stages))")
    { ready.stop(number, after: 0) }
    let running = try Row.fetchCursor(
      db, sql: "SELECT owner, batch, count(*) FROM jobs WHERE phase = 1 GROUP BY owner, batch")
    while let row = try running.next() {
      ready.addLoading(row[2], of: QueuePosition(priority: 0, owner: row[0], batch: row[1]).queue)
    }
    let queued = try Row.fetchCursor(
      db,
      sql: """
        SELECT priority, owner, batch, count(*) FROM jobs WHERE phase = 0 AND waiting = 0
        GROUP BY priority, owner, batch
        """)
    while let row = try queued.next() {
      ready.addReady(row[3], at: QueuePosition(priority: row[0], owner: row[1], batch: row[2]))
    }
    // With `min()`, SQLite takes the other columns from the row with the minimum.
    let heads = try Row.fetchCursor(
      db,
      sql: """
        SELECT origin, priority, min(rank), number, id, owner, batch, not_before FROM jobs
        WHERE phase = 0 AND waiting = 2 GROUP BY origin, priority, owner, batch
        """)
    while let row = try heads.next() {
      deferred.add(
        QueuedCandidate(
          number: row[3], id: JobID(data: row[4]),
          position: QueuePosition(priority: row[1], owner: row[5], batch: row[6]), rank: row[2],
          notBefore: (row[7] as Int64?).map(Timestamp.init),
          origin: String(decoding: row[0] as Data, as: UTF8.self)))
    }
  }

  /// Adds a row that was inserted.
  mutating func add(_ row: JobRow) {
    switch (row.phase, row.waiting) {
    case (.queued, .ready): ready.addReady(1, at: row.position)
    case (.queued, .parked): deferred.add(row.candidate)
    case (.loading, _): ready.addLoading(1, of: row.position.queue)
    default: break
    }
  }

  /// Removes a row that was deleted.
  mutating func remove(_ row: JobRow) {
    switch (row.phase, row.waiting) {
    case (.queued, .ready): ready.addReady(-1, at: row.position)
    case (.queued, .parked):
      let job = row.candidate
      deferred.remove(job, served: ready.served.lastTurn(of: job.position.queue))
    case (.loading, _): ready.addLoading(-1, of: row.position.queue)
    default: break
    }
  }
}

extension DeferredJobs {
  /// Returns whether another job is deferred before this row, with the same origin and position.
  mutating func isAhead(of row: JobRow, _ db: Database) throws -> Bool {
    guard row.phase == .queued, let origin = row.origin else { return false }
    let position = row.position
    try readFirst(origin, position, db)
    guard case .job(let head) = first(of: origin, at: position) else { return false }
    return head.rank < row.rank
  }

  /// Reads the first deferred job of an origin at a position, if it is unknown.
  mutating func readFirst(_ origin: String, _ position: QueuePosition, _ db: Database) throws {
    guard case .unknown = first(of: origin, at: position) else { return }
    let statement = try db.cachedStatement(
      sql: """
        SELECT rank, number, id, not_before FROM jobs WHERE phase = 0 AND waiting = 2 AND origin = ?
          AND priority = ? AND owner = ? AND batch = ? ORDER BY rank LIMIT 1
        """)
    let row = try Row.fetchOne(
      statement,
      arguments: [
        Data(origin.utf8), position.priority, position.queue.owner.data, position.queue.batch,
      ])
    let job = row.map {
      QueuedCandidate(
        number: $0[1], id: JobID(data: $0[2]), position: position, rank: $0[0],
        notBefore: ($0[3] as Int64?).map(Timestamp.init), origin: origin)
    }
    setFirst(job, of: origin, at: position)
  }
}

extension QueuePosition {
  /// The position of a row with these columns. An invalid priority becomes the nearest valid one.
  init(priority: Int, owner: Data, batch: Int64) {
    self.init(
      priority: JobRow.validPriority(priority),
      queue: JobQueueName(owner: Owner(String(decoding: owner, as: UTF8.self)), batch: batch))
  }
}

extension JobRow {
  /// The job's position in the queue.
  var position: QueuePosition { QueuePosition(priority: priority, owner: owner, batch: batch) }

  /// The job, as far as the choice of the next job depends on it.
  var candidate: QueuedCandidate {
    QueuedCandidate(
      number: number, id: jobID, position: position, rank: rank,
      notBefore: notBefore.map(Timestamp.init), origin: origin)
  }

  /// Replaces invalid priorities of damaged rows by the nearest valid one, so that these jobs are
  /// claimed too.
  static func repairPriorities(_ db: Database) throws {
    let (lowest, highest) = (validPriority(.min), validPriority(.max))
    for (wrong, level) in [("> \(highest)", highest), ("< \(lowest)", lowest)] {
      try db.execute(
        sql: """
          UPDATE jobs SET priority = \(level) WHERE phase = 0 AND waiting = 0 AND priority \(wrong)
          """)
    }
  }
}
