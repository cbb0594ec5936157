import Jobs
import PostgreSQL
import SQL
import TestSupport
import Testing

@Suite("A queue shared by instances")
struct SharedQueueTests {
  private static let origin = "https://a.example"
  private static let url = "\(origin)/x"

  /// Two instances that share a store.
  private struct Two {
    let jobs: OpenJobs
    let (a, b): (StoreUnderTest, StoreUnderTest)

    init(_ adapter: StoreAdapter) async throws {
      jobs = try OpenJobs(adapter)
      (a, b) = (jobs.store, jobs.store.other)
      _ = try await (a.instance, b.instance)
    }

    func close() async throws {
      try await a.audit()
      await a.close()
    }
  }

  private static func succeed(_ job: inout Job) -> Bool {
    job.succeed(with: .sample(1), bytes: 10, at: .at(9))
    return true
  }

  @Test(
    "a job waits for an equal load of another instance, which then completes it too",
    arguments: StoreAdapter.shared)
  func gathered(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let (a, b) = (two.a, two.b)
    let equal = (0..<4).map { Job.sample($0, url: Self.url) }
    let other = Job.sample(9, url: "\(Self.origin)/other")
    _ = try await a.submit(equal[0])
    let (_, claim) = try #require(await a.claimOne())
    for job in equal[1...2] + [other] { _ = try await a.submit(job) }
    let claimed = try await b.claim(9, at: .at(10))
    #expect(claimed.jobs.map(\.job.id) == [other.id])
    #expect(claimed.loadingElsewhere == [try #require(equal[0].request)])
    #expect(try await b.claim(9, at: .at(11)).jobs.isEmpty)
    #expect(try await a.counts().jobs[.queued] == 2)
    // No claim has read this job yet.
    _ = try await a.submit(equal[3])

    let holder = JobID(at: .at(50))
    _ = try await a.reserve(.sample(1), bytes: 10, as: holder, limit: 99)
    var completion = Completion([claim], releasing: holder, change: Self.succeed)
    completion.claimsEqual = true
    let ended = try await a.complete(completion)
    #expect(ended.jobs.map { $0?.phase } == [.success])
    #expect(ended.claimedEqual.map(\.job.id) == equal[1...].map(\.id))
    #expect(ended.claimedEqual.allSatisfy { $0.job.phase == .loading })
    #expect(try await b.claim(9, at: .at(12)).jobs.isEmpty, "they are held by the other instance")
    #expect(try await a.remove(equal[0].id))
    #expect(try await a.refers(to: .sample(1)), "the reservation stays")
    let last = try await a.complete(
      Completion(ended.claimedEqual.map(\.claim), releasing: holder, change: Self.succeed))
    #expect(last.jobs.map { $0?.phase } == [.success, .success, .success])
    #expect(last.claimedEqual.isEmpty)
    try await two.close()
  }

  @Test(
    "the end of a load claims the jobs that waited for it, but not those it requeued",
    arguments: StoreAdapter.shared)
  func queuedAgain(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let (a, b) = (two.a, two.b)
    let jobs = (0..<2).map { Job.sample($0, url: Self.url) }
    _ = try await a.submit(jobs[0])
    let (_, claim) = try #require(await a.claimOne())
    _ = try await a.submit(jobs[1])
    #expect(try await b.claim(9, at: .at(10)).jobs.isEmpty)
    var completion = Completion([claim]) {
      $0.requeue()
      return true
    }
    completion.claimsEqual = true
    let ended = try await a.complete(completion)
    #expect(ended.jobs.map { $0?.phase } == [.queued])
    #expect(ended.claimedEqual.map(\.job.id) == [jobs[1].id])
    #expect(try await a.counts().jobs[.queued] == 1)
    try await two.close()
  }

