import Jobs
import PostgreSQL
import Synchronization
import TestSupport
import Testing

@testable import SQL

/// A store as used by one instance. Calls with a time set the store's clock.
struct StoreUnderTest: Sendable {
  let sql: SQLJobStore
  /// The store by the protocols that the service uses.
  var base: any JobStore & CacheStore { sql }
  let clock: ManualClock
  private let counted: CountedSQLite?
  private let registration = Registration()

  private final class Registration: Sendable {
    let task = Mutex<Task<Instance, any Error>?>(nil)
  }

  init(_ sql: SQLJobStore, _ clock: ManualClock, _ counted: CountedSQLite? = nil) {
    (self.sql, self.clock, self.counted) = (sql, clock, counted)
  }

  /// The work of an SQLite database so far.
  var work: CountedSQLite.Work {
    guard let counted else { preconditionFailure("not an SQLite store") }
    return counted.work
  }

  /// Runs a body on the thread that writes, in a transaction.
  func onWriter<Value: Sendable>(
    _ body: @escaping @Sendable (Transaction) throws -> Value
  ) async throws -> Value {
    try await sql.perform(on: sql.writing, isSynced: false, body)
  }

  /// The instance, registered when it is first needed, with a lease longer than any test.
  var instance: Instance {
    get async throws {
      let task = registration.task.withLock { task in
        if let task { return task }
        let new = Task { [base] in try await base.register(for: .seconds(1 << 40)) }
        task = new
        return new
      }
      return try await task.value
    }
  }

  /// The same store, used by another instance.
  var other: StoreUnderTest { StoreUnderTest(sql, clock, counted) }

  /// Registers a new instance for later calls. The claims of the old one stay.
  func becomeAnother() { registration.task.withLock { $0 = nil } }

  func close() async { await sql.close() }
}

/// The queue.
extension StoreUnderTest {
  func submit(
    _ jobs: [Job], key: IdempotencyKey?, capacity: QueueCapacity
  ) async throws -> SubmitOutcome {
    try await base.submit(jobs, key: key, capacity: capacity)
  }

  /// Submits jobs with an unlimited capacity.
  func submit(_ jobs: Job...) async throws -> SubmitOutcome {
    try await submit(jobs, key: nil, capacity: .max)
  }

  func claim(
    _ count: Int, at moment: Timestamp, room: OriginCapacity = .unlimited,
    owners: OwnerCapacity = .unlimited
  ) async throws -> Claimed {
    clock.set(moment)
    return try await base.claim(count, for: instance, room: room, owners: owners)
  }

  func claim(
    equalTo request: Fingerprint, count: Int, at moment: Timestamp
  ) async throws -> [(job: Job, claim: Claim)] {
    clock.set(moment)
    return try await base.claim(equalTo: request, count: count, for: instance)
  }

  /// Claims the next job.
  func claimOne(at moment: Timestamp = .at(1_000)) async throws -> (job: Job, claim: Claim)? {
    try await claim(1, at: moment).jobs.first
  }

  func complete(_ completion: Completion) async throws -> Completed {
    try await base.complete(completion)
  }

  /// Requeues the jobs of all lost instances.
  /// - Returns: the number of requeued jobs.
  func recover() async throws -> Int {
    var count = 0
    while true {
      let jobs = try await base.recoverExpired(3)
      count += jobs.count
      if jobs.count < 3 { return count }
    }
  }

  /// Submits a job and completes it with this image.
  func succeed(
    _ number: Int64, with digest: ImageDigest, bytes: Int, limit: Int = .max / 2
  ) async throws -> Job? {
    let job = Job.sample(number)
    _ = try await submit(job)
    guard let (_, claim) = try await claimOne(at: .at(number)) else { return nil }
    let holder = JobID(at: .at(number))
    _ = try await reserve(digest, bytes: bytes, as: holder, limit: limit)
    let completion = Completion([claim], releasing: holder) {
      $0.succeed(with: digest, bytes: bytes, at: .at(number))
      return true
    }
    return try await complete(completion).jobs[0]
  }
}

/// Jobs.
extension StoreUnderTest {
  func job(_ id: JobID) async throws -> Job? { try await base.job(id) }

  func jobs(_ query: JobQuery) async throws -> JobPage { try await base.jobs(query) }

