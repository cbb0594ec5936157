import SQL
import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("Requeuing finished jobs", .timeLimit(.minutes(15)))
struct RequeueTests {
  private let busy = "http://busy.example/"
  private let webhook = Webhook(url: SourceURL("https://a.example/")!, events: WebhookEvent.jobEnds)

  /// Keeps the only worker busy for the rest of the test.
  private func occupy(_ shop: Workshop) async throws {
    shop.fetcher.answer(busy, with: .hangs(after: ok))
    _ = try await shop.reached(.loading, shop.submit(busy))
  }

  @Test("a requeued job needs a free slot in the queue, as a new one does")
  func job() async throws {
    try await Workshop.open({ ($0.workers, $0.maxQueued) = (1, 1) }) { shop in
      shop.fetcher.answer("http://a.example/", with: .pieces([ok], total: nil))
      let done = try await shop.finished(shop.submit("http://a.example/"))
      try await occupy(shop)
      let id = try await shop.submit("http://b.example/")
      _ = try await shop.engine.cancel(id, for: Workshop.me)
      let other = try await shop.submit("http://c.example/")
      await #expect(throws: JobsError.queueFull) {
        try await shop.engine.refetch(id, for: Workshop.me)
      }
      #expect(try await shop.engine.job(id, for: Workshop.me).job.phase == .cancelled)
      // A job that needs no requeuing needs no slot.
      #expect(try await shop.engine.refetch(done.id, for: Workshop.me).job.phase == .success)
      #expect(try await shop.engine.refetch(other, for: Workshop.me).job.phase == .queued)
      _ = try await shop.engine.cancel(other, for: Workshop.me)
      #expect(try await shop.engine.refetch(id, for: Workshop.me).job.phase == .queued)
    }
  }

  @Test("many jobs requeued at the same time share the one free slot: one gets it")
  func atOnce() async throws {
    try await Workshop.open({ ($0.workers, $0.maxQueued) = (1, 1) }) { shop in
      try await occupy(shop)
      var ids: [JobID] = []
      for number in 0..<20 {
        let id = try await shop.submit("http://b.example/\(number)")
        _ = try await shop.engine.cancel(id, for: Workshop.me)
        ids.append(id)
      }
      let engine = shop.engine
      let queued = await taken(ids) { id async throws(JobsError) in
        _ = try await engine.refetch(id, for: Workshop.me)
      }
      #expect(queued == 1)
      #expect(try await shop.store.counts().jobs[.queued] == 1)
    }
  }

  /// Makes a call for each id at the same time.
  /// - Returns: how many calls succeeded. The others found the queue full.
  private func taken(
    _ ids: [JobID], _ call: @escaping @Sendable (JobID) async throws(JobsError) -> Void
  ) async -> Int {
    await withTaskGroup(of: Bool.self) { group in
      for id in ids {
        group.addTask {
          do throws(JobsError) {
            try await call(id)
            return true
          } catch {
            #expect(error == .queueFull)
            return false
          }
        }
      }
      var taken = 0
      for await isTaken in group where isTaken { taken += 1 }
      return taken
    }
  }

  @Test("the queue's capacity is checked in the store's transaction, not against an older snapshot")
  func stale() async throws {
    try await Workshop.open({ ($0.workers, $0.maxQueued) = (1, 1) }) { shop in
      try await occupy(shop)
      let id = try await shop.submit("http://b.example/")
      let moment = shop.clock.now
      _ = try await shop.store.update(id, under: nil) {
        $0.cancel(at: moment, keptFor: .seconds(60))
      }
      let submission = Submission(source: .url(SourceURL("http://c.example/")!, lowData: nil))
      let other = Job(
        NewJob(submission: submission), id: JobID(at: moment), owner: Workshop.me.owner,
        createdAt: moment)
      _ = try await shop.store.submit([other], key: nil, capacity: 9)
      await #expect(throws: JobsError.queueFull) {
        try await shop.engine.refetch(id, for: Workshop.me)
      }
      #expect(try await shop.store.job(id)?.phase == .cancelled)
    }
  }

  @Test("requeuing a job respects the queue limit of the caller's token")
  func share() async throws {
    try await Workshop.open({ $0.workers = 1 }) { shop in
      try await occupy(shop)
      let id = try await shop.submit("http://b.example/")
      _ = try await shop.engine.cancel(id, for: Workshop.me)
      _ = try await shop.submit("http://c.example/")
      let bounded = Caller(
        owner: Workshop.me.owner, isAdmin: false, limits: OwnerLimits(maxQueued: 1))
      await #expect(throws: JobsError.queueFull) {
        try await shop.engine.refetch(id, for: bounded)
      }
      _ = try await shop.engine.refetch(id, for: Workshop.me)
    }
  }

  @Test("lines of a batch are requeued within the limit for queued lines")
  func lines() async throws {
    try await Workshop.open({ ($0.workers, $0.maxQueuedLines) = (1, 1) }) { shop in
      func add(_ url: String) async throws -> BatchID {
        let batch = try await shop.engine.createBatch(NewBatch(), by: Workshop.me, key: nil).batch
        var lines = NewLines(after: 0)
        let job = NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil)))
        (lines.count, lines.jobs) = (1, [NewLines.Job(line: 1, job: job)])
        return try await shop.engine.add(lines, to: batch, by: Workshop.me).id
      }
      let failed = try await add("http://nothing.example/")
      try await until { try await shop.store.batch(failed)?.counts[.failure] == 1 }
      try await occupy(shop)
      _ = try await add("http://c.example/")
      await #expect(throws: JobsError.queueFull) {
        try await shop.engine.retry(batch: failed, codes: [.originStatus], for: Workshop.me)
      }
      let job = try #require(
        try await shop.store.results(ResultQuery(failed, after: 0, through: 1))?.lines.first)
      guard case .job(let line, _) = job else {
        Issue.record("no job")
        return
      }
      await #expect(throws: JobsError.queueFull) {
        try await shop.engine.refetch(line.id, for: Workshop.me)
      }
    }
  }

  /// Makes a batch whose lines have all failed.
  private func failedList(
    _ count: Int, with failure: JobFailure = .fetch(.timeout(seconds: 1)), in shop: Workshop
  ) async throws -> BatchID {
    let moment = shop.clock.now
    let batch = try await shop.engine.createBatch(NewBatch(), by: Workshop.me, key: nil).batch
    let jobs = (1...count).map { line in
      let url = SourceURL("http://nothing.example/\(line)")!
      return Job(
        NewJob(submission: Submission(source: .url(url, lowData: nil))), id: JobID(at: moment),
        owner: Workshop.me.owner, createdAt: moment, batch: BatchPosition(id: batch.id, line: line))
    }
    _ = try await shop.store.add(
      BatchLines(after: 0, count: count, jobs: jobs), to: batch.id, capacity: .max)
    _ = try await shop.engine.close(batch.id, for: Workshop.me)
    for job in jobs {
      _ = try await shop.store.update(job.id, under: nil) { job in
        job.start(at: moment)
        job.fail(failure, at: moment, keptFor: .seconds(60))
        return true
      }
    }
    return batch.id
  }

  @Test("retrying a batch fills the free slots, then fails with queueFull")
  func somePlaces() async throws {
    try await Workshop.open({ ($0.workers, $0.maxQueuedLines) = (1, 10) }) { shop in
      try await occupy(shop)
      let list = try await failedList(30, in: shop)
      await #expect(throws: JobsError.queueFull) {
        try await shop.engine.retry(batch: list, codes: [], for: Workshop.me)
      }
      #expect(try await shop.store.batch(list)?.counts[.queued] == 10)
      #expect(try await shop.store.batch(list)?.counts[.failure] == 20)
      let lines = try await shop.store.results(ResultQuery(list, after: 0, through: 30))?.lines
      #expect(lines?.first?.number == 11, "the first lines are requeued first")
    }
  }

  @Test("retries of several batches at the same time share the free slots")
  func listsAtOnce() async throws {
    try await Workshop.open({ ($0.workers, $0.maxQueuedLines) = (1, 10) }) { shop in
      try await occupy(shop)
      var lists: [BatchID] = []
      for _ in 0..<4 { lists.append(try await failedList(8, in: shop)) }
      let engine = shop.engine
      let all = await taken(lists) { list async throws(JobsError) in
        _ = try await engine.retry(batch: list, codes: [.timeout], for: Workshop.me)
      }
      #expect(all == 1, "one batch fits completely, another one partly")
      #expect(try await shop.store.counts().jobs[.queued] == 10)
    }
  }

  @Test("retrying a batch succeeds if its failed lines exactly fill the queue")
  func lastPlace() async throws {
    try await Workshop.open({ ($0.workers, $0.maxQueuedLines) = (1, 500) }) { shop in
      try await occupy(shop)
      // As many as are requeued in one transaction.
      let list = try await failedList(500, in: shop)
      let batch = try await shop.engine.retry(batch: list, codes: [], for: Workshop.me)
      #expect(batch.counts[.queued] == 500)
    }
  }

  @Test("retrying a batch is refused by no limit if no line is to be requeued")
  func nothingToQueue() async throws {
    try await Workshop.open({ ($0.workers, $0.maxQueuedLines) = (1, 2) }) { shop in
      try await occupy(shop)
      let list = try await failedList(3, with: .notCached, in: shop)
      _ = try await shop.engine.retry(
        batch: failedList(2, in: shop), codes: [], for: Workshop.me)
      let spent = Caller(
        owner: Workshop.me.owner, isAdmin: false, limits: OwnerLimits(maxBytesPerDay: 0))
      let others: [Set<FailureCode>] = [[], [.dnsFailure]]
      for caller in [Workshop.me, spent] {
        for codes in others {
          let batch = try await shop.engine.retry(batch: list, codes: codes, for: caller)
          #expect(batch.counts[.failure] == 3)
        }
      }
      await #expect(throws: JobsError.queueFull) {
        try await shop.engine.retry(batch: list, codes: [.notCached], for: Workshop.me)
      }
      await #expect(throws: bytesSpent(at: shop.clock.now)) {
        try await shop.engine.retry(batch: list, codes: [.notCached], for: spent)
      }
    }
  }

  /// The error that an owner gets from `moment` until the next day begins.
  private func bytesSpent(at moment: Timestamp) -> JobsError {
    .dailyBytesExceeded(for: Timestamp(day: moment.day + 1) - moment)
  }

  @Test("requeuing a job and adding lines fail once the owner's bytes for the day are spent")
  func bytes() async throws {
    try await Workshop.open { shop in
      let me = Caller(
        owner: Owner("me"), isAdmin: false, limits: OwnerLimits(maxBytesPerDay: 1))
      shop.fetcher.answer("http://a.example/", with: .pieces([ok], total: ok.count))
      func new(_ url: String) -> NewJob {
        NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil)))
      }
      let batch = try await shop.engine.createBatch(NewBatch(isOpen: true), by: me, key: nil).batch
      let failed = try await shop.engine.submit([new("http://b.example/")], by: me, key: nil)[0].id
      #expect(try await shop.finished(failed).phase == .failure)
      let done = try await shop.engine.submit([new("http://a.example/")], by: me, key: nil)[0].id
      #expect(try await shop.finished(done).phase == .success)
      let spent = bytesSpent(at: shop.clock.now)
      await #expect(throws: spent) { try await shop.engine.refetch(failed, for: me) }
      var lines = NewLines(after: 0)
      (lines.count, lines.jobs) = (1, [NewLines.Job(line: 1, job: new("http://a.example/"))])
      let late = lines
      await #expect(throws: spent) { try await shop.engine.add(late, to: batch, by: me) }
    }
  }

  @Test("requeuing a job with a webhook fails if too many messages are undelivered")
  func messages() async throws {
    try await Workshop.open({ ($0.workers, $0.maxWaitingMessages) = (1, 1) }) { shop in
      var submission = Submission(source: .url(SourceURL("http://a.example/")!, lowData: nil))
      submission.webhook = webhook
      let moment = shop.clock.now
      let job = Job(
        NewJob(submission: submission), id: JobID(at: moment), owner: Workshop.me.owner,
        createdAt: moment)
      try await occupy(shop)
      _ = try await shop.store.submit([job], key: nil, capacity: 9)
      _ = try await shop.engine.cancel(job.id, for: Workshop.me)
      await #expect(throws: JobsError.tooManyMessages) {
        try await shop.engine.refetch(job.id, for: Workshop.me)
      }
    }
  }

  @Test("retrying a batch stops at a line with a webhook if too many messages are undelivered")
  func tellingLines() async throws {
    try await Workshop.open({ ($0.workers, $0.maxWaitingMessages) = (1, 1) }) { shop in
      let moment = shop.clock.now
      let batch = try await shop.engine.createBatch(NewBatch(), by: Workshop.me, key: nil).batch
      let jobs = [1, 2].map { line in
        var submission = Submission(
          source: .url(SourceURL("http://nothing.example/\(line)")!, lowData: nil))
        if line == 2 { submission.webhook = webhook }
        return Job(
          NewJob(submission: submission), id: JobID(at: moment), owner: Workshop.me.owner,
          createdAt: moment, batch: BatchPosition(id: batch.id, line: line))
      }
      _ = try await shop.store.add(
        BatchLines(after: 0, count: 2, jobs: jobs, rejected: [], webhook: nil), to: batch.id,
        capacity: 9)
      _ = try await shop.engine.close(batch.id, for: Workshop.me)
      // Submitting this job wakes the dispatcher.
      _ = try await shop.submit("http://nothing.example/3")
      try await until { try await shop.store.batch(batch.id)?.counts[.failure] == 2 }
      try await occupy(shop)
      await #expect(throws: JobsError.tooManyMessages) {
        try await shop.engine.retry(batch: batch.id, codes: [.originStatus], for: Workshop.me)
      }
      #expect(try await shop.store.job(jobs[0].id)?.phase == .queued, "it has no webhook")
      #expect(try await shop.store.job(jobs[1].id)?.phase == .failure)
    }
  }
}
