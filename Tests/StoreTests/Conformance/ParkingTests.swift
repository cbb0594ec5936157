import Foundation
import Jobs
import TestSupport
import Testing

@testable import SQL

@Suite("Jobs whose origin has no capacity")
struct ParkingTests {
  private static let dead = "https://dead.example"
  private static let noneForDead = OriginCapacity(usual: .max, exceptions: [dead: 0])

  private static func job(
    _ number: Int64, at origin: String = dead, priority: Priority = .normal
  ) -> Job {
    .sample(number, priority: priority, url: "\(origin)/\(number)")
  }

  @Test(
    "deferred jobs are claimed in their old order as soon as their origin has capacity",
    arguments: StoreAdapter.allCases)
  func order(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch: [Job] = [
      Self.job(0), Self.job(1, priority: .high), Self.job(2), .sample(3), .sample(4),
    ]
    _ = try await store.submit(batch, key: nil, capacity: 9)
    let others = try await store.claim(1, at: .at(9), room: Self.noneForDead).jobs.map(\.job.id)
    #expect(others == [batch[3].id])
    let late = Self.job(5)
    _ = try await store.submit(late)
    let room = OriginCapacity(usual: 1, exceptions: [Self.dead: 3])
    let rest = try await store.claim(9, at: .at(9), room: room).jobs.map(\.job.id)
    #expect(rest == [batch[1], batch[0], batch[2], batch[4]].map(\.id))
    let last = try await store.claim(9, at: .at(9), room: room).jobs.map(\.job.id)
    #expect(last == [late.id])
    await store.close()
  }

  @Test(
    "no origin gets more jobs than its capacity, and jobs without an origin always run",
    arguments: StoreAdapter.allCases)
  func room(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = (0..<12).map { Self.job($0, at: "https://\(["a", "b"][Int($0 % 2)]).example") }
    var local = Job(
      id: JobID(at: .at(20)), owner: batch[0].owner, submission: Submission(source: .local("a")),
      priority: .normal, tags: [], createdAt: .at(20))
    _ = local.edit(priority: .veryLow, tags: nil)
    _ = try await store.submit(batch + [local], key: nil, capacity: 99)
    let room = OriginCapacity(usual: 3, exceptions: ["https://b.example": -1])
    let claimed = try await store.claim(99, at: .at(30), room: room).jobs.map(\.job.id)
    #expect(claimed == [0, 2, 4].map { batch[$0].id } + [local.id])
    await store.close()
  }

  @Test(
    "ten thousand deferred jobs do not slow down other claims or any transaction",
    arguments: [StoreAdapter.sqlite])
  func costsNothing(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    _ = try await store.submit(.sample(0))
    _ = try await store.claim(1, at: .at(1), room: Self.noneForDead)
    let alone = try await Self.workOfClaim(store)
    for batch in 0..<10 {
      let dead = (0..<1_000).map { Self.job(Int64(batch * 1_000 + $0), priority: .veryHigh) }
      _ = try await store.submit(dead, key: nil, capacity: .max)
    }
    let before = store.work.transactions
    #expect(try await store.claim(1, at: .at(1), room: Self.noneForDead).jobs.isEmpty)
    #expect(store.work.transactions - before <= 10_000 / Transaction.maxRowsPerClaim + 1)
    let crowded = try await Self.workOfClaim(store)
    #expect(crowded.changes == alone.changes)
    #expect(crowded.steps <= alone.steps * 5 / 4, "\(alone.steps)")
    await store.close()
  }

  /// Returns the work of submitting and claiming one job.
  private static func workOfClaim(_ store: StoreUnderTest) async throws -> (
    steps: Int, changes: Int
  ) {
    let job = Job.sample(99_999)
    let before = store.work
    _ = try await store.submit(job)
    let claimed = try await store.claim(3, at: .at(99_999), room: noneForDead).jobs
    #expect(claimed.map(\.job.id) == [job.id])
    let after = store.work
    return (after.steps - before.steps, after.changes - before.changes)
  }