  func jobsWithLowDataImages(after id: JobID?, count: Int) async throws -> [Job] {
    try await base.jobsWithLowDataImages(after: id, count: count)
  }

  func update(
    _ id: JobID, under claim: Claim?, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws -> Job? {
    try await base.update(id, under: claim, change)
  }

  func update(
    _ id: JobID, within capacity: QueueCapacity,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws -> UpdateOutcome {
    try await base.update(id, within: capacity, change)
  }

  func remove(_ id: JobID, if condition: @escaping @Sendable (Job) -> Bool) async throws -> Removal
  {
    try await base.remove(id, if: condition)
  }

  /// Removes a job, whatever its state.
  /// - Returns: whether it existed.
  func remove(_ id: JobID) async throws -> Bool { try await remove(id) { _ in true } != .unknown }

  func expire(_ count: Int, at moment: Timestamp) async throws -> [JobID] {
    clock.set(moment)
    return try await base.expire(count)
  }

  func deleteKeys(before moment: Timestamp, count: Int) async throws -> Int {
    try await base.deleteKeys(olderThan: clock.now - moment, count: count)
  }

  func counts() async throws -> StoreCounts { try await base.counts() }
}

/// Images, by their digests. Generations differ between stores.
extension StoreUnderTest {
  /// A ``Reservation``.
  enum ReservationResult: Equatable {
    case reserved(evicted: [ImageDigest])
    case full, pendingDeletion
    case incomplete(evicted: [ImageDigest])
  }

  func reserve(
    _ image: ImageDigest, bytes: Int, as holder: JobID, limit: Int
  ) async throws -> ReservationResult {
    let reservation = try await base.reserve(
      image, bytes: bytes, as: holder, of: instance, limit: limit)
    switch reservation {
    case .reserved(let name, let evicted):
      #expect(name.digest == image)
      return .reserved(evicted: evicted.map(\.digest))
    case .full: return .full
    case .incomplete(let evicted): return .incomplete(evicted: evicted.map(\.digest))
    case .pendingDeletion: return .pendingDeletion
    }
  }

  func release(_ holder: JobID) async throws { try await base.release(holder) }

  func markLost(_ image: ImageDigest) async throws -> [JobID]? {
    try await base.markLost(image, for: instance)?.jobs
  }

  func unreferencedImages(_ count: Int) async throws -> [ImageDigest] {
    try await base.unreferencedImages(count, for: instance).map(\.digest)
  }

  func confirmDeletion(_ images: [ImageDigest]) async throws {
    var names: [ImageName] = []
    for image in images {
      names.append(try await base.keptImage(image)?.name ?? ImageName(image))
    }
    try await base.confirmDeletion(names)
  }

  func markOrphans(_ images: [ImageDigest]) async throws -> [ImageDigest] {
    try await base.markOrphans(images.map { ImageName($0) }, for: instance).map(\.digest)
  }
}

/// The cache.
extension StoreUnderTest {
  func entries(for keys: [Fingerprint]) async throws -> [[CacheEntry]] {
    try await base.entries(for: keys)
  }

  func touch(_ uses: [CacheEntry.ID: Timestamp]) async throws { try await base.touch(uses) }

  func delete(_ ids: [CacheEntry.ID]) async throws { try await base.delete(ids) }

  func delete(key: Fingerprint) async throws -> Int { try await base.delete(key: key) }

  func delete(resource: Fingerprint, count: Int) async throws -> [ImageDigest] {
    try await base.delete(resource: resource, count: count)
  }

  func clear() async throws -> Int { try await base.clear() }

  func variant(_ id: CacheEntry.ID) async throws -> StoredVariant? { try await base.variant(id) }

  func save(
    _ variant: StoredVariant, within limit: Int, releasing holder: JobID,
    lastUse: @escaping CacheEntry.LastUse = { _ in nil }
  ) async throws {
    try await base.save(variant, within: limit, releasing: holder, lastUse: lastUse)
  }

  func cacheCounts() async throws -> (entries: Int, bytes: Int) { try await base.cacheCounts() }
}

/// Checks of the internal state.
extension StoreUnderTest {
  /// Whether a job, a cache entry or a reservation refers to the image.
  func refers(to image: ImageDigest) async throws -> Bool { try await sql.refers(to: image) }

  /// Expects the counters to match the rows.
  func audit(_ location: SourceLocation = #_sourceLocation) async throws {
    try await sql.audit(location)
  }
}
