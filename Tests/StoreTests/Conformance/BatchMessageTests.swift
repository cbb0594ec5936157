import Jobs
import TestSupport
import Testing

@Suite("Webhook messages of batches")
struct BatchMessageTests {
  static let webhook = Webhook(
    url: SourceURL("https://a.example/hook")!, events: [.batchFinished, .jobFailure])

  /// Runs the check that the maintenance task runs once a second.
  private static func finish(_ store: StoreUnderTest) async throws -> Bool {
    try await store.base.finishBatches()
  }

  private static func fail(_ job: inout Job) -> Bool {
    job.fail(.notCached, at: .at(30), keptFor: .seconds(60))
    return true
  }

  /// Opens and closes a batch with these lines.
  private static func closed(
    _ store: StoreUnderTest, _ number: Int64, lines: [Int], webhook: Webhook? = webhook
  ) async throws -> (batch: Batch, jobs: [Job]) {
    let batch = Batch.sample(number, webhook: webhook)
    _ = try await store.base.open(batch, key: nil)
    let lines = BatchLines.sample(batch, after: 0, lines: lines)
    _ = try await store.base.add(lines, to: batch.id, capacity: 99)
    _ = try await store.base.close(batch.id)
    return (batch, lines.jobs)
  }

  @Test(
    "a message is written once when the last job finishes, and again after a retry",
    arguments: BatchStoreTests.adapters)
  func once(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let (batch, lines) = try await Self.closed(store, 1, lines: [1, 2])
    let (untold, others) = try await Self.closed(store, 2, lines: [1], webhook: nil)
    #expect(try await !Self.finish(store))
    let claims = try await store.claim(3, at: .at(10)).jobs.map(\.claim)
    _ = try await store.complete(Completion([claims[0]], change: Self.fail))
    #expect(try await !Self.finish(store))
    #expect(try await store.base.messages(of: batch.id).isEmpty)
    _ = try await store.complete(Completion(Array(claims[1...]), change: Self.fail))
    #expect(try await Self.finish(store))
    #expect(try await !Self.finish(store))

    let stored = try #require(try await store.base.messages(of: batch.id).first)
    #expect(
      stored.event == .batchFinished && stored.url == Self.webhook.url && stored.state == .pending)
    #expect(stored.moment == .at(30) && stored.nextTry == .at(30) && stored.owner == batch.owner)
    guard case .batch(let subject) = stored.subject else {
      Issue.record("\(stored.subject)")
      return
    }
    #expect(subject.id == batch.id && subject.state == .finished && subject.counts[.failure] == 2)
    #expect(try await store.base.messages(of: untold.id).isEmpty)
    #expect(others.count == 1)
    #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(60), 9) == 0)
    #expect(try await store.base.messages(of: batch.id) == [stored])
    #expect(try await store.base.waitingMessages() == 1)

