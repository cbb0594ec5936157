import Jobs
import Testing

@testable import SQL

@Suite("Claiming jobs")
struct ClaimingTests {
  @Test(
    "higher priorities are claimed first, and within one priority older jobs",
    arguments: StoreAdapter.allCases)
  func order(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let batch: [Job] = [
      .sample(1, priority: .low), .sample(2, priority: .high), .sample(3),
      .sample(4, priority: .high), .sample(0, priority: .high), .sample(5, priority: .veryLow),
    ]
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    let claimed = try await jobs.store.claim(4, at: .at(10)).jobs.map(\.job.id)
    #expect(claimed == [1, 3, 4, 2].map { batch[$0].id })
    let rest = try await jobs.store.claim(9, at: .at(10)).jobs.map(\.job.id)
    #expect(rest == [0, 5].map { batch[$0].id })
    #expect(try await jobs.store.claim(9, at: .at(10)).jobs.isEmpty)
    await jobs.store.close()
  }

  @Test(
    "a claimed job is loading, and stays so after a restart",
    arguments: StoreAdapter.allCases)
  func started(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = Job.sample(1, tags: ["t"])
    _ = try await jobs.store.submit(job)
    let claimed = try #require(await jobs.store.claimOne(at: .at(7)))
    var expected = job
    expected.start(at: .at(7), by: claimed.claim.instance)
    #expect(claimed.job == expected)
    #expect(claimed.claim.job == job.id)
    #expect(try await jobs.store.job(job.id) == expected)
    let reopened = try await jobs.reopened()
    #expect(try await reopened.job(job.id) == expected)
    #expect(try await reopened.counts().jobs[.loading] == 1)
    await reopened.close()
  }

  @Test(
    "a claim undone by a power failure repeats neither a version nor a claim number",
    arguments: [StoreAdapter.sqlite])
  func undone(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = Job.sample(1)
    _ = try await jobs.store.submit(job)
    let before = try #require(await jobs.store.claimOne())
    try jobs.execute("UPDATE queue SET state = 0, claim = NULL, claimed_at = NULL, instance = NULL")
    let store = try await jobs.reopened()
    let after = try #require(await store.claimOne())
    #expect(after.claim.number > before.claim.number)
    #expect(after.job.version > before.job.version + 1_000_000)
    await store.close()
  }

  @Test(
    "a job is not claimed before its due time, and the next due time is returned",
    arguments: StoreAdapter.allCases)
  func due(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = Job.sample(1)
    _ = try await jobs.store.submit(job)
    let (_, claim) = try #require(await jobs.store.claimOne(at: .at(1)))
    _ = try await jobs.store.update(job.id, under: claim) {
      $0.retry(after: .internal, from: .regular, notBefore: .at(50))
      return true
    }
    let early = try await jobs.store.claim(1, at: .at(49))
    #expect(early.jobs.isEmpty && early.nextDue == .at(50))
    let due = try await jobs.store.claim(1, at: .at(50))
    #expect(due.jobs.map(\.job.id) == [job.id] && due.nextDue == nil)
    await jobs.store.close()
  }

  @Test(
    "the order holds even if very many jobs become due at once",
    arguments: [StoreAdapter.sqlite, .postgres])
  func manyDue(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let count = Transaction.maxRowsPerClaim + 1
    let batch = (0..<Int64(count)).map { Job.sample($0, priority: $0 == 7 ? .high : .normal) }
    _ = try await store.submit(batch, key: nil, capacity: QueueCapacity(count))
    let claims = try await store.claim(count, at: .at(9)).jobs.map(\.claim)
    let completion = Completion(claims) {
      // The high-priority job becomes due last.
      $0.retry(after: .internal, from: .regular, notBefore: .at($0.priority == .high ? 60 : 50))
      return true
    }
    #expect(try await store.complete(completion).jobs.count == count)
    #expect(try await store.claim(1, at: .at(49)).nextDue == .at(50))
    let claimed = try await store.claim(1, at: .at(60))
    #expect(claimed.jobs.map(\.job.id) == [batch[7].id] && claimed.nextDue == nil)
    await store.close()
  }

  @Test("a clock that is set back does not make jobs due early", arguments: StoreAdapter.allCases)
  func clockBack(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let (first, second) = (Job.sample(1), Job.sample(2))
    _ = try await jobs.store.submit(first, second)
    for (_, claim) in try await jobs.store.claim(2, at: .at(3)).jobs {
      _ = try await jobs.store.update(claim.job, under: claim) {
        $0.retry(after: .internal, from: .regular, notBefore: .at(50))
        return true
      }
    }
    #expect(try await jobs.store.claim(1, at: .at(60)).jobs.count == 1)
    let early = try await jobs.store.claim(5, at: .at(40))
    #expect(early.jobs.isEmpty && early.nextDue == .at(50))
    #expect(try await jobs.store.claim(5, at: .at(50)).jobs.map(\.job.id) == [second.id])
    await jobs.store.close()
  }

  @Test(
    "a retried job keeps its position, and a job fetched again goes to the end",
    arguments: StoreAdapter.allCases)
  func places(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let batch = (0..<3).map { Job.sample($0) }
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    let claims = try await jobs.store.claim(2, at: .at(5)).jobs.map(\.claim)
    _ = try await jobs.store.update(batch[0].id, under: claims[0]) {
      $0.cancel(at: .at(6), keptFor: .seconds(1))
    }
    _ = try await jobs.store.update(batch[0].id, under: nil) {
      $0.fetchAgain(at: .at(6), from: .regular)
    }
    _ = try await jobs.store.update(batch[1].id, under: claims[1]) {
      $0.retry(after: .internal, from: .regular, notBefore: .at(6))
      return true
    }
    let order = try await jobs.store.claim(3, at: .at(7)).jobs.map(\.job.id)
    #expect(order == [1, 2, 0].map { batch[$0].id })
    await jobs.store.close()
  }

  @Test("claim numbers are unique, also after reopening", arguments: StoreAdapter.allCases)
  func numbers(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = Job.sample(1)
    _ = try await jobs.store.submit(job)
    let first = try #require(await jobs.store.claimOne()).claim
    let reopened = try await jobs.reopened()
    #expect(try await reopened.recover() == 1)
    let second = try #require(await reopened.claimOne()).claim
    #expect(second.number > first.number)
    let lost = try await reopened.update(job.id, under: first) {
      $0.cancel(at: .at(9), keptFor: .zero)
    }
    #expect(lost == nil)
    #expect(try await reopened.job(job.id)?.phase == .loading)
    await reopened.close()
  }

  @Test("concurrent claims return each job exactly once", arguments: StoreAdapter.allCases)
  func exactlyOnce(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let claimed = try await withThrowingTaskGroup(of: [JobID].self) { group in
      for number in 0..<200 {
        group.addTask {
          _ = try await store.submit(.sample(Int64(number)), .sample(Int64(number + 1_000)))
          return try await store.claim(3, at: .at(9_999)).jobs.map(\.job.id)
        }
      }
      return try await group.reduce(into: []) { $0 += $1 }
    }
    let rest = try await store.claim(400, at: .at(9_999)).jobs.map(\.job.id)
    #expect(claimed.count + rest.count == 400)
    #expect(Set(claimed + rest).count == 400)
    await store.close()
  }
}
