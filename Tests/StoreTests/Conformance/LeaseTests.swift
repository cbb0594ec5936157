import Jobs
import TestSupport
import Testing

@Suite("Leases of instances that share a store")
struct LeaseTests {
  private static let lease = Duration.seconds(10)

  /// Two instances. One of them has claimed all jobs.
  private struct Two {
    let jobs: OpenJobs
    let store: StoreUnderTest
    let (lost, other): (Instance, Instance)
    let claims: [Claim]

    init(_ adapter: StoreAdapter, jobs count: Int64 = 1) async throws {
      jobs = try OpenJobs(adapter)
      store = jobs.store
      lost = try await store.base.register(for: lease)
      other = try await store.base.register(for: .seconds(1_000))
      _ = try await store.submit((0..<count).map { .sample($0) }, key: nil, capacity: 99)
      claims = try await store.base.claim(99, for: lost, room: .unlimited).jobs.map(\.claim)
      #expect(claims.count == count)
    }
  }

  private static func succeed(_ job: inout Job) -> Bool {
    job.succeed(with: .sample(1), bytes: 10, at: .at(9))
    return true
  }

  @Test("instance numbers are unique, also after reopening", arguments: StoreAdapter.allCases)
  func numbers(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    var numbers: [Int64] = []
    for _ in 0..<3 { numbers.append(try await jobs.store.base.register(for: .zero).number) }
    let reopened = try await jobs.reopened()
    numbers.append(try await reopened.base.register(for: .zero).number)
    #expect(numbers == Set(numbers).sorted() && numbers[0] > Instance.none.number)
    await reopened.close()
  }

  @Test(
    "jobs of an expired lease are requeued once, and its claims become invalid",
    arguments: StoreAdapter.allCases)
  func takenOver(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let (store, job) = (two.store, two.claims[0].job)
    for second: Int64 in [9, 18] {
      store.clock.set(.at(second * 1_000))
      #expect(try await store.base.recoverExpired(9).isEmpty)
      let renewal = try await store.base.renew(two.lost, for: Self.lease)
      #expect(renewal == Renewal(at: .at(second * 1_000), holding: [two.claims[0]]))
    }
    store.clock.set(.at(28_001))
    let recovered = try await store.base.recoverExpired(9)
    #expect(recovered.map(\.id) == [job] && recovered.map(\.phase) == [.queued])
    #expect(recovered[0].tries == 0, "the job did not fail")
    #expect(try await store.job(job) == recovered[0])
    #expect(try await store.base.recoverExpired(9).isEmpty)
    #expect(try await store.base.renew(two.lost, for: Self.lease) == nil)

    let next = try await store.base.claim(1, for: two.other, room: .unlimited).jobs
    #expect(next.map(\.job.id) == [job])
    #expect(try await store.update(job, under: two.claims[0], Self.succeed) == nil)
    let late = try await store.complete(Completion(two.claims, change: Self.succeed))
    #expect(late.jobs == [nil])
    #expect(try await store.job(job)?.phase == .loading)
    let ended = try await store.complete(
      Completion(next.map(\.claim)) { $0.cancel(at: .at(1), keptFor: .zero) })
    #expect(ended.jobs.map { $0?.phase } == [.cancelled])
    try await store.audit()
    await store.close()
  }