    // Every repeated end writes another message.
    let query = RetryQuery(batch.id, codes: [.notCached], count: 9)
    _ = try await store.base.retry(query) { $0.fetchAgain(at: .at(40), from: .regular) }
    #expect(try await store.base.batch(batch.id)?.state == .running)
    for line in lines {
      _ = try await store.update(line.id, under: nil) {
        $0.cancel(at: .at(50), keptFor: .seconds(60))
      }
    }
    #expect(try await Self.finish(store))
    _ = try await store.update(lines[0].id, under: nil) {
      $0.fetchAgain(at: .at(60), from: .regular)
    }
    #expect(try await store.remove(lines[0].id))
    #expect(try await Self.finish(store))
    let all = try await store.base.messages(of: batch.id)
    #expect(all.count == 3 && all[0] == stored && Set(all.map(\.id)).count == 3)
    try await store.audit()
    await store.close()
  }

  @Test(
    "a message is written for a batch that is closed empty, abandoned or cancelled",
    arguments: BatchStoreTests.adapters)
  func otherwise(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    // Batches without jobs.
    let rejected = Batch.sample(1, webhook: Self.webhook)
    _ = try await store.base.open(rejected, key: nil)
    _ = try await store.base.add(
      BatchLines.sample(rejected, after: 0, lines: [], rejected: [1]), to: rejected.id,
      capacity: 9)
    _ = try await store.base.close(rejected.id)
    let idle = Batch.sample(2)
    _ = try await store.base.open(idle, key: nil)
    // The webhook can be sent with the lines.
    let telling = BatchLines(after: 0, webhook: Self.webhook)
    guard case .accepted(let batch) = try await store.base.add(telling, to: idle.id, capacity: 9)
    else {
      Issue.record("not taken")
      return
    }
    #expect(batch.webhook == Self.webhook)
    let dropped = Batch.sample(3, webhook: Self.webhook)
    _ = try await store.base.open(dropped, key: nil)
    _ = try await store.base.cancel(dropped.id)
    let (cancelled, lines) = try await Self.closed(store, 4, lines: [1, 2, 3])
    let loading = try #require(try await store.claimOne(at: .at(10)))
    _ = try await store.base.cancel(cancelled.id)
    _ = try await store.base.endStopped(9, keptFor: .seconds(60))
    _ = try await Self.finish(store)
    #expect(try await store.base.messages(of: cancelled.id).isEmpty)
    #expect(lines.map(\.id).contains(loading.job.id))
    _ = try await store.update(loading.job.id, under: nil) {
      $0.cancel(at: .at(20), keptFor: .seconds(60))
    }
    store.clock.set(.at(100_000))
    _ = try await Self.finish(store)
    _ = try await store.base.endStopped(9, keptFor: .seconds(60))
    _ = try await store.base.closeAndExpireBatches(idleFor: .seconds(60), 9)
    _ = try await Self.finish(store)
    for (id, state) in [
      (rejected.id, Batch.State.finished), (idle.id, .finished), (dropped.id, .cancelled),
      (cancelled.id, .cancelled),
    ] {
      let stored = try await store.base.messages(of: id)
      guard stored.count == 1, case .batch(let batch) = stored[0].subject else {
        Issue.record("\(state): \(stored.count)")
        continue
      }
      #expect(batch.state == state && batch.finishedAt != nil)
    }
    await store.close()
  }

  @Test(
    "a message is written after a crash, and deleted with its batch",
    arguments: BatchStoreTests.adapters)
  func crash(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let (batch, lines) = try await Self.closed(jobs.store, 1, lines: [1])
    let (purged, _) = try await Self.closed(jobs.store, 2, lines: [1])
    for claim in try await jobs.store.claim(2, at: .at(10)).jobs.map(\.claim) {
      _ = try await jobs.store.complete(Completion([claim], change: Self.fail))
    }
    // The crash comes before the check for finished batches.
    let store = try await jobs.reopened()
    _ = try await store.base.closeAndExpireBatches(idleFor: .seconds(60), 9)
    let stored = try await store.base.messages(of: batch.id)
    #expect(stored.count == 1)
    #expect(try await store.base.messages(of: purged.id).count == 1)
    #expect(try await store.base.purge(purged.id))
    #expect(try await store.base.messages(of: purged.id).isEmpty)
    _ = try await store.base.endStopped(9, keptFor: .seconds(60))

    // An unsent message outlives its batch; a sent one does not.
    let instance = try await store.instance
    store.clock.set(.at(40))
    var message = try #require(
      try await store.base.claimMessages(
        MessageRequest(by: instance, sending: [], count: 9, perHost: 9)
      ).messages.first)
    #expect(message == stored[0])
    store.clock.set(.at(1 << 30))
    _ = try await store.base.expire(9)
    #expect(try await store.base.closeAndExpireBatches(idleFor: .seconds(60), 9) == 1)
    #expect(try await store.base.batch(batch.id) == nil && lines.count == 1)
    #expect(try await store.base.messages(of: batch.id).count == 1)
    message.recordAnswer(
      WebhookAnswer(at: .at(1 << 30), time: .zero, status: 200), under: .standard, dice: 0)
    try await store.base.saveResult(message, by: instance)
    #expect(try await store.base.messages(of: batch.id).isEmpty)
    await store.close()
  }

  @Test(
    "messages match a model after random changes to jobs and batches",
    arguments: [StoreAdapter.sqlite, .postgres], Array(1...4))
  func model(adapter: StoreAdapter, seed: Int) async throws {
    let jobs = try OpenJobs(adapter)
    let clock = jobs.store.clock
    let both = [jobs.store, StoreUnderTest(MemoryJobStore { clock.now }, clock)]
    var random = SeededNumbers(state: UInt64(seed))
    var (batches, lines): ([Batch], [Job]) = ([], [])
    for step in 1...120 {
      let moment = Timestamp.at(Int64(step) * 1_000)
      clock.set(moment)
      let roll = Int.random(in: 0..<12, using: &random)
      let (batch, line) = (
        batches.randomElement(using: &random), lines.randomElement(using: &random)
      )
      let count = Int.random(in: 1...4, using: &random)
      if batches.isEmpty || roll == 0 && batches.count < 6 {
        let new = Batch.sample(Int64(step), webhook: Self.webhook)
        let some = BatchLines.sample(new, after: 0, lines: Array(1...count))
        for store in both {
          _ = try await store.base.open(new, key: nil)
          _ = try await store.base.add(some, to: new.id, capacity: 99)
        }
        batches.append(new)
        lines += some.jobs
      }
      for store in both {
        switch roll {
        case 1: if let batch { _ = try await store.base.close(batch.id) }
        case 2 where step % 5 == 0: if let batch { _ = try await store.base.cancel(batch.id) }
        case 3: _ = try await store.base.endStopped(count, keptFor: .seconds(3_600))
        case 4:
          guard let batch else { continue }
          let query = RetryQuery(batch.id, codes: [.notCached], count: 9)
          _ = try await store.base.retry(query) { $0.fetchAgain(at: moment, from: .regular) }
        case 5:
          guard let line else { continue }
          _ = try await store.update(line.id, under: nil) {
            $0.fetchAgain(at: moment, from: .regular)
          }
        case 6: if let line, step % 4 == 0 { _ = try await store.remove(line.id) }
        default:
          guard let line else { continue }
          _ = try await store.update(line.id, under: nil) {
            $0.cancel(at: moment, keptFor: .seconds(3_600))
          }
        }
        _ = try await store.base.finishBatches()
        // Processes the rest of a cancelled batch.
        _ = try await store.base.endStopped(0, keptFor: .seconds(3_600))
      }
      for batch in batches {
        let stored = try await both[0].base.messages(of: batch.id)
        let expected = try await both[1].base.messages(of: batch.id)
        #expect(stored.count == expected.count, "step \(step), roll \(roll)")
        #expect(stored.allSatisfy { $0.event == .batchFinished && $0.state == .pending })
        let (real, model) = (
          try await both[0].base.batch(batch.id), try await both[1].base.batch(batch.id)
        )
        #expect(real?.state == model?.state && real?.counts == model?.counts)
      }
    }
    await both[0].close()
  }
}
