internal import Foundation
internal import GRDB
package import Jobs
internal import Logging

/// Changes. Each one is durable when its method returns.
extension SQLiteJobStore {
  /// Stores new jobs, in one commit together with other writes. Many jobs are encoded on a reading
  /// thread instead of the caller's. A repeated request with a known key needs no commit.
  package func submit(_ jobs: [Job], key: IdempotencyKey?, capacity: QueueCapacity)
    async throws(StoreError)
    -> SubmitOutcome
  {
    switch try await prepare(jobs, key) {
    case .answered(let outcome): return outcome
    case .new(let rows):
      let outcome = try await writer.perform(isAdding: true) { transaction in
        try transaction.submit(rows, key: key, capacity: capacity)
      }
      switch outcome {
      case .accepted: return .accepted
      case .queueFull(let places): return .queueFull(wanting: places)
      case .recordsFull: return .recordsFull
      case .imageGone: return .imageGone
      // Another request with the same key was committed meanwhile.
      case .known(let known):
        return try await read { try IdempotencyKeys.answer(to: known, $0) }
      }
    }
  }

  private enum Prepared: Sendable {
    case answered(SubmitOutcome)
    case new([(row: JobRow, job: Job)])
  }

  /// Returns the answer to a known key, or creates the rows, in one step on a reading thread.
  private func prepare(_ jobs: [Job], _ key: IdempotencyKey?) async throws(StoreError) -> Prepared {
    let rows: @Sendable () throws -> Prepared = {
      .new(try jobs.map { (row: try JobRow($0, record: JobRecord.data(of: $0)), job: $0) })
    }
    guard let key else { return try await compute(for: jobs.count, rows) }
    return try await read { db in
      guard let known = try IdempotencyKeys.find(key, db) else { return try rows() }
      return .answered(try IdempotencyKeys.answer(to: known, db))
    }
  }

  /// Deletes expired idempotency keys in one commit, by the index of their age.
  package func deleteKeys(olderThan age: Duration, count: Int) async throws(StoreError) -> Int {
    let moment = now() + (.zero - age)
    return try await writer.perform { try $0.deleteKeys(before: moment, count: count) }
  }

  package func addBytes(
    _ came: [Owner: Int], on day: Int
  ) async throws(StoreError) -> [Owner: Int] {
    try await writer.perform(isSynced: false) { try $0.addBytes(came, on: day) }
  }

  /// Finds jobs by the indexes of the queue: the time grows with the number of claimed jobs, not
  /// with the number of queued jobs. If many jobs with a busy origin are seen for the first time,
  /// the claim takes several commits.
  package func claim(
    _ count: Int, for instance: Instance, room: OriginCapacity, owners: OwnerCapacity
  ) async throws(StoreError) -> Claimed {
    let moment = now()
    var claimed = Claimed(jobs: [], nextDue: nil)
    var step = Step(room: room, owners: owners)
    var isDone = false
    repeat {
      do throws(StoreError) {
        // If an unsynced claim is lost, its job is queued at the next start. The same happens to a
        // claim that is not lost.
        step = try await writer.perform(isSynced: false) {
          [leases, wanted = count - claimed.jobs.count, room = step.room, owners = step.owners] in
          try leases.check(instance)
          return try Step(wanted, for: instance, at: moment, room: room, owners: owners, in: &$0)
        }
        let jobs = try await self.claimed(step.rows)
        claimed.jobs += jobs
        // Claim a replacement for an unreadable job: fewer jobs than requested would mean that the
        // queue is empty.
        isDone = step.isDone && jobs.count == step.rows.count
      } catch {
        // Jobs that earlier commits claimed must still reach their workers.
        if claimed.jobs.isEmpty { throw error }
        log.error("failed to claim more jobs", metadata: ["error": "\(error)"])
        break
      }
      claimed.shared.formUnion(step.shared)
      claimed.isQueueEmpty = step.isQueueEmpty
    } while !isDone && !Task.isCancelled
    claimed.nextDue = step.nextDue
    return claimed
  }

  /// The result of one commit of a claim.
  private struct Step: Sendable {
    var rows: [JobRow] = []
    /// The requests of claimed jobs that further queued jobs have too.
    var shared: Set<Fingerprint> = []
    var room: OriginCapacity
    var owners: OwnerCapacity
    var nextDue: Timestamp?
    var isQueueEmpty = false
    var isDone = false

    init(room: OriginCapacity, owners: OwnerCapacity) {
      (self.room, self.owners) = (room, owners)
    }