  @Test(
    "a claim that finds many deferred jobs continues until it finds others",
    arguments: [StoreAdapter.sqlite, .postgres])
  func goesOn(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let dead = (0..<Int64(Transaction.maxRowsPerClaim * 2)).map { Self.job($0, priority: .high) }
    _ = try await store.submit(dead + [.sample(1), .sample(2)], key: nil, capacity: .max)
    let claimed = try await store.claim(3, at: .at(9), room: Self.noneForDead).jobs
    #expect(
      claimed.map(\.job.submission.source) == [Job.sample(1), .sample(2)].map(\.submission.source))
    await store.close()
  }

  @Test(
    "a new job behind a deferred one keeps its place", arguments: StoreAdapter.allCases)
  func behind(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    _ = try await store.submit(Self.job(4), Self.job(0))
    #expect(try await store.claim(9, at: .at(9), room: Self.noneForDead).jobs.isEmpty)
    // After this claim, the next deferred job is unknown until it is queried.
    let room = OriginCapacity(usual: .max, exceptions: [Self.dead: 1])
    #expect(try await store.claim(9, at: .at(9), room: room).jobs.count == 1)
    _ = try await store.submit(Self.job(1), Self.job(2, priority: .high), .sample(3))
    let claimed = try await store.claim(9, at: .at(9)).jobs.map(\.job.submission.source)
    #expect(
      claimed
        == [Self.job(2), Self.job(0), Self.job(1), .sample(3)].map(\.submission.source))
    await store.close()
  }

  @Test("deferred jobs stay deferred after a restart", arguments: StoreAdapter.allCases)
  func reopened(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let batch = [Self.job(0), Self.job(1)]
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    #expect(try await jobs.store.claim(9, at: .at(9), room: Self.noneForDead).jobs.isEmpty)
    let store = try await jobs.reopened()
    #expect(try await store.claim(9, at: .at(9), room: Self.noneForDead).jobs.isEmpty)
    let claimed = try await store.claim(9, at: .at(9)).jobs.map(\.job.id)
    #expect(claimed == batch.map(\.id))
    await store.close()
  }

  @Test(
    "deferred jobs can be edited, cancelled, removed and expired",
    arguments: StoreAdapter.allCases)
  func changed(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = (0..<4).map { Self.job($0) }
    _ = try await store.submit(batch, key: nil, capacity: 9)
    _ = try await store.claim(9, at: .at(9), room: Self.noneForDead)
    _ = try await store.update(batch[3].id, under: nil) { $0.edit(priority: .high, tags: nil) }
    _ = try await store.update(batch[0].id, under: nil) { $0.cancel(at: .at(9), keptFor: .zero) }
    #expect(try await store.remove(batch[1].id))
    #expect(try await store.expire(9, at: .at(9)) == [batch[0].id])
    let claimed = try await store.claim(9, at: .at(9)).jobs.map(\.job.id)
    #expect(claimed == [batch[3].id, batch[2].id])
    try await store.audit()
    await store.close()
  }

  @Test(
    "a deferred job whose due time is in the future again is not claimed",
    arguments: StoreAdapter.allCases)
  func clockBack(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let job = Self.job(0)
    _ = try await store.submit(job)
    let (_, claim) = try #require(await store.claimOne(at: .at(1)))
    _ = try await store.update(job.id, under: claim) {
      $0.retry(after: .internal, from: .regular, notBefore: .at(50))
      return true
    }
    #expect(try await store.claim(1, at: .at(60), room: Self.noneForDead).jobs.isEmpty)
    let early = try await store.claim(1, at: .at(40))
    #expect(early.jobs.isEmpty && early.nextDue == .at(50))
    #expect(try await store.claim(1, at: .at(50)).jobs.map(\.job.id) == [job.id])
    await store.close()
  }
}

@Suite("Jobs that wait for a long time")
struct AgeingTests {
  private static let now = Timestamp.at(100_000)

  /// Submits twenty new jobs of high priority and two old ones of low priority.
  private static func fill(_ store: StoreUnderTest, oldest: Int64) async throws -> [Job] {
    let old: [Job] = [
      .sample(1, priority: .low, at: oldest),
      .sample(2, priority: .veryLow, url: "https://busy.example/1", at: oldest - 1),
    ]
    let urgent = (0..<20).map { Job.sample($0, priority: .veryHigh, at: 99_000 + $0) }
    _ = try await store.submit(old + urgent, key: nil, capacity: 99)
    return old
  }

