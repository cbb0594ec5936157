import Jobs
import TestSupport
import Testing

@Suite("Jobs that end after their batch was cancelled")
struct BatchCancellingTests {
  static let webhook = Webhook(url: SourceURL("https://a.example/hook")!, events: [.batchFinished])

  @Sendable static func succeed(_ job: inout Job) -> Bool {
    job.succeed(with: .sample(1), bytes: 7, at: .at(20))
    return true
  }

  @Sendable static func fail(_ job: inout Job) -> Bool {
    job.fail(.fetch(.noData), at: .at(20), keptFor: .seconds(60))
    return true
  }

  /// Creates a batch whose jobs are loading.
  /// - Returns: the batch, and the claims in the order of the lines.
  static func loading(_ count: Int, in store: StoreUnderTest) async throws -> (Batch, [Claim]) {
    let batch = Batch.sample(1, webhook: webhook)
    _ = try await store.base.open(batch, key: nil)
    let lines = BatchLines.sample(batch, after: 0, lines: Array(1...count))
    _ = try await store.base.add(lines, to: batch.id, capacity: 99)
    _ = try await store.base.close(batch.id)
    let claimed = try await store.claim(count, at: .at(10)).jobs
    return (batch, claimed.sorted { $0.job.id < $1.job.id }.map(\.claim))
  }

  @Test(
    "they end as cancelled, as the answer to the cancellation counted them",
    arguments: BatchStoreTests.adapters)
  func cancelled(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let (batch, claims) = try await Self.loading(5, in: store)
    _ = try await store.complete(Completion([claims[0]], change: Self.fail))
    let answer = try #require(try await store.base.cancel(batch.id)).shownCounts
    #expect(answer[.failure] == 1 && answer[.cancelled] == 4)

    let holder = JobID(at: .at(9))
    _ = try await store.reserve(.sample(1), bytes: 7, as: holder, limit: .max / 2)
    let ended = try await store.complete(
      Completion([claims[1]], releasing: holder, change: Self.succeed))
    let job = try #require(ended.jobs[0])
    #expect(job.phase == .cancelled && job.image == nil)
    #expect(job.finishedAt == .at(20) && job.expiresAt == Timestamp.at(20) + .seconds(3_600))
    #expect(try await store.job(job.id) == job)
    #expect(try await !store.refers(to: .sample(1)))
    #expect(
      try await store.complete(Completion([claims[2]], change: Self.fail)).jobs[0]?.phase
        == .cancelled)

    // A job with a pending result releases the image, too.
    _ = try await store.reserve(.sample(1), bytes: 7, as: holder, limit: .max / 2)
    let pending = Completion([claims[3]], releasing: holder) {
      $0.setPending(PendingResult(.sample(.sample(1), bytes: 7), nil))
      return true
    }
    #expect(try await store.complete(pending).jobs[0]?.phase == .loading)
    #expect(try await store.job(claims[3].job)?.keptImage != nil)
    let delivered = try await store.complete(Completion([claims[3]], change: Self.succeed))
    #expect(delivered.jobs[0]?.phase == .cancelled)
    #expect(try await !store.refers(to: .sample(1)))

