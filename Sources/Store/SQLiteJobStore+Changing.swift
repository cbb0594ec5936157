public import Jobs
internal import Logging

/// What changes something: each is durable when it returns.
extension SQLiteJobStore {
  /// Saves new jobs in one commit, with whatever else waits; their encoding costs the caller's thread nothing.
  public func submit(_ jobs: [Job], key: IdempotencyKey?, capacity: Int) async throws(StoreError)
    -> SubmitOutcome
  {
    let rows = try await compute {
      try jobs.map { try JobRow($0, record: JobRecord.data(of: $0)) }
    }
    let outcome = try await writer.perform { ledger in
      try ledger.submit(rows, key: key, capacity: capacity)
    }
    switch outcome {
    case .accepted: return .accepted
    case .keyReused: return .keyReused
    case .queueFull: return .queueFull
    case .repeated(let earlier):
      return .repeated(try await compute { try earlier.map { try $0.job() } })
    }
  }

  /// Takes jobs by the index of the queue: its time grows with their number, not with the queue's length.
  public func claim(_ count: Int, at moment: Timestamp) async throws(StoreError) -> Claimed {
    let (rows, nextDue) = try await writer.perform { try $0.claim(count, at: moment) }
    guard !rows.isEmpty else { return Claimed(jobs: [], nextDue: nextDue) }
    return try await compute { [log] in
      var claimed = Claimed(jobs: [], nextDue: nextDue)
      for row in rows {
        guard let job = try? row.job(), let number = row.claim else {
          log.error("a queued job's record can't be read", metadata: ["number": "\(row.number)"])
          continue
        }
        claimed.jobs.append((job, Claim(job: job.id, number: number)))
      }
      return claimed
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

  /// Makes room by the index of images that may give way; images that nothing refers to go first.
  public func reserve(_ image: ImageDigest, bytes: Int, for holder: ImageHolder, limit: Int)
    async throws(StoreError) -> Reservation
  {
    try await writer.perform {
      try $0.reserve(image.data, bytes: bytes, for: Holder(holder), limit: limit)
    }
  }

  /// Ends the reservations of a job that will not be submitted.
  public func release(_ upcoming: JobID) async throws(StoreError) {
    try await writer.perform { try $0.endReservations(of: Holder(upcoming: upcoming.data)) }
  }

  /// Forgets jobs whose time has come, the earliest first, in one commit.
  public func expire(at moment: Timestamp, count: Int) async throws(StoreError) -> [JobID] {
    try await writer.perform { try $0.expire(at: moment, count: count) }
  }

  /// Marks images that nothing refers to as leaving, and names them.
  public func abandonedImages(_ count: Int) async throws(StoreError) -> [ImageDigest] {
    try await writer.perform { try $0.abandonedImages(count) }
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