  @Test(
    "every eighth claimed job is the oldest one, whatever its priority",
    arguments: StoreAdapter.allCases)
  func everyEighth(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let old = try await Self.fill(jobs.store, oldest: 69_999)
    var order: [JobID] = []
    for count in [3, 1, 9, 7] {
      order += try await jobs.store.claim(count, at: Self.now).jobs.map(\.job.id)
    }
    #expect(order.firstIndex(of: old[1].id) == 7)
    #expect(order.firstIndex(of: old[0].id) == 15)
    await jobs.store.close()
  }

  @Test(
    "the order of priorities is strict for jobs younger than thirty seconds",
    arguments: StoreAdapter.allCases)
  func strictOrder(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let old = try await Self.fill(jobs.store, oldest: 70_001)
    let order = try await jobs.store.claim(99, at: Self.now).jobs.map(\.job)
    #expect(order.suffix(2).map(\.id) == old.map(\.id))
    #expect(order.map(\.priority) == order.map(\.priority).sorted(by: >))
    await jobs.store.close()
  }

  @Test(
    "an old job is skipped while its origin has no capacity, and preferred afterwards",
    arguments: StoreAdapter.allCases)
  func parked(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let old = try await Self.fill(jobs.store, oldest: 60_000)
    let room = OriginCapacity(usual: .max, exceptions: ["https://busy.example": 0])
    let first = try await jobs.store.claim(8, at: Self.now, room: room).jobs.map(\.job.id)
    #expect(first.last == old[0].id)
    let second = try await jobs.store.claim(8, at: Self.now).jobs.map(\.job.id)
    #expect(second.last == old[1].id)
    await jobs.store.close()
  }
}

@Suite("Claiming jobs with equal requests")
struct EqualClaimTests {
  @Test(
    "all jobs with an equal request are found in queue order, and no others",
    arguments: StoreAdapter.allCases)
  func found(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let url = "https://busy.example/same"
    let batch: [Job] = [
      .sample(0, url: url), .sample(1), .sample(2, priority: .high, url: url),
      .sample(3, priority: .low, url: url), .sample(4, url: url),
    ]
    _ = try await store.submit(batch, key: nil, capacity: 9)
    let (first, claim) = try #require(await store.claimOne(at: .at(9)))
    #expect(first.id == batch[2].id)
    _ = try await store.update(first.id, under: claim) {
      $0.retry(after: .internal, from: .regular, notBefore: .at(1_000))
      return true
    }
    // This defers two of them.
    let room = OriginCapacity(usual: 1, exceptions: ["https://busy.example": 0])
    _ = try await store.claim(1, at: .at(9), room: room)
    let request = try #require(first.request)
    let some = try await store.claim(equalTo: request, count: 3, at: .at(9))
    #expect(some.map(\.job.id) == [2, 0, 4].map { batch[$0].id })
    #expect(some.allSatisfy { $0.job.phase == .loading && $0.claim.job == $0.job.id })
    let rest = try await store.claim(equalTo: request, count: 3, at: .at(9)).map(\.job.id)
    #expect(rest == [batch[3].id])
    #expect(try await store.claim(equalTo: request, count: 3, at: .at(9)).isEmpty)
    try await store.audit()
    await store.close()
  }

  @Test(
    "concurrent claims by request and in queue order return each job once",
    arguments: StoreAdapter.allCases)
  func exactlyOnce(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = (0..<60).map { Job.sample($0, url: "https://a.example/") }
    _ = try await store.submit(batch, key: nil, capacity: 99)
    let request = try #require(batch[0].request)
    let claims = try await withThrowingTaskGroup(of: [Claim].self) { group in
      for worker in 0..<20 {
        group.addTask {
          worker % 2 == 0
            ? try await store.claim(equalTo: request, count: 4, at: .at(9)).map(\.claim)
            : try await store.claim(4, at: .at(9)).jobs.map(\.claim)
        }
      }
      return try await group.reduce(into: []) { $0 += $1 }
    }
    #expect(Set(claims.map(\.job)).count == 60 && claims.count == 60)
    #expect(Set(claims.map(\.number)).count == 60)
    await store.close()
  }
}
