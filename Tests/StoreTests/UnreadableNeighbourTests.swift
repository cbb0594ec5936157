import Jobs
import TestSupport
import Testing

@Suite("An unreadable row among others")
struct UnreadableNeighbourTests {
  static let adapters: [StoreAdapter] = [.sqlite, .postgres]

  @Test("an unreadable job does not prevent the expiry of other jobs", arguments: adapters)
  func expired(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let all = (0..<3).map { Job.sample($0) }
    _ = try await store.submit(all, key: nil, capacity: 9)
    for job in all {
      _ = try await store.update(job.id, under: nil) { $0.cancel(at: .at(5), keptFor: .seconds(9)) }
    }
    try jobs.damage("jobs", "id", of: all[0].id, "phase = 9")
    #expect(try await store.expire(9, at: .at(20_000)) == [all[1].id, all[2].id])
    #expect(try await store.expire(9, at: .at(20_000)).isEmpty)
    await store.close()
  }

  @Test("a job whose tags are missing in the index is processed like others", arguments: adapters)
  func tags(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let all = (0..<2).map { Job.sample($0, tags: ["a", "b"]) }
    _ = try await store.submit(all, key: nil, capacity: 9)
    try jobs.execute("DELETE FROM tags")
    let claims = try await store.claim(9, at: .at(9)).jobs.map(\.claim)
    #expect(claims.count == 2)
    var query = JobQuery(owner: nil, now: .at(9), limit: 9)
    (query.tag, query.phases) = ("a", [.loading])
    #expect(try await store.jobs(query).jobs.isEmpty)
    _ = try await store.complete(
      Completion(claims) {
        $0.fail(.notCached, at: .at(10), keptFor: .seconds(9))
        return true
      })
    try await store.audit()
    #expect(try await store.expire(9, at: .at(20_000)).count == 2)
    #expect(try jobs.count(of: "tags") == 0)
    await store.close()
  }

  @Test(
    "an unreadable job ends neither the results nor the retry of its batch", arguments: adapters)
  func lines(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    let lines = BatchLines.sample(batch, after: 0, lines: [1, 2, 3], rejected: [4, 5])
    _ = try await store.base.add(lines, to: batch.id, capacity: 9)
    _ = try await store.base.close(batch.id)
    let claims = try await store.claim(9, at: .at(10)).jobs.map(\.claim)
    _ = try await store.complete(
      Completion(claims) {
        $0.fail(.notCached, at: .at(30), keptFor: .seconds(60))
        return true
      })
    try jobs.damage("jobs", "id", of: lines.jobs[1].id)
    try jobs.damage("rejected_lines", "line", of: 4)
    let results = try await store.base.results(ResultQuery(batch.id, after: 0, through: 9))
    #expect(results?.lines.map(\.number) == [1, 3, 5] && results?.through == 5)
    let retry = try await store.base.retry(
      RetryQuery(batch.id, codes: Set(FailureCode.allCases), count: 9)
    ) { $0.fetchAgain(at: .at(40), from: .regular) }
    #expect(retry?.jobs.map(\.id) == [lines.jobs[0].id, lines.jobs[2].id])
    await store.close()
  }

  @Test("an unreadable batch is cancelled or purged completely", arguments: adapters)
  func batches(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    var all: [(batch: Batch, jobs: [Job])] = []
    for number in 1...2 as ClosedRange<Int64> {
      let batch = Batch.sample(number)
      _ = try await store.base.open(batch, key: nil)
      let lines = BatchLines.sample(batch, after: 0, lines: [1, 2])
      _ = try await store.base.add(lines, to: batch.id, capacity: 99)
      all.append((batch, lines.jobs))
    }
    _ = try await store.base.cancel(all[0].batch.id)
    #expect(try await store.base.purge(all[1].batch.id))
    for (batch, _) in all { try jobs.damage("batches", "id", of: batch.id) }
    let ends = try await store.base.endStopped(99, keptFor: .seconds(9))
    #expect(Set(ends.cancelled.map(\.id)) == Set(all[0].jobs.map(\.id)))
    #expect(Set(ends.removed.map(\.id)) == Set(all[1].jobs.map(\.id)))
    #expect(ends.batches == [all[0].batch.id])
    await store.close()
  }
}
