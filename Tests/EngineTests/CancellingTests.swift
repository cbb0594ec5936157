import Jobs
import SQL
import TestSupport
import Testing

@testable import Engine

@Suite("Cancelling, purging, draining", .timeLimit(.minutes(15)))
struct CancellingTests {
  private let url = "http://a.example/x.png"

  @Test("a cancelled job frees its worker for the next one")
  func freesWorker() async throws {
    try await Workshop.open({ $0.workers = 1 }) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      shop.fetcher.answer("http://b.example/", with: .pieces([ok], total: nil))
      let first = try await shop.submit(url)
      _ = try await shop.reached(.loading, first)
      let second = try await shop.submit("http://b.example/")
      #expect(try await shop.engine.cancel(first, for: Workshop.me).job.phase == .cancelled)
      #expect(try await shop.finished(second).phase == .success)
      #expect(try await shop.engine.job(first, for: Workshop.me).job.phase == .cancelled)
      #expect(shop.images.digests.count == 1)
    }
  }

  @Test("cancelling a finished or cancelled job returns it unchanged")
  func twice() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let done = try await shop.finished(shop.submit(url))
      #expect(try await shop.engine.cancel(done.id, for: Workshop.me).job == done)
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.submit(url)
      let first = try await shop.engine.cancel(id, for: Workshop.me).job
      #expect(try await shop.engine.cancel(id, for: Workshop.me).job == first)
    }
  }

  @Test("a cancelled job can be fetched again")
  func again() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok), .pieces([ok], total: nil))
      let id = try await shop.submit(url)
      _ = try await shop.reached(.loading, id)
      try await until { !shop.fetcher.requests.isEmpty }
      _ = try await shop.engine.cancel(id, for: Workshop.me)
      #expect(try await shop.engine.refetch(id, for: Workshop.me).job.phase == .queued)
      let job = try await shop.finished(id)
      #expect(job.phase == .success && job.attempts == 2)
    }
  }

  @Test("a purged job is unknown, and its image is deleted unless another job has the same")
  func purge() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let first = try await shop.finished(shop.submit(url)).id
      let second = try await shop.finished(shop.submit(url)).id
      try await shop.engine.purge(first, for: Workshop.me)
      await #expect(throws: JobsError.unknownJob) {
        try await shop.engine.job(first, for: Workshop.me)
      }
      #expect(shop.images.digests.count == 1)
      try await shop.engine.purge(second, for: Workshop.me)
      #expect(shop.images.digests.isEmpty)
    }
  }

  @Test("a change by another instance is shown here and stops the work on the job")
  func byAnother() async throws {
    try await Workshop.open({ $0.workers = 1 }) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      shop.fetcher.answer("http://b.example/", with: .pieces([ok], total: nil))
      let id = try await shop.submit(url)
      _ = try await shop.reached(.loading, id)
      let moment = shop.clock.now
      try await shop.store.changeAsAnother(id) { job in
        return job.cancel(at: moment, keptFor: .seconds(60))
      }
      #expect(try await shop.finished(id).phase == .cancelled)
      #expect(try await shop.finished(shop.submit("http://b.example/")).phase == .success)
    }
  }

  @Test("a job that is fetched again while its cancelled run ends can be cancelled again")
  func cancelSecondRun() async throws {
    try await Workshop.open({ $0.workers = 2 }) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.submit(url)
      for round in 1...20 {
        _ = try await shop.reached(.loading, id)
        _ = try await shop.engine.cancel(id, for: Workshop.me)
        if round < 20 { _ = try await shop.engine.refetch(id, for: Workshop.me) }
      }
      // Both workers are free only if every run was stopped.
      shop.fetcher.answer("http://b.example/", with: .pieces([ok], total: nil))
      let next = [
        try await shop.submit("http://b.example/"), try await shop.submit("http://b.example/"),
      ]
      for id in next { #expect(try await shop.finished(id).phase == .success) }
      #expect(try await shop.engine.job(id, for: Workshop.me).job.phase == .cancelled)
    }
  }

  @Test("a purged job stays unknown, whatever its worker still reports")
  func purgeStays() async throws {
    try await Workshop.open({ $0.cache.isEnabled = false }) { shop in
      for number in 0..<50 {
        let url = "http://\(number).example/"
        shop.fetcher.answer(url, with: .pieces([ok], total: nil))
        let id = try await shop.submit(url)
        if number % 2 == 0 { _ = try await shop.reached(.loading, id) }
        try await shop.engine.purge(id, for: Workshop.me)
        #expect(shop.engine.peek(id, for: Workshop.me) == nil)
        await #expect(throws: JobsError.unknownJob) {
          try await shop.engine.job(id, for: Workshop.me)
        }
      }
      try await until { shop.images.digests.isEmpty }
    }
  }

  @Test("purging a running job stops it")
  func purgeRunning() async throws {
    try await Workshop.open({ $0.workers = 1 }) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      shop.fetcher.answer("http://b.example/", with: .pieces([ok], total: nil))
      let id = try await shop.submit(url)
      _ = try await shop.reached(.loading, id)
      try await shop.engine.purge(id, for: Workshop.me)
      #expect(try await shop.finished(shop.submit("http://b.example/")).phase == .success)
    }
  }

  @Test("another owner's job is unknown, except to an admin")
  func owners() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let id = try await shop.finished(shop.submit(url)).id
      let other = Caller(owner: Owner("other"), isAdmin: false)
      let admin = Caller(owner: Owner("boss"), isAdmin: true)
      #expect(shop.engine.peek(id, for: other) == nil)
      await #expect(throws: JobsError.unknownJob) { try await shop.engine.job(id, for: other) }
      await #expect(throws: JobsError.unknownJob) { try await shop.engine.cancel(id, for: other) }
      await #expect(throws: JobsError.unknownJob) { try await shop.engine.purge(id, for: other) }
      await #expect(throws: JobsError.unknownJob) {
        try await shop.engine.refetch(id, for: other)
      }
      await #expect(throws: JobsError.unknownJob) {
        try await shop.engine.edit(id, for: other, priority: .high, tags: nil)
      }
      #expect(try await shop.engine.job(id, for: admin).job.id == id)
    }
  }

  @Test("an expired job is unknown at once, and its image is deleted")
  func expiry() async throws {
    try await Workshop.open({
      $0.retention = .seconds(60); $0.cache.isEnabled = false
    }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let id = try await shop.finished(shop.submit(url)).id
      shop.clock.advance(by: .seconds(61))
      #expect(shop.engine.peek(id, for: Workshop.me) == nil)
      await #expect(throws: JobsError.unknownJob) {
        try await shop.engine.job(id, for: Workshop.me)
      }
      try await until { shop.images.digests.isEmpty }
    }
  }

  @Test("a stop requeues running jobs, and the next start continues them")
  func drain() async throws {
    let store = MemoryJobStore()
    var id: JobID?
    try await Workshop.open(store: store) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      id = try await shop.submit(url)
      _ = try await shop.reached(.loading, id!)
    }
    #expect(try await store.job(id!)?.phase == .queued)
    let fetcher = ScriptedFetcher()
    fetcher.answer(url, with: .pieces([ok], total: nil))
    try await Workshop.open(store: store, fetcher: fetcher) { shop in
      let job = try await shop.finished(id!)
      #expect(job.phase == .success)
    }
  }

  @Test("a draining service accepts no jobs")
  func draining() async throws {
    try await Workshop.open { shop in
      await shop.engine.drain(within: .zero)
      await #expect(throws: JobsError.draining) { try await shop.submit(url) }
    }
  }

  @Test("jobs of a lost instance run again")
  func recovery() async throws {
    let store = MemoryJobStore()
    let clock = ManualClock()
    let submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
    let job = Job(
      id: JobID(at: clock.now), owner: Workshop.me.owner, submission: submission, priority: .normal,
      tags: [], createdAt: clock.now)
    _ = try await store.submit([job], key: nil, capacity: 10)
    let lost = try await store.register(for: .seconds(1))
    _ = try await store.claim(1, for: lost, room: .unlimited)
    try await store.retire(lost)
    let fetcher = ScriptedFetcher()
    fetcher.answer(url, with: .pieces([ok], total: nil))
    try await Workshop.open(store: store, fetcher: fetcher) { shop in
      let finished = try await shop.finished(job.id)
      #expect(finished.phase == .success)
    }
  }

  @Test("a result is kept until a failing store accepts it")
  func storeFails() async throws {
    try await Workshop.open({ $0.cache.isEnabled = false }) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok), .pieces([ok], total: nil))
      let id = try await shop.submit(url)
      _ = try await shop.reached(.loading, id)
      await shop.store.calls.fail(with: [.unavailable(detail: "1"), .unavailable(detail: "2")])
      // The first failure may hit a claim.
      await #expect {
        try await shop.submit("http://b.example/")
      } throws: { error in
        guard case JobsError.store(.unavailable) = error else { return false }
        return true
      }
      _ = try? await shop.engine.cancel(id, for: Workshop.me)
      _ = try await shop.engine.cancel(id, for: Workshop.me)
      #expect(try await shop.finished(id).phase == .cancelled)
    }
  }

  @Test("a stop returns only after the cancelled jobs are saved")
  func drainWrites() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.submit(url)
      _ = try await shop.reached(.loading, id)
      await shop.store.calls.hold()
      async let drained: Void = shop.engine.drain(within: .zero)
      try await until { await shop.store.calls.heldCalls > 0 }
      #expect(shop.engine.loading.loads.count == 1)
      await shop.store.calls.letGo()
      await drained
      #expect(shop.engine.loading.loads.count == 0)
      #expect(try await shop.store.job(id)?.phase == .queued)
    }
  }
}
