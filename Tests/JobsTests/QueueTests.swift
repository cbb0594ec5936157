import Jobs
import TestSupport
import Testing

@Suite("The queue", .timeLimit(.minutes(5)))
struct QueueTests {
  @Test(
    "higher priorities go first, and within one first come, first served; a raised job goes last in its level"
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

  @Test("beyond its capacity a submission is refused whole")
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
        try await shop.engine.submit([new, new], by: Workshop.me.owner, key: nil)
      }
      _ = try await shop.engine.submit([new], by: Workshop.me.owner, key: nil)
    }
  }

  @Test("ids grow within a batch, so that it lists in the order given")
  func batchOrder() async throws {
    try await Workshop.open { shop in
      let new = NewJob(
        submission: Submission(source: .url(SourceURL("http://b.example/")!, lowData: nil)))
      let ids = try await shop.engine.submit(
        Array(repeating: new, count: 5000), by: Workshop.me.owner, key: nil
      ).map(\.job.id)
      #expect(ids == ids.sorted() && Set(ids).count == 5000)
    }
  }

  @Test(
    "the same idempotency key answers with the first job again, and with another request is refused"
  )
  func idempotency() async throws {
    try await Workshop.open { shop in
      func submit(_ fingerprint: [UInt8]) async throws -> JobID {
        let key = IdempotencyKey(
          owner: Workshop.me.owner, key: "k", fingerprint: MemoryImageStore.digest(of: fingerprint))
        let new = NewJob(
          submission: Submission(source: .url(SourceURL("http://b.example/")!, lowData: nil)))
        return try await shop.engine.submit([new], by: Workshop.me.owner, key: key)[0].job.id
      }
      let first = try await submit([1])
      #expect(try await submit([1]) == first)
      await #expect(throws: JobsError.keyReused) { try await submit([2]) }
    }
  }

  @Test("old images give way to new ones, and their jobs stay")
  func room() async throws {
    try await Workshop.open({ $0.maxStoredBytes = 50 }) { shop in
      var ids: [JobID] = []
      for index in 0..<3 {
        let bytes = Array("ok picture number \(index)".utf8)
        shop.fetcher.answer("http://\(index).example/", with: .pieces([bytes], total: nil))
        ids.append(try await shop.finished(shop.submit("http://\(index).example/")).id)
        shop.clock.advance(by: .seconds(1))
      }
      #expect(shop.images.digests.count == 2)
      let stored = try await shop.store.job(ids[0])
      #expect(stored?.phase == .success && stored?.image?.isKept == false)
      let huge = Array("ok".utf8) + Array(repeating: 1, count: 60)
      shop.fetcher.answer("http://huge.example/", with: .pieces([huge], total: nil))
      #expect(try await shop.finished(shop.submit("http://huge.example/")).failure == .storageFull)
      #expect(shop.images.digests.count == 2)
    }
  }

  @Test("who waits is answered when the job finishes, and when the time is over")
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
