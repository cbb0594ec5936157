import SQL
import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("Cleaning up a stopped batch", .timeLimit(.minutes(15)))
struct BatchEndTests {
  @Test(
    "a purged batch leaves nothing in the cache, even if the store fails and the service stops")
  func purged() async throws {
    let store = MemoryJobStore()
    try await Workshop.open(store: store) { shop in
      let batch = try await shop.engine.createBatch(NewBatch(), by: Workshop.me, key: nil).batch
      var lines = NewLines(after: 0)
      for line in 1...3 {
        let url = "http://a.example/\(line).png"
        shop.fetcher.answer(url, with: .pieces([ok + [UInt8(line)]], total: nil))
        let submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
        lines.jobs.append(NewLines.Job(line: line, job: NewJob(submission: submission)))
      }
      lines.count = 3
      _ = try await shop.engine.add(lines, to: batch, by: Workshop.me)
      try await until { try await store.batch(batch.id)?.counts[.success] == 3 }
      #expect(try await store.cacheCounts().entries == 3)
      // From now on deleting cache entries fails.
      let failure = StoreError.unavailable(detail: "away")
      await store.calls.fail(with: .init(repeating: failure, count: 1_000), of: .cache)
      try await shop.engine.purge(batch: batch.id, refusedAfter: nil, for: Workshop.me)
      try await until { try await store.counts().jobs[.success] == 0 }
    }
    #expect(try await store.cacheCounts().entries == 0)
  }

  @Test("a job whose load ends after its batch was cancelled ends as cancelled, and once")
  func lateResult() async throws {
    let (store, lines) = (MemoryJobStore(), LogLines())
    // Nothing else cancels the job.
    let failure = StoreError.unavailable(detail: "away")
    await store.calls.fail(with: .init(repeating: failure, count: 1_000), of: .endStopped)
    try await Workshop.open(store: store, log: lines.logger) { shop in
      let url = "http://a.example/x.png"
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
      let batch = try await shop.engine.createBatch(NewBatch(), by: Workshop.me, key: nil).batch
      var new = NewLines(after: 0)
      new.jobs.append(NewLines.Job(line: 1, job: NewJob(submission: submission)))
      new.count = 1
      await store.calls.hold(.complete)
      _ = try? await shop.engine.add(new, to: batch, by: Workshop.me)
      let held: Void? = try? await until { await store.calls.heldCalls > 0 }
      let answer = try? await shop.engine.cancel(batch: batch.id, for: Workshop.me)
      await store.calls.letGo()
      #expect(held != nil)
      var query = JobQuery(owner: nil, now: shop.clock.now, limit: 9)
      query.batch = batch.id
      let id = try #require(try await shop.engine.jobs(query).jobs.first).id
      let job = try await shop.finished(id)
      #expect(job.phase == .cancelled && job.image == nil)
      #expect(lines.ends(of: id) == ["cancelled"])
      let now = try #require(try await store.batch(batch.id))
      #expect(answer?.shownCounts == now.shownCounts && now.counts[.cancelled] == 1)
    }
  }

  @Test("no job of a purged batch is shown, however long their deletion takes")
  func hidden() async throws {
    let store = MemoryJobStore()
    try await Workshop.open(store: store) { shop in
      let url = "http://a.example/x.png"
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let older = try await shop.submit(url)
      _ = try await shop.finished(older)
      shop.clock.advance(by: .seconds(1))
      let batch = try await shop.engine.createBatch(NewBatch(), by: Workshop.me, key: nil).batch
      let submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
      var lines = NewLines(after: 0)
      lines.jobs.append(NewLines.Job(line: 1, job: NewJob(submission: submission)))
      lines.count = 1
      _ = try await shop.engine.add(lines, to: batch, by: Workshop.me)
      try await until { try await store.batch(batch.id)?.counts[.success] == 1 }
      let query = JobQuery(owner: nil, now: shop.clock.now, limit: 1)
      let listed = try await shop.engine.jobs(query).jobs
      let id = try #require(listed.first?.id)
      await store.calls.hold(.endStopped)
      let purged: Void? = try? await shop.engine.purge(
        batch: batch.id, refusedAfter: nil, for: Workshop.me)
      #expect(purged != nil && shop.engine.peek(id, for: Workshop.me) == nil)
      await #expect(throws: JobsError.unknownJob) {
        try await shop.engine.job(id, for: Workshop.me)
      }
      let page = try? await shop.engine.jobs(query)
      #expect(page?.jobs.map(\.id) == [older] && page?.hasMore == false)
      // Otherwise the service would never stop.
      await store.calls.letGo()
    }
  }

  @Test(
    "a purged batch's key reports it as gone, unless the batch was refused while it was created")
  func keys() async throws {
    try await Workshop.open { shop in
      let key = IdempotencyKey(
        owner: Workshop.me.owner, key: "k", fingerprint: MemoryImageStore.digest(of: [1]))
      func begin() async throws -> BegunBatch {
        try await shop.engine.createBatch(NewBatch(isOpen: true), by: Workshop.me, key: key)
      }
      let refused = try await begin().batch.id
      try await shop.engine.purge(batch: refused, refusedAfter: 0, for: Workshop.me)
      guard case .new(let batch) = try await begin() else {
        Issue.record("the key still refers to the refused batch")
        return
      }
      try await shop.engine.purge(batch: batch.id, refusedAfter: nil, for: Workshop.me)
      guard case .gone(batch.id) = try await begin() else {
        Issue.record("the batch is not reported as gone")
        return
      }
    }
  }

  @Test("cleaning up a large batch delays no other batch")
  func others() async throws {
    let store = MemoryJobStore()
    let moment = Timestamp(milliseconds: 1)
    let idle = Batch(
      id: JobID(at: moment), owner: .anonymous, retention: .seconds(60), createdAt: moment)
    _ = try await store.open(idle, key: nil)
    await store.calls.hold(.endStopped)
    try await Workshop.open(store: store) { shop in
      let held: Void? = try? await until { await store.calls.heldCalls > 0 }
      let tidied: Void? = try? await until { try await store.batch(idle.id)?.state != .receiving }
      #expect(held != nil && tidied != nil)
      // Otherwise the service would never stop.
      await store.calls.letGo()
    }
  }
}
