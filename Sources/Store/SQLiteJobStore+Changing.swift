internal import Foundation
internal import GRDB
public import Jobs
internal import Logging

/// What changes something: each is durable when it returns.
extension SQLiteJobStore {
  /// Saves new jobs in one commit, with whatever else waits; their encoding costs the caller's thread nothing.
  public func submit(_ jobs: [Job], key: IdempotencyKey?, capacity: Int) async throws(StoreError)
    -> SubmitOutcome
  {
    let rows = try await compute {
      try jobs.map { (row: try JobRow($0, record: JobRecord.data(of: $0)), job: $0) }
    }
    let outcome = try await writer.perform { ledger in
      try ledger.submit(rows, key: key, capacity: capacity)
    }
    switch outcome {
    case .accepted: return .accepted
    case .keyReused: return .keyReused
    case .queueFull: return .queueFull
    case .imageGone: return .imageGone
    case .repeated(let earlier):
      return .repeated(try await compute { try earlier.map { try $0.job() } })
    }
  }

  /// Takes jobs by the indexes of the queue: its time grows with their number, not with the queue's length. Where many
  /// jobs are seen for the first time whose origins have no room, it takes several commits.
  public func claim(_ count: Int, at moment: Timestamp, room: OriginRoom) async throws(StoreError)
    -> Claimed
  {
    var rows: [JobRow] = []
    var shared: Set<Fingerprint> = []
    var step = Step(room: room)
    repeat {
      do throws(StoreError) {
        step = try await writer.perform { [wanted = count - rows.count, room = step.room] in
          try Step(wanted, at: moment, room: room, in: &$0)
        }
      } catch {
        // What earlier commits handed over must get to its workers.
        if rows.isEmpty { throw error }
        log.error("a claim ended early", metadata: ["error": "\(error)"])
        break
      }
      rows += step.rows
      shared.formUnion(step.shared)
    } while !step.isDone
    var claimed = Claimed(jobs: try await claimed(rows), nextDue: step.nextDue)
    claimed.shared = shared
    return claimed
  }

  /// What one commit of a claim handed over.
  private struct Step: Sendable {
    var rows: [JobRow] = []
    /// What among theirs further queued jobs ask for.
    var shared: Set<Fingerprint> = []
    var room: OriginRoom
    var nextDue: Timestamp?
    var isDone = false

    init(room: OriginRoom) { self.room = room }

    init(_ count: Int, at moment: Timestamp, room: OriginRoom, in ledger: inout Ledger) throws {
      self.room = room
      guard try ledger.wakeDue(at: moment) else { return }
      var handover = Handover(count, at: moment, room: room, of: ledger)
      try handover.run(in: &ledger)
      (rows, self.room, isDone) = (handover.taken, handover.room, handover.isDone)
      shared = try ledger.shared(among: rows)
      nextDue = try ledger.tallies.nextDue.moment(ledger.db)
    }
  }

  /// Takes jobs by the index of what they ask; while none of the kind is queued, as is usual, it costs a look only.
  public func claim(equalTo request: Fingerprint, count: Int, at moment: Timestamp)
    async throws(StoreError) -> [(job: Job, claim: Claim)]
  {
    let isQueued = try await read { db in
      let statement = try db.cachedStatement(
        sql: "SELECT 1 FROM jobs WHERE phase = 0 AND request = ? LIMIT 1")
      return try Int.fetchOne(statement, arguments: [request.data]) != nil
    }
    guard isQueued, count > 0 else { return [] }
    return try await claimed(
      writer.perform { try $0.claim(equalTo: request.data, count: count, at: moment) })
  }

  /// The jobs of rows just taken, decoded where that holds up nobody.
  private func claimed(_ rows: [JobRow]) async throws(StoreError) -> [(job: Job, claim: Claim)] {
    guard !rows.isEmpty else { return [] }
    return try await compute { [log] in
      rows.compactMap { row in
        guard let job = try? row.job(), let number = row.claim else {
          log.error("a queued job's record can't be read", metadata: ["number": "\(row.number)"])
          return nil
        }
        return (job, Claim(job: job.id, number: number))
      }
    }
  }

  /// Changes a job; `change` runs on the thread that writes, so it must be quick.
  public func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> Job? {
    try await writer.perform { try $0.update(id, under: claim, change) }
  }

  /// Forgets the job, its tags and its hold on images.
  public func remove(_ id: JobID) async throws(StoreError) -> Bool {
    try await writer.perform { try $0.remove(id) }
  }

  /// Changes the jobs one after the other; one that can't be changed, as its record can't be read, is logged and counts
  /// as lost.
  public func settle(_ settlement: Settlement) async throws(StoreError) -> [Job?] {
    var row: CacheRow?
    if let entry = settlement.entry { row = try await compute { try CacheRow(entry) } }
    let results = try await writer.perform { [now, row] in
      try $0.settle(settlement, row: row, at: now())
    }
    return zip(settlement.claims, results).map { claim, result in
      do throws(StoreError) { return try result.get() } catch {
        log.error(
          "a job can't be settled", metadata: ["job": "\(claim.job)", "error": "\(error)"])
        return nil
      }
    }
  }

  /// Makes room by the index of images that may give way; images that nothing refers to go first.
  public func reserve(_ image: ImageDigest, bytes: Int, as holder: JobID, limit: Int)
    async throws(StoreError) -> Reservation
  {
    try await writer.perform {
      try $0.reserve(image.data, bytes: bytes, as: holder.data, limit: limit)
    }
  }

  /// Ends a holder's reservations.
  public func release(_ holder: JobID) async throws(StoreError) {
    try await writer.perform { try $0.release(holder.data) }
  }

  /// Forgets jobs whose time has come, the earliest first, in one commit.
  public func expire(at moment: Timestamp, count: Int) async throws(StoreError) -> [JobID] {
    try await writer.perform { try $0.expire(at: moment, count: count) }
  }

  /// Marks images that nothing refers to as leaving, and names them.
  public func abandonedImages(_ count: Int) async throws(StoreError) -> [ImageDigest] {
    try await writer.perform { try $0.leave(abandoned: count) }
  }

  /// Forgets images whose bytes are gone; one that is referred to stays.
  public func forget(_ images: [ImageDigest]) async throws(StoreError) {
    try await writer.perform { for image in images { try $0.forget(image) } }
  }

  /// Puts back what was being worked on: call it after opening, before anything is claimed or reserved.
  public func recover() async throws(StoreError) -> Int {
    let (requeued, unreadable) = try await writer.perform { try $0.recover() }
    for id in unreadable {
      log.error("a job's record can't be read; it stays as it is", metadata: ["job": "\(id)"])
    }
    return requeued
  }
}
