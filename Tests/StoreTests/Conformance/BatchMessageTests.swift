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
    let (store, clock) = (jobs.store.base, jobs.store.clock)
    var model = BatchModel()
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
        _ = try await store.open(new, key: nil)
        _ = try await store.add(some, to: new.id, capacity: 99)
        model.add(some, to: new, at: moment)
        batches.append(new)
        lines += some.jobs
      }
      let fetchAgain = { @Sendable (job: inout Job) in job.fetchAgain(at: moment, from: .regular) }
      let cancel = { @Sendable (job: inout Job) in
        job.cancel(at: moment, keptFor: .seconds(3_600))
      }
      switch roll {
      case 1:
        if let batch {
          _ = try await store.close(batch.id)
          model.change(batch.id) { $0.close(at: moment) }
        }
      case 2 where step % 5 == 0:
        if let batch {
          _ = try await store.cancel(batch.id)
          model.change(batch.id) { $0.cancel(at: moment) }
        }
      case 3:
        let stopped = Set(model.stoppedJobs)
        let ids = try await store.endStopped(count, keptFor: .seconds(3_600)).cancelled.map(\.id)
        #expect(stopped.isSuperset(of: ids) && ids.count == min(count, stopped.count))
        for id in ids { model.update(id, cancel) }
      case 4:
        if let batch {
          let query = RetryQuery(batch.id, codes: [.notCached], count: 9)
          #expect(try await store.retry(query, fetchAgain)?.jobs == [], "no job has failed")
        }
      case 5:
        if let line {
          _ = try await store.update(line.id, under: nil, fetchAgain)
          model.update(line.id, fetchAgain)
        }
      case 6:
        if let line, step % 4 == 0 {
          _ = try await store.remove(line.id) { _ in true }
          model.remove(line.id)
        }
      default:
        if let line {
          _ = try await store.update(line.id, under: nil, cancel)
          model.update(line.id, cancel)
        }
      }
      _ = try await store.finishBatches()
      // Processes the rest of a cancelled batch.
      _ = try await store.endStopped(0, keptFor: .seconds(3_600))
      for id in batches.map(\.id) {
        let stored = try await store.messages(of: id)
        let expected = model.messages[id, default: []].count
        #expect(
          stored.count == min(expected, WebhookMessage.mostOfSubject), "step \(step), \(roll)")
        #expect(stored.allSatisfy { $0.event == .batchFinished && $0.state == .pending })
        let (real, model) = (try await store.batch(id), model.batches[id])
        #expect(real?.state == model?.state && real?.counts == model?.counts)
      }
    }
    await jobs.store.close()
  }
}

/// Batches whose jobs are counted from the start after each change.
private struct BatchModel {
  private(set) var batches: [BatchID: Batch] = [:]
  /// The messages about each batch's ends.
  private(set) var messages: [BatchID: Set<WebhookMessage.ID>] = [:]
  private var jobs: [JobID: Job] = [:]
  private var counted: [JobID: BatchChange.Member] = [:]

  /// The jobs that the cancellation of their batch must cancel.
  var stoppedJobs: [JobID] {
    jobs.values.filter { $0.phase == .queued && isStopped($0) }.map(\.id)
  }

  private func isStopped(_ job: Job) -> Bool {
    job.batch.flatMap { batches[$0.id]?.isCancelling } ?? false
  }

  mutating func add(_ lines: BatchLines, to batch: Batch, at moment: Timestamp) {
    batches[batch.id] = batch
    for job in lines.jobs { jobs[job.id] = job }
    batches[batch.id]?.addLines(lines, at: moment)
    count(batch.id)
  }

  mutating func update(_ id: JobID, _ change: (inout Job) -> Bool) {
    guard var job = jobs[id] else { return }
    let before = job
    guard change(&job) else { return }
    if isStopped(before) { job.discardResult(after: before) }
    jobs[id] = job
    if let batch = job.batch { count(batch.id) }
  }

  mutating func remove(_ id: JobID) {
    let job = jobs.removeValue(forKey: id)
    if let batch = job?.batch { count(batch.id) }
  }

  private mutating func count(_ id: BatchID) {
    var change = BatchChange()
    let before = counted
    for job in jobs.values where job.batch?.id == id { counted[job.id] = BatchChange.Member(job) }
    for (job, member) in counted where jobs[job] == nil {
      change.recordChange(from: member, to: nil)
      counted[job] = nil
    }
    for (job, member) in counted where before[job] != member {
      change.recordChange(from: before[job], to: member)
    }
    if change != BatchChange() {
      self.change(id) {
        $0.applyChange(change, at: $0.receivedAt)
        return true
      }
    }
  }

  mutating func change(_ id: BatchID, _ change: (inout Batch) -> Bool) {
    guard var batch = batches[id] else { return }
    let wasOver = batch.finishedAt != nil
    guard change(&batch) else { return }
    batches[id] = batch
    if let message = WebhookMessage(endOf: batch, wasOver: wasOver) {
      messages[id, default: []].insert(message.id)
    }
  }
}
