import Jobs
import TestSupport
import Testing

@Suite("Maintenance of batches")
struct BatchMaintenanceTests {
  /// Creates a finished batch with failed lines, which expire after a minute.
  private static func ended(_ store: StoreUnderTest, lines: [Int]) async throws -> Batch {
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    _ = try await store.base.add(
      .sample(batch, after: 0, lines: lines, rejected: [9]), to: batch.id, capacity: 9)
    _ = try await store.base.close(batch.id)
    let claims = try await store.claim(9, at: .at(10)).jobs.map(\.claim)
    _ = try await store.complete(
      Completion(claims) {
        $0.fail(.notCached, at: .at(30), keptFor: .seconds(60))
        return true
      })
    _ = try await store.base.finishBatches()
    return try #require(try await store.base.batch(batch.id))
  }

  @Test(
    "an expired batch is hidden, and kept while it has jobs",
    arguments: BatchStoreTests.adapters)
  func lastJob(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = try await Self.ended(store, lines: [1, 2])
    let end = try #require(batch.expiresAt) + .seconds(1)
    store.clock.set(end)
    #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(60), 9) == 0)
    let query = BatchQuery(owner: nil, now: end, limit: 9)
    #expect(try await store.base.batches(query).batches.isEmpty)

    // A new batch does not get the number of the expired one.
    let next = Batch.sample(2, owner: "ben")
    _ = try await store.base.open(next, key: nil)
    _ = try await store.base.add(
      .sample(next, after: 0, lines: [1, 2]), to: next.id, capacity: 9)
    #expect(
      try await store.base.results(ResultQuery(next.id, after: 0, through: 9))?.lines == [])
    #expect(try await store.expire(9, at: end).count == 2)
    #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(9_000), 9) == 1)
    #expect(try await store.base.batch(batch.id) == nil)
    #expect(try await store.base.batch(next.id)?.counts[.queued] == 2)
    try await store.audit()
    await store.close()
  }

  @Test(
    "the expiry of jobs does not change their batch's counts",
    arguments: BatchStoreTests.adapters)
  func expired(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = try await Self.ended(store, lines: [1, 2, 3])
    #expect(try await store.expire(9, at: .at(60_031)).count == 3)
    #expect(try await store.base.batch(batch.id) == batch)
    try await store.audit()
    await store.close()
  }

  @Test(
    "jobs of a cancelled batch that are queued again are cancelled, whatever their line",
    arguments: BatchStoreTests.adapters)
  func requeued(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    _ = try await store.base.add(
      .sample(batch, after: 0, lines: Array(1...7)), to: batch.id, capacity: 9)
    let claims = try await store.claim(2, at: .at(10)).jobs.map(\.claim)
    _ = try await store.base.cancel(batch.id)
    #expect(try await store.base.endStopped(2, keptFor: .seconds(9)).cancelled.count == 2)
    _ = try await store.update(claims[0].job, under: claims[0]) {
      $0.requeue()
      return true
    }
    var (cancelled, calls) = (2, 0)
    while cancelled < 6, calls < 9 {
      cancelled += try await store.base.endStopped(2, keptFor: .seconds(9)).cancelled.count
      calls += 1
    }
    #expect(cancelled == 6)
    // Nothing is cancelled while a job is still loading.
    for _ in 0..<3 {
      #expect(try await store.base.endStopped(2, keptFor: .seconds(9)).cancelled.isEmpty)
    }
    _ = try await store.update(claims[1].job, under: claims[1]) {
      $0.requeue()
      return true
    }
    #expect(try await store.base.endStopped(2, keptFor: .seconds(9)).cancelled.count == 1)
    #expect(try await store.base.batch(batch.id)?.counts[.cancelled] == 7)
    try await store.audit()
    await store.close()
  }

  @Test(
    "the rejected lines of purged batches are deleted in portions, also across restarts",
    arguments: [StoreAdapter.sqlite, .postgres])
  func manyRejected(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    var store = jobs.store
    let url = try #require(SourceURL("https://a.example/hook"))
    let webhook = Webhook(url: url, events: [.batchFinished])
    let batches = [Batch.sample(1, webhook: webhook), .sample(2, webhook: webhook)]
    for batch in batches {
      _ = try await store.base.open(batch, key: nil)
      let lines = BatchLines.sample(batch, after: 0, lines: [1], rejected: Array(2...6_001))
      _ = try await store.base.add(lines, to: batch.id, capacity: 9)
      _ = try await store.base.close(batch.id)
      #expect(try await store.base.purge(batch.id))
    }
    var ends = try await store.base.endStopped(9, keptFor: .seconds(9))
    // One call deletes a full portion of the first batch's lines, after its job.
    #expect(ends.removed.map { $0.batch?.id } == [batches[0].id])
    #expect(Set(ends.batches) == Set(batches.map(\.id)) && ends.isMore)
    store = try await jobs.reopened(after: store)
    var (calls, removed) = (1, 1)
    while ends.isMore, calls < 99 {
      ends = try await store.base.endStopped(9, keptFor: .seconds(9))
      removed += ends.removed.count
      calls += 1
    }
    #expect(calls > 2 && removed == 2)
    #expect(ends.batches.isEmpty)
    #expect(try await store.base.waitingMessages() == 0, "a purged batch writes no message")
    try await store.audit()
    await store.close()
  }

  @Test(
    "purged batches without jobs are all deleted, however many there are",
    arguments: BatchStoreTests.adapters)
  func manyPurged(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    for number in 1...120 as ClosedRange<Int64> {
      let batch = Batch.sample(number)
      _ = try await store.base.open(batch, key: nil)
      #expect(try await store.base.purge(batch.id))
    }
    var (ends, calls) = (StoppedBatchJobs(), 0)
    repeat {
      ends = try await store.base.endStopped(9, keptFor: .seconds(9))
      calls += 1
    } while ends.isMore && calls < 99
    #expect(ends.batches.isEmpty)
    await store.close()
  }

  @Test(
    "the rejected lines of an expired batch are deleted in portions",
    arguments: [StoreAdapter.sqlite, .postgres])
  func manyRejectedExpired(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    _ = try await store.base.add(
      .sample(batch, after: 0, lines: [], rejected: Array(1...12_000)), to: batch.id, capacity: 9)
    _ = try await store.base.close(batch.id)
    _ = try await store.base.finishBatches()
    let end = try #require(try await store.base.batch(batch.id)?.expiresAt)
    store.clock.set(end + .seconds(1))
    for _ in 0..<2 {
      // Returns the requested number, because more is left.
      #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(60), 9) == 9)
      #expect(try await store.base.batch(batch.id) != nil)
    }
    #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(60), 9) == 1)
    #expect(try await store.base.batch(batch.id) == nil)
    #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(60), 9) == 0)
    try await store.audit()
    await store.close()
  }

  @Test("a retry reads only failed jobs, whatever the size of the batch and the number of codes")
  func fewFailed() async throws {
    func steps(ofLines count: Int) async throws -> Int {
      let jobs = try OpenJobs()
      let (store, batch) = (jobs.store, Batch.sample(1))
      _ = try await store.base.open(batch, key: nil)
      _ = try await store.base.add(
        .sample(batch, after: 0, lines: Array(1...count)), to: batch.id, capacity: .max)
      let claims = try await store.claim(3, at: .at(10)).jobs.map(\.claim)
      _ = try await store.complete(
        Completion(claims) {
          $0.fail(.notCached, at: .at(30), keptFor: .seconds(60))
          return true
        })
      let query = RetryQuery(batch.id, codes: Set(FailureCode.allCases), count: 9)
      let before = store.work.steps
      let retry = try await store.base.retry(query) { $0.fetchAgain(at: .at(40), from: .regular) }
      let after = store.work.steps
      #expect(retry?.jobs.map { $0.batch?.line } == [1, 2, 3])
      await store.close()
      return after - before
    }
    let (few, many) = (try await steps(ofLines: 10), try await steps(ofLines: 3_000))
    #expect(many < 2 * few)
  }

  @Test("cancelling jobs of a batch takes no longer after thousands of others")
  func manyEnded() async throws {
    let jobs = try OpenJobs()
    let store = jobs.store
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    _ = try await store.base.add(
      .sample(batch, after: 0, lines: Array(1...5_100)), to: batch.id, capacity: .max)
    _ = try await store.base.cancel(batch.id)
    func steps(_ count: Int) async throws -> Int {
      let before = store.work.steps
      #expect(try await store.base.endStopped(count, keptFor: .seconds(9)).cancelled.count == count)
      return store.work.steps - before
    }
    let first = try await steps(10)
    for _ in 0..<10 { _ = try await steps(500) }
    #expect(try await steps(10) < 2 * first)
    await store.close()
  }
}
