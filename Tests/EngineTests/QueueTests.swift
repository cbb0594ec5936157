import Jobs
import SQL
import TestSupport
import Testing

@testable import Engine

@Suite("The queue", .timeLimit(.minutes(15)))
struct QueueTests {
  @Test(
    "jobs start by priority and then in order of submission, and a raised job goes last in its level"
  )
  func order() async throws {
    try await Workshop.open({ $0.workers = 1 }) { shop in
      shop.fetcher.answer("http://busy.example/", with: .hangs(after: ok))
      let busy = try await shop.submit("http://busy.example/")
      _ = try await shop.reached(.loading, busy)
      var ids: [String: JobID] = [:]
      for (name, priority) in [
        ("n1", Priority.normal), ("n2", .normal), ("low", .veryLow), ("h1", .high),
        ("raised", .low),
      ] {
        shop.fetcher.answer("http://\(name).example/", with: .pieces([ok], total: nil))
        ids[name] = try await shop.submit("http://\(name).example/", priority: priority)
      }
      _ = try await shop.engine.edit(ids["raised"]!, for: Workshop.me, priority: .normal, tags: nil)
      _ = try await shop.engine.cancel(busy, for: Workshop.me)
      for id in ids.values { _ = try await shop.finished(id) }
      #expect(
        shop.fetcher.requests.map(\.url.host)
          == ["busy", "h1", "n1", "n2", "raised", "low"].map { "\($0).example" })
    }
  }

  @Test(
    "one owner's jobs at hanging origins leave a worker for another owner", arguments: [4, 9])
  func hostage(workers: Int) async throws {
    let other = Caller(owner: Owner("other"), isAdmin: false)
    try await Workshop.open({ $0.workers = workers }) { shop in
      for number in 0..<40 {
        let url = "http://drips\(number).example/"
        shop.fetcher.answer(url, with: .hangs(after: ok))
        _ = try await shop.submit(url, priority: .veryHigh)
      }
      let most = workers - ShareBounds.keepingQuarter(of: workers).reserved
      try await until { shop.fetcher.requests.count == most }
      for number in 0..<3 {
        let url = "http://other\(number).example/"
        shop.fetcher.answer(url, with: .pieces([ok], total: nil))
        let new = NewJob(
          submission: Submission(source: .url(SourceURL(url)!, lowData: nil)), priority: .veryLow)
        let id = try await shop.engine.submit([new], by: other, key: nil)[0].id
        let job = try await shop.engine.wait(id, for: other, until: .finished, atMost: .seconds(10))
        #expect(job.job.phase == .success)
      }
      #expect(shop.fetcher.requests.count == most + 3)
    }
  }

  @Test("workers of an owner with most of them go to another owner until both have the same number")
  func halves() async throws {
    let other = Caller(owner: Owner("other"), isAdmin: false)
    try await Workshop.open({ $0.workers = 8 }) { shop in
      var first: [JobID] = []
      for number in 0..<20 {
        let url = "http://drips\(number).example/"
        shop.fetcher.answer(url, with: .hangs(after: ok))
        first.append(try await shop.submit(url))
      }
      try await until { shop.fetcher.requests.count == 6 }
      let news = (0..<20).map { number in
        let url = "http://other\(number).example/"
        shop.fetcher.answer(url, with: .hangs(after: ok))
        return NewJob(submission: Submission(source: .url(SourceURL(url)!, lowData: nil)))
      }
      _ = try await shop.engine.submit(news, by: other, key: nil)
      try await until { shop.fetcher.requests.count == 7 }
      // Workers that the first owner's jobs release go to the other owner, until both have the same number.
      for id in first.prefix(3) { _ = try await shop.engine.cancel(id, for: Workshop.me) }
      try await until { shop.fetcher.requests.count == 9 }
      #expect(
        shop.fetcher.requests.dropFirst(7).allSatisfy { $0.url.host.hasPrefix("other") })
    }
  }

  @Test("a submission that exceeds the queue's capacity is refused completely")
  func full() async throws {
    try await Workshop.open({
      $0.workers = 1; $0.maxQueued = 2
    }) { shop in
      shop.fetcher.answer("http://busy.example/", with: .hangs(after: ok))
      _ = try await shop.reached(.loading, shop.submit("http://busy.example/"))
      _ = try await shop.submit("http://a.example/")
      let new = NewJob(
        submission: Submission(source: .url(SourceURL("http://b.example/")!, lowData: nil)))
      await #expect(throws: JobsError.queueFull) {
        try await shop.engine.submit([new, new], by: Workshop.me, key: nil)
      }
      _ = try await shop.engine.submit([new], by: Workshop.me, key: nil)
    }
  }

  @Test("ids increase within a submission, so that jobs are listed in the given order")
  func batchOrder() async throws {
    try await Workshop.open { shop in
      let new = NewJob(
        submission: Submission(source: .url(SourceURL("http://b.example/")!, lowData: nil)))
      let ids = try await shop.engine.submit(
        Array(repeating: new, count: 5000), by: Workshop.me, key: nil
      ).map(\.id)
      #expect(ids == ids.sorted() && Set(ids).count == 5000)
    }
  }

  @Test(
    "a repeated idempotency key returns the first job, and fails with another request"
  )
  func idempotency() async throws {
    try await Workshop.open { shop in
      func submit(_ fingerprint: [UInt8]) async throws -> JobID {
        let key = IdempotencyKey(
          owner: Workshop.me.owner, key: "k", fingerprint: MemoryImageStore.digest(of: fingerprint))
        let new = NewJob(
          submission: Submission(source: .url(SourceURL("http://b.example/")!, lowData: nil)))
        return try await shop.engine.submit([new], by: Workshop.me, key: key)[0].id
      }
      let first = try await submit([1])
      #expect(try await submit([1]) == first)
      await #expect(throws: JobsError.keyReused) { try await submit([2]) }
    }
  }

  @Test("an idempotency key lasts a day and still lists jobs that are gone")
  func keyOutlivesJobs() async throws {
    try await Workshop.open({ $0.retention = .seconds(60) }) { shop in
      let key = IdempotencyKey(
        owner: Workshop.me.owner, key: "k", fingerprint: MemoryImageStore.digest(of: [1]))
      let new = ["a", "b", "c"].map { name in
        NewJob(
          submission: Submission(source: .url(SourceURL("http://\(name).example/")!, lowData: nil)))
      }
      shop.fetcher.answer("http://b.example/", with: .hangs(after: ok))
      func submit() async throws -> [SubmittedJob] {
        try await shop.engine.submit(new, by: Workshop.me, key: key)
      }
      let ids = try await submit().map(\.id)
      for place in [0, 2] { _ = try await shop.finished(ids[place]) }
      try await shop.engine.purge(ids[0], for: Workshop.me)
      // Expired, even if not deleted yet.
      shop.clock.advance(by: .seconds(61))
      let again = try await submit()
      #expect(again.map(\.id) == ids)
      #expect(again.map { $0.snapshot?.job.phase } == [nil, .loading, nil])
      shop.clock.advance(by: .seconds(86_400 - 61))
      #expect(try await submit().map(\.id) == ids)
      shop.clock.advance(by: .seconds(1))
      try await until { try await submit().map(\.id) != ids }
    }
  }

  @Test("images of old jobs are evicted for new ones, and their jobs stay")
  func room() async throws {
    try await Workshop.open({ $0.maxStoredBytes = 50 }) { shop in
      var ids: [JobID] = []
      for index in 0..<3 {
        let bytes = Array("ok image number \(index)".utf8)
        shop.fetcher.answer("http://\(index).example/", with: .pieces([bytes], total: nil))
        ids.append(try await shop.finished(shop.submit("http://\(index).example/")).id)
        shop.clock.advance(by: .seconds(1))
      }
      #expect(shop.images.digests.count == 2)
      let stored = try await shop.store.job(ids[0])
      #expect(stored?.phase == .success && stored?.image?.isKept == false)
      let huge = Array("ok".utf8) + Array(repeating: 1, count: 60)
      shop.fetcher.answer("http://huge.example/", with: .pieces([huge], total: nil))
      let id = try await shop.submit("http://huge.example/")
      try await until {
        shop.clock.advance(by: .seconds(1))
        return try await shop.engine.job(id, for: Workshop.me).job.phase.isFinished
      }
      let job = try await shop.finished(id)
      #expect(job.failure == .storageFull)
      #expect(job.attempts == 3, "there may be space at the next try")
      #expect(shop.images.digests.count == 2)
    }
  }

  @Test("a wait ends when the job finishes or the time has passed")
  func waiting() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer("http://busy.example/", with: .hangs(after: ok))
      let id = try await shop.submit("http://busy.example/")
      _ = try await shop.reached(.loading, id)
      let late = try await shop.engine.wait(
        id, for: Workshop.me, until: .finished, atMost: .milliseconds(30))
      #expect(late.job.phase == .loading)
      async let waiting = shop.engine.wait(
        id, for: Workshop.me, until: .finished, atMost: .seconds(20))
      _ = try await shop.engine.cancel(id, for: Workshop.me)
      #expect(try await waiting.job.phase == .cancelled)
    }
  }
}