    let last = try await store.update(claims[4].job, under: claims[4], Self.fail)
    #expect(last?.phase == .cancelled)
    _ = try await store.base.endStopped(9, keptFor: .seconds(60))
    _ = try await store.base.finishBatches()
    let now = try #require(try await store.base.batch(batch.id))
    #expect(now.counts == answer && now.state == .cancelled && now.finishedAt == .at(20))
    let messages = try await store.base.messages(of: batch.id)
    guard messages.count == 1, case .batch(let told) = messages[0].subject else {
      Issue.record("\(messages)")
      return
    }
    #expect(told.counts == answer)
    try await store.audit()
    await store.close()
  }

  @Test(
    "an image that arrives for them is stored only if something else refers to it",
    arguments: BatchStoreTests.adapters)
  func images(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let (batch, claims) = try await Self.loading(3, in: store)
    _ = try await store.submit(.sample(50))
    let (single, claim) = try #require(try await store.claimOne(at: .at(15)))
    _ = try await store.base.cancel(batch.id)
    let isEmbedding = store.base.largestEmbedded > 0
    func complete(_ claims: [Claim], entry: CacheEntry? = nil) async throws -> [Phase?] {
      let holder = JobID(at: .at(9))
      if !isEmbedding {
        _ = try await store.reserve(.sample(1), bytes: 7, as: holder, limit: .max / 2)
      }
      let image = EmbeddedImage(digest: .sample(1), content: [UInt8](repeating: 1, count: 7))
      let completion = Completion(
        claims, entry: entry, releasing: isEmbedding ? nil : holder,
        image: isEmbedding ? image : nil, change: Self.succeed)
      return try await store.complete(completion).jobs.map { $0?.phase }
    }
    #expect(try await complete([claims[0]]) == [.cancelled])
    #expect(try await !store.refers(to: .sample(1)))
    let entry = try CacheEntry.sample(1, .sample(1), bytes: 7)
    #expect(try await complete([claims[1]], entry: entry) == [.cancelled])
    #expect(try await store.cacheCounts() == (1, 7))
    #expect(try await store.clear() == 1)
    // These jobs share a load.
    #expect(try await complete([claims[2], claim]) == [.cancelled, .success])
    #expect(try await store.refers(to: .sample(1)))
    #expect(try await store.remove(single.id))
    #expect(try await !store.refers(to: .sample(1)))
    try await store.audit()
    await store.close()
  }

  @Test(
    "a success stays if its image is replaced, and a job that is queued again later ends as any other",
    arguments: BatchStoreTests.adapters)
  func others(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let (batch, claims) = try await Self.loading(2, in: store)
    for number in 1...2 {
      _ = try await store.reserve(
        .sample(number), bytes: 7, as: JobID(at: .at(9)), limit: .max / 2)
    }
    _ = try await store.complete(Completion([claims[0]], change: Self.succeed))
    _ = try await store.base.cancel(batch.id)
    let replaced = try await store.update(claims[0].job, under: nil) {
      $0.replaceImage(with: .sample(.sample(2), bytes: 9), cache: nil)
      return true
    }
    #expect(replaced?.phase == .success && replaced?.image?.digest == .sample(2))
    _ = try await store.complete(Completion([claims[1]], change: Self.succeed))
    _ = try await store.base.endStopped(9, keptFor: .seconds(60))
    #expect(try await store.base.batch(batch.id)?.isCancelling == false)

    _ = try await store.update(claims[1].job, under: nil) {
      $0.fetchAgain(at: .at(30), from: .regular)
    }
    let again = try #require(try await store.claimOne(at: .at(40)))
    #expect(again.job.id == claims[1].job)
    let ended = try await store.complete(Completion([again.claim], change: Self.succeed))
    #expect(ended.jobs[0]?.phase == .success)
    let now = try #require(try await store.base.batch(batch.id))
    #expect(now.state == .finished && now.counts[.success] == 2)
    try await store.audit()
    await store.close()
  }

  @Test("those of a purged batch are deleted with it", arguments: BatchStoreTests.adapters)
  func purged(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    var store = jobs.store
    let (batch, claims) = try await Self.loading(2, in: store)
    #expect(try await store.base.purge(batch.id))
    let first = try await store.complete(Completion([claims[0]], change: Self.fail))
    #expect(first.jobs[0]?.phase == .cancelled)
    #expect(try await store.base.endStopped(9, keptFor: .seconds(60)).removed.count == 1)
    // A restart requeues the other one.
    store = try await jobs.reopened(after: store)
    _ = try await store.recover()
    let ends = try await store.base.endStopped(9, keptFor: .seconds(60))
    #expect(ends.removed.map(\.id) == [claims[1].job] && ends.batches.isEmpty)
    try await store.audit()
    await store.close()
  }
}
