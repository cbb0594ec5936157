internal import Foundation
internal import GRDB
internal import Jobs

/// Into the queue, out of it, and the changes in between.
extension Ledger {
  /// What became of a submission, its jobs not decoded yet.
  enum Submitted: Sendable {
    case accepted, keyReused, queueFull
    case repeated([JobRow])
  }

  mutating func submit(_ rows: [JobRow], key: IdempotencyKey?, capacity: Int) throws -> Submitted {
    if let key, let earlier = try answer(to: key) { return earlier }
    guard tallies[.queued] + rows.count <= capacity else { return .queueFull }
    let keyNumber = try key.map(remember)
    for var row in rows {
      row.rank = try tallies.ranks.next(db)
      row.key = keyNumber
      try insert(row)
      if row.source != nil { try changeReferences(from: nil, to: row, holding: row.job()) }
      try endReservations(of: Holder(upcoming: row.id))
    }
    return .accepted
  }

  private func answer(to key: IdempotencyKey) throws -> Submitted? {
    let found = try one(
      "SELECT number, fingerprint FROM keys WHERE owner = ? AND key = ?",
      [key.owner.data, Data(key.key.utf8)])
    guard let found else { return nil }
    let fingerprint: Data = found[1]
    guard fingerprint == key.fingerprint.data else { return .keyReused }
    let number: Int64 = found[0]
    return .repeated(try JobRow.fetchAll("key = ? ORDER BY number", [number], db))
  }

  private func remember(_ key: IdempotencyKey) throws -> Int64 {
    try execute(
      "INSERT INTO keys (owner, key, fingerprint) VALUES (?, ?, ?)",
      [key.owner.data, Data(key.key.utf8), key.fingerprint.data])
    return db.lastInsertedRowID
  }

  /// Takes jobs from the head of the queue.
  /// - Returns: their rows as they then are, and when the next job that still waits is due.
  mutating func claim(_ count: Int, at moment: Timestamp) throws -> ([JobRow], nextDue: Timestamp?)
  {
    try execute(
      "UPDATE jobs SET waiting = 0 WHERE phase = 0 AND waiting = 1 AND not_before <= ?",
      [moment.milliseconds])
    var taken: [JobRow] = []
    while taken.count < count {
      let heads = try JobRow.fetchAll(
        "phase = 0 AND waiting = 0 ORDER BY priority DESC, rank LIMIT ?", [count - taken.count], db)
      if heads.isEmpty { break }
      for row in heads {
        if let notBefore = row.notBefore, notBefore > moment.milliseconds {
          // The clock went back since this one was due.
          try execute("UPDATE jobs SET waiting = 1 WHERE number = ?", [row.number])
        } else {
          taken.append(try take(row, at: moment))
        }
      }
    }
    let next =
      try one(
        "SELECT min(not_before) FROM jobs WHERE phase = 0 AND waiting = 1")?[0] as Int64?
    return (taken, next.map(Timestamp.init))
  }

  private mutating func take(_ row: JobRow, at moment: Timestamp) throws -> JobRow {
    var row = row
    row.claim = try tallies.claims.next(db)
    row.claimedAt = moment.milliseconds
    try execute(
      "UPDATE jobs SET phase = 1, claim = ?, claimed_at = ?, not_before = NULL WHERE number = ?",
      [row.claim, row.claimedAt, row.number])
    tallies[.queued] -= 1
    tallies[.loading] += 1
    if row.tags != nil { try removeTags(of: row) }
    row.phase = .loading
    row.notBefore = nil
    if row.tags != nil { try addTags(of: row) }
    return row
  }

  mutating func update(
    _ id: JobID, under claim: Claim?, _ change: (inout Job) -> Bool
  ) throws -> Job? {
    guard let row = try JobRow.fetch(id.data, db) else { return nil }
    if let claim, claim.job != id || claim.number != row.claim { return nil }
    let job = try row.job()
    var changed = job
    guard change(&changed), changed != job else { return job }
    try save(changed, over: row, holding: job)
    return changed
  }

  private mutating func save(_ changed: Job, over row: JobRow, holding job: Job) throws {
    var new = try row.updated(to: changed)
    if changed.priority > job.priority || (job.phase.isFinished && changed.phase == .queued) {
      new.rank = try tallies.ranks.next(db)
    } else if changed.priority < job.priority {
      // Ahead of every rank ever given is ahead of those at that level.
      new.rank = -(try tallies.ranksAhead.next(db))
    }
    if changed.phase != .loading { new.claim = nil }
    try replace(row, by: new, holding: changed)
  }

  mutating func remove(_ id: JobID) throws -> Bool {
    guard let row = try JobRow.fetch(id.data, db) else { return false }
    try delete(row)
    return true
  }

  mutating func expire(at moment: Timestamp, count: Int) throws -> [JobID] {
    let rows = try JobRow.fetchAll(
      "expires_at <= ? ORDER BY expires_at LIMIT ?", [moment.milliseconds, count], db)
    for row in rows { try delete(row) }
    return rows.compactMap { JobID(data: $0.id) }
  }

  /// - Returns: how many jobs went back into the queue, and those whose record can't be read.
  mutating func recover() throws -> (requeued: Int, unreadable: [JobID]) {
    var requeued = 0
    var unreadable: [JobID] = []
    for owner in try JobListing.owners(db) {
      for row in try JobRow.fetchAll("owner = ? AND phase = 1", [owner], db) {
        guard var job = try? row.job() else {
          unreadable += [JobID(data: row.id)].compactMap(\.self)
          continue
        }
        let loading = job
        job.requeueAfterCrash()
        try save(job, over: row, holding: loading)
        requeued += 1
      }
    }
    try endAllReservations()
    try stopLeaving()
    return (requeued, unreadable)
  }
}