  @Test(
    "a waiting job becomes ready if the load's last job is cancelled, removed or requeued",
    arguments: StoreAdapter.shared, [0, 1, 2])
  func left(adapter: StoreAdapter, how: Int) async throws {
    let two = try await Two(adapter)
    let (a, b) = (two.a, two.b)
    let jobs = (0..<2).map { Job.sample($0, url: Self.url) }
    _ = try await a.submit(jobs[0])
    let (_, claim) = try #require(await a.claimOne())
    _ = try await a.submit(jobs[1])
    #expect(try await b.claim(9, at: .at(10)).jobs.isEmpty)
    let news = b.base.events(for: try await b.instance)
    switch how {
    case 0:
      _ = try await b.update(jobs[0].id, under: nil) { $0.cancel(at: .at(9), keptFor: .zero) }
    case 1: #expect(try await b.remove(jobs[0].id))
    default:
      let completion = Completion([claim]) {
        $0.retry(after: .internal, from: .regular, notBefore: .at(1_000_000))
        return true
      }
      _ = try await a.complete(completion)
    }
    for await told in news where told == .queued { break }
    #expect(try await b.claim(9, at: .at(11)).jobs.map(\.job.id) == [jobs[1].id])
    try await two.close()
  }

  @Test(
    "another job of the same instance continues a load, and waiting jobs keep waiting",
    arguments: StoreAdapter.shared)
  func passedOn(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let (a, b) = (two.a, two.b)
    let jobs = (0..<3).map { Job.sample($0, url: Self.url) }
    let request = try #require(jobs[0].request)
    _ = try await a.submit(jobs[0])
    _ = try await a.claimOne()
    _ = try await a.submit(jobs[1])
    #expect(try await a.claim(equalTo: request, count: 1, at: .at(9)).count == 1)
    _ = try await a.submit(jobs[2])
    #expect(try await b.claim(9, at: .at(10)).jobs.isEmpty)
    _ = try await b.update(jobs[0].id, under: nil) { $0.cancel(at: .at(9), keptFor: .zero) }
    #expect(try await b.claim(9, at: .at(11)).jobs.isEmpty)
    // The instance itself claims the job, which joins its load.
    #expect(try await a.claim(9, at: .at(12)).jobs.map(\.job.id) == [jobs[2].id])
    try await two.close()
  }

  @Test(
    "a waiting job becomes ready after the lease of the loading instance has expired",
    arguments: StoreAdapter.shared)
  func lost(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let (a, b) = (two.a, two.b)
    let jobs = (0..<2).map { Job.sample($0, url: Self.url) }
    _ = try await a.submit(jobs[0])
    _ = try await a.claimOne()
    _ = try await a.submit(jobs[1])
    #expect(try await b.claim(9, at: .at(10)).jobs.isEmpty)
    try await a.base.retire(a.instance)
    #expect(try await b.claim(9, at: .at(11)).jobs.isEmpty)
    #expect(try await b.recover() == 1)
    let both = try await b.claim(9, at: .at(12)).jobs.map(\.job.id)
    #expect(both == jobs.map(\.id), "they share a load")
    try await two.close()
  }