    init(
      _ count: Int, for instance: Instance, at moment: Timestamp, room: OriginCapacity,
      owners: OwnerCapacity, in transaction: inout WriteTransaction
    ) throws {
      (self.room, self.owners) = (room, owners)
      guard try transaction.makeDueJobsReady(at: moment) else { return }
      var dequeue = Dequeue(count, at: moment, room: room, owners: owners, of: transaction)
      try dequeue.run(for: instance, at: moment, in: &transaction)
      let chooser = dequeue.chooser
      transaction.counters.comparedPositions += chooser.inspected
      (rows, self.room, self.owners) = (dequeue.claimed, chooser.room, chooser.owners)
      isDone = chooser.isDone
      shared = try transaction.equalQueuedRequests(of: rows)
      nextDue = try transaction.counters.nextDue.moment(transaction.db)
      isQueueEmpty = transaction.counters[.queued] == 0
    }
  }

  /// Claims jobs by the index of requests. Usually no equal job is queued, and this costs one
  /// query.
  package func claim(equalTo request: Fingerprint, count: Int, for instance: Instance)
    async throws(StoreError) -> [(job: Job, claim: Claim)]
  {
    let requests = writer.queuedRequests
    let isQueued = try await read { try requests.contains(request.data, $0) }
    guard isQueued, count > 0 else { return [] }
    return try await claimed(
      writer.perform(isSynced: false) { [leases, now] in
        try leases.check(instance)
        return try $0.claim(equalTo: request.data, count: count, for: instance, at: now())
      })
  }

  /// Decodes the jobs of claimed rows, outside the writing thread.
  private func claimed(_ rows: [JobRow]) async throws(StoreError) -> [(job: Job, claim: Claim)] {
    guard !rows.isEmpty else { return [] }
    return try await compute(for: rows.count) { [log] in
      rows.compactMap { row in
        do {
          let job = try row.job()
          return row.heldBy.map { (job, $0) }
        } catch {
          log.error("skipping unreadable queued job", metadata: ["error": "\(error)"])
          return nil
        }
      }
    }
  }

  /// Changes a job. `change` runs on the writing thread, so it must be quick.
  package func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> Job? {
    try await writer.perform { try $0.update(id, under: claim, change) }
  }