  @Test(
    "an instance can neither claim nor reserve after its lease expired, until it renews it",
    arguments: StoreAdapter.allCases)
  func over(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let store = two.store
    let waiting = Job.sample(7, url: "https://a.example/7")
    let request = try #require(waiting.request)
    _ = try await store.submit(waiting)
    store.clock.set(.at(10_001))
    let holder = JobID(at: .at(1))
    await #expect(throws: StoreError.leaseLost) {
      try await store.base.claim(1, for: two.lost, room: .unlimited)
    }
    await #expect(throws: StoreError.leaseLost) {
      try await store.base.claim(equalTo: request, count: 1, for: two.lost)
    }
    await #expect(throws: StoreError.leaseLost) {
      try await store.base.reserve(.sample(1), bytes: 1, as: holder, of: two.lost, limit: 99)
    }
    // No recovery has run, so the instance still holds its job.
    let renewal = try await store.base.renew(two.lost, for: Self.lease)
    #expect(renewal?.claims == Set(two.claims))
    #expect(try await store.base.claim(equalTo: request, count: 1, for: two.lost).count == 1)
    #expect(try await store.base.renew(two.lost, for: Self.lease)?.claims.count == 2)
    await store.close()
  }

  @Test(
    "jobs are requeued in portions, and the lease can't be renewed from the first one on",
    arguments: StoreAdapter.allCases)
  func inParts(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter, jobs: 5)
    let store = two.store
    store.clock.set(.at(10_001))
    var recovered: [JobID] = []
    for count in [2, 2, 1, 0] {
      let some = try await store.base.recoverExpired(2).map(\.id)
      #expect(some.count == count)
      recovered += some
      #expect(try await store.base.renew(two.lost, for: Self.lease) == nil)
    }
    #expect(Set(recovered) == Set(two.claims.map(\.job)))
    #expect(try await store.counts().jobs[.queued] == 5)
    try await store.audit()
    await store.close()
  }

  @Test("the jobs of a retired instance are requeued at once", arguments: StoreAdapter.allCases)
  func retired(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter, jobs: 2)
    try await two.store.base.retire(two.lost)
    #expect(try await two.store.base.recoverExpired(9).count == 2)
    #expect(try await two.store.base.renew(two.lost, for: Self.lease) == nil)
    #expect(try await two.store.base.renew(two.other, for: Self.lease) != nil)
    await two.store.close()
  }

  @Test(
    "a recovery releases only the reservations and deletion marks of the lost instance",
    arguments: StoreAdapter.allCases)
  func images(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter, jobs: 0)
    let base = two.store.base
    for (number, instance) in [two.lost, two.other].enumerated() {
      let holder = JobID(at: .at(Int64(number)))
      _ = try await base.reserve(
        .sample(number), bytes: 10, as: holder, of: instance, limit: 1_000)
      let orphan = ImageName(.sample(10 + number))
      #expect(try await base.markOrphans([orphan], for: instance) == [orphan])
    }
    for (number, instance) in [two.lost, two.other].enumerated() {
      let gone = JobID(at: .at(50 + Int64(number)))
      let digest = ImageDigest.sample(20 + number)
      _ = try await base.reserve(digest, bytes: 10, as: gone, of: instance, limit: 1_000)
      try await base.release(gone)
      #expect(try await base.unreferencedImages(1, for: instance).map(\.digest) == [digest])
    }
    #expect(try await base.counts().images == 2)
    two.store.clock.set(.at(10_001))
    #expect(try await base.recoverExpired(9).isEmpty)
    #expect(try await !two.store.refers(to: .sample(0)))
    #expect(try await two.store.refers(to: .sample(1)))
    let left = try await base.unreferencedImages(9, for: two.other).map(\.digest)
    #expect(Set(left) == [.sample(0), .sample(20)], "its bytes may still exist")
    let orphans = try await base.markOrphans(
      [ImageName(.sample(10)), ImageName(.sample(11))], for: two.other)
    #expect(orphans == [ImageName(.sample(10))], "the other instance is deleting its image")
    let holder = JobID(at: .at(99))
    let again = try await base.reserve(
      .sample(21), bytes: 10, as: holder, of: two.other, limit: 1_000)
    #expect(again == .pendingDeletion)
    try await two.store.audit()
    await two.store.close()
  }

  @Test("concurrent recoveries return each job once", arguments: StoreAdapter.allCases)
  func atOnce(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter, jobs: 60)
    let base = two.store.base
    two.store.clock.set(.at(10_001))
    let recovered = try await withThrowingTaskGroup(of: [JobID].self) { group in
      for _ in 0..<20 { group.addTask { try await base.recoverExpired(7).map(\.id) } }
      return try await group.reduce(into: []) { $0 += $1 }
    }
    #expect(recovered.count == 60 && Set(recovered).count == 60)
    await two.store.close()
  }

  @Test(
    "an instance receives the events of others in order, and not its own, until it retires",
    arguments: StoreAdapter.allCases)
  func news(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let base = two.store.base
    let (own, others) = (base.events(for: two.lost), base.events(for: two.other))
    let published: [InstanceEvent] = [
      .queued, .equalQueued(Fingerprint(of: ["y"])),
      .originPaused("https://a.example:81", .milliseconds(1_500)), .changed(two.claims[0].job),
      .announced(two.claims[0].job, AnnouncementID(instance: two.lost, number: 1)),
      .removed([two.claims[0].job]),
      .purged(two.claims[0].job, partial: Fingerprint(of: ["x"])),
      .batchPurged(JobID(at: Timestamp(milliseconds: 5))), .followed([two.claims[0].job]),
      .progress(two.claims[0].job, version: 7, ProgressReport(of: .sample(1))),
      .imagesDeleted([ImageDigest(of: [1]), ImageDigest(of: [2])]), .cacheDeleted,
      .constrained(true),
    ]
    for news in published { base.publish(news, from: two.lost) }
    base.publish(.lost, from: two.other)
    try await base.retire(two.lost)
    try await base.retire(two.other)
    var received: [InstanceEvent] = []
    for await news in others {
      // Heartbeats are sent from time to time.
      if case .heartbeat = news { continue }
      received.append(news)
    }
    #expect(received == published)
    received = []
    for await news in own {
      if case .heartbeat = news { continue }
      received.append(news)
    }
    #expect(received == [.lost])
    await two.store.close()
  }
}