  @Test(
    "a job of a cancelled batch joins no load and is not claimed at the end of one",
    arguments: StoreAdapter.shared)
  func stopped(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let (a, b) = (two.a, two.b)
    let batch = Batch.sample(1)
    let lines = BatchLines.sample(batch, after: 0, lines: [1])
    let job = Job.sample(9, url: "https://example.org/1")
    let request = try #require(job.request)
    #expect(lines.jobs.map(\.request) == [request])
    _ = try await a.submit(job)
    let (_, claim) = try #require(await a.claimOne(at: .at(10)))
    _ = try await a.base.open(batch, key: nil)
    _ = try await a.base.add(lines, to: batch.id, capacity: 9)
    let claimed = try await b.claim(9, at: .at(11))
    #expect(claimed.jobs.isEmpty && claimed.loadingElsewhere == [request])
    _ = try await a.base.cancel(batch.id)
    #expect(try await a.claim(9, at: .at(12)).jobs.isEmpty)
    var completion = Completion([claim], change: Self.fail)
    completion.claimsEqual = true
    let ended = try await a.complete(completion)
    #expect(ended.jobs.map { $0?.phase } == [.failure])
    #expect(ended.claimedEqual.isEmpty)
    for store in [a, b] { #expect(try await store.claim(9, at: .at(13)).jobs.isEmpty) }
    let ends = try await a.base.endStopped(9, keptFor: .seconds(60))
    #expect(ends.cancelled.map(\.id) == lines.jobs.map(\.id))
    try await two.close()
  }

  @Test(
    "all instances together respect an origin's limit on transfers", arguments: StoreAdapter.shared)
  func transfers(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let (a, b) = (two.a, two.b)
    let jobs = (0..<9).map { Job.sample($0, url: "\(Self.origin)/\($0)") }
    _ = try await a.submit(jobs, key: nil, capacity: 99)
    func room(own: Int) -> OriginCapacity {
      OriginCapacity(
        usual: 4 - own,
        overall: OriginCapacity.Overall(transfers: 4, own: own > 0 ? [Self.origin: own] : [:]))
    }
    let first = try await a.claim(3, at: .at(10), room: room(own: 0)).jobs
    #expect(first.count == 3)
    let second = try await b.claim(9, at: .at(10), room: room(own: 0))
    #expect(second.jobs.count == 1)
    #expect(try await a.claim(9, at: .at(11), room: room(own: 3)).jobs.isEmpty)
    // One transfer of this instance has ended, although that is not stored yet.
    #expect(try await a.claim(9, at: .at(12), room: room(own: 2)).jobs.count == 1)
    let held = try await b.claim(9, at: .at(12), room: room(own: 1))
    #expect(held.jobs.isEmpty)
    if adapter == .sharedPostgres { #expect(held.isHeldBack) }
    _ = try await a.complete(Completion(first.map(\.claim), change: Self.fail))
    #expect(try await b.claim(9, at: .at(13), room: room(own: 1)).jobs.count == 2)
    try await two.close()
  }

  private static func fail(_ job: inout Job) -> Bool {
    job.fail(.notCached, at: .at(9), keptFor: .seconds(9))
    return true
  }

  @Test("all instances together respect an origin's request rate", arguments: StoreAdapter.shared)
  func rate(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let jobs = (0..<9).map { Job.sample($0, url: "\(Self.origin)/\($0)") }
    _ = try await two.a.submit(jobs, key: nil, capacity: 99)
    let room = OriginCapacity(usual: 9, overall: OriginCapacity.Overall(requestsPerSecond: 10))
    for (moment, count): (Int64, Int) in [(0, 1), (0, 0), (99, 0), (100, 1), (350, 1), (449, 0)] {
      for (store, expected) in [(two.a, count), (two.b, 0)] {
        #expect(
          try await store.claim(9, at: .at(1_000 + moment), room: room).jobs.count == expected,
          "\(moment)")
      }
    }
    try await two.close()
  }

  @Test("the instance that was registered first leads", arguments: StoreAdapter.shared)
  func leads(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let (a, b) = (two.a, two.b)
    func leads(_ store: StoreUnderTest) async throws -> Bool? {
      try await store.base.renew(store.instance, for: .seconds(100))?.leads
    }
    #expect(try await leads(a) == true)
    #expect(try await leads(b) == false)
    try await a.base.retire(a.instance)
    #expect(try await leads(b) == true)
    try await two.close()
  }

  @Test(
    "the network setting stays while any instance has a lease",
    arguments: StoreAdapter.shared)
  func network(adapter: StoreAdapter) async throws {
    let two = try await Two(adapter)
    let base = two.a.base
    #expect(try await base.isConstrained() == nil)
    for isConstrained in [true, false, true] {
      try await base.setConstrained(isConstrained)
      #expect(try await base.isConstrained() == isConstrained)
    }
    try await base.retire(two.a.instance)
    let third = try await base.register(for: .seconds(100))
    #expect(try await base.isConstrained() == true)
    for instance in [try await two.b.instance, third] { try await base.retire(instance) }
    _ = try await base.register(for: .seconds(100))
    #expect(try await base.isConstrained() == nil)
    try await two.close()
  }
}