  /// Changes a job in the same way. The same transaction checks the counters for a free slot in the
  /// queue.
  package func update(
    _ id: JobID, within capacity: QueueCapacity,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> UpdateOutcome {
    try await writer.perform { [now] in
      try $0.update(id, within: capacity, at: now(), change)
    }
  }

  /// Deletes the job, its tags and its references to images.
  package func remove(
    _ id: JobID, if condition: @escaping @Sendable (Job) -> Bool
  ) async throws(StoreError) -> Removal {
    try await writer.perform { try $0.remove(id, if: condition) }
  }

  /// Changes the jobs one after the other. A job that can't be changed because its record is
  /// unreadable is logged and reported as lost.
  package func complete(_ completion: Completion) async throws(StoreError) -> Completed {
    var row: CacheRow?
    if let entry = completion.entry { row = try await compute(for: 1) { try CacheRow(entry) } }
    let (results, evicted) = try await writer.perform { [now, row] in
      try $0.complete(completion, row: row, at: now())
    }
    let jobs = zip(completion.claims, results).map { claim, result -> Job? in
      do throws(StoreError) { return try result.get() } catch {
        log.error(
          "failed to complete a job", metadata: ["job": "\(claim.job)", "error": "\(error)"])
        return nil
      }
    }
    return Completed(jobs: jobs, evicted: evicted.map { ImageName($0) })
  }

  /// Evicts images by the index of evictable ones; unreferenced images go first.
  package func reserve(
    _ image: ImageDigest, bytes: Int, as holder: JobID, of instance: Instance, limit: Int
  ) async throws(StoreError) -> Reservation {
    // If an unsynced reservation is lost, its file is removed by the sweep at the next start.
    try await writer.perform(isSynced: false) { [leases] in
      try leases.check(instance)
      return try $0.reserve(
        image.data, bytes: bytes, as: holder.data, of: instance, limit: limit)
    }
  }

  /// Removes all references to the image, in several commits if necessary. Meanwhile, other jobs
  /// may still read it.
  package func markLost(_ image: ImageDigest, for instance: Instance) async throws(StoreError)
    -> LostImage?
  {
    var jobs: [JobID] = []
    while true {
      let step: ReferenceRemoval?
      do throws(StoreError) {
        step = try await writer.perform { try $0.removeReferences(to: image.data, for: instance) }
      } catch {
        guard !jobs.isEmpty else { throw error }
        return LostImage(nil, jobs: jobs)
      }
      guard let step else { return jobs.isEmpty ? nil : LostImage(nil, jobs: jobs) }
      jobs += step.jobs
      if !step.isMore { return LostImage(ImageName(image), jobs: jobs) }
    }
  }

  /// Releases a holder's reservations.
  package func release(_ holder: JobID) async throws(StoreError) {
    try await writer.perform(isSynced: false) { try $0.release(holder.data) }
  }

  /// Deletes expired jobs in one commit, the earliest first.
  package func expire(_ count: Int) async throws(StoreError) -> [JobID] {
    try await writer.perform { [now] in try $0.expire(at: now(), count: count) }
  }

  /// Marks unreferenced images as pending deletion and returns their names.
  package func unreferencedImages(
    _ count: Int, for instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    try await writer.perform(isSynced: false) {
      try $0.markUnreferenced(count, for: instance).map { ImageName($0) }
    }
  }

  /// Always empty: no answer is lost within one process, and a deleted image that is stored again
  /// has the same name.
  package func imagesPendingDeletion(
    _ count: Int, of instance: Instance
  ) async throws(StoreError) -> [ImageName] { [] }

  /// Checks on a reading thread first, because orphaned files are rare.
  package func markOrphans(
    _ images: [ImageName], for instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    let unknown = try await read { db in
      let statement = try db.cachedStatement(sql: "SELECT 1 FROM images WHERE digest = ?")
      return try images.map(\.digest).filter {
        try Int.fetchOne(statement, arguments: [$0.data]) == nil
      }
    }
    guard !unknown.isEmpty else { return [] }
    return try await writer.perform {
      try $0.markUnknown(unknown, for: instance).map { ImageName($0) }
    }
  }

  /// Reads the image's size. Only this process deletes files, so names have no generation.
  package func keptImage(_ digest: ImageDigest) async throws(StoreError) -> KeptImage? {
    try await read { db in
      let statement = try db.cachedStatement(sql: "SELECT bytes FROM images WHERE digest = ?")
      let bytes = try Int.fetchOne(statement, arguments: [digest.data])
      return bytes.map { KeptImage(ImageName(digest), bytes: $0) }
    }
  }

  /// Deletes the rows of images whose bytes are gone. An image with references stays.
  package func confirmDeletion(_ images: [ImageName]) async throws(StoreError) {
    try await writer.perform(isSynced: false) {
      for image in images { try $0.deleteImage(image.digest) }
    }
  }
}

/// A change to a job that is not written yet.
struct JobChange {
  /// The row before the change.
  let old: JobRow
  /// The row to write, with the old rank and claim; `nil` if nothing changed.
  let row: JobRow?
  /// The job before the change.
  let before: Job
  /// The job after the change.
  let after: Job

  /// - Parameters:
  ///   - isBatchStopped: whether the job's batch is cancelled or purged.
  ///   - change: returns `false` to leave the job unchanged.
  /// - Throws: an error if the record can't be decoded or encoded.
  init(of old: JobRow, isBatchStopped: Bool = false, by change: (inout Job) -> Bool) throws {
    self.old = old
    before = try old.job()
    var changed = before
    let isChanged = change(&changed) && changed != before
    if isBatchStopped { changed.discardResult(after: before) }
    after = isChanged ? changed : before
    row = isChanged ? try old.updated(to: changed) : nil
  }

  /// The effect on the job's position in the queue.
  var place: QueueMove { QueueMove(from: before, to: after) }
}

/// Queries that only read.
extension SQLiteJobStore {
  /// Reads the job on a reading thread. A job of a purged batch is not found, even before it is deleted.
  package func job(_ id: JobID) async throws(StoreError) -> Job? {
    try await read { db in
      guard let row = try JobRow.fetch(id.data, db) else { return nil }
      if row.batch != 0, try BatchRow.isPurged(row.batch, db) { return nil }
      return try row.job()
    }
  }

  /// Lists jobs by index, newest first. Skips expired jobs.
  package func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage {
    try await readUnlessCancelled { try JobListing(query: query).page($0) }
  }

  /// Searches an index of jobs with a low-data image. Skips unreadable jobs.
  package func jobsWithLowDataImages(after id: JobID?, count: Int) async throws(StoreError) -> [Job]
  {
    try await read { [log] db in
      let rows = try JobRow.fetchAll(
        "low = 1 AND id > ? ORDER BY id LIMIT ?", [id?.data ?? Data(), count], db)
      return rows.compactMap { row in
        do { return try row.job() } catch {
          log.error("skipping unreadable job", metadata: ["error": "\(error)"])
          return nil
        }
      }
    }
  }

  /// The counts after the last commit. Does not use the disk.
  package func counts() async throws(StoreError) -> StoreCounts { writer.counts }
}
