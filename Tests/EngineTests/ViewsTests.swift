import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("Views", .timeLimit(.minutes(15)))
struct ViewsTests {
  private let url = "http://a.example/x.png"
  private let viewer = Caller(owner: .view, isAdmin: false)

  private func new(
    _ url: String? = nil, _ priority: Priority = .high,
    _ adjust: (inout Submission) -> Void = { _ in }
  ) -> NewJob {
    var submission = Submission(source: .url(SourceURL(url ?? self.url)!, lowData: nil))
    adjust(&submission)
    return NewJob(submission: submission, priority: priority)
  }

  private func finished(_ shop: Workshop, _ new: NewJob) async throws -> Job {
    let id = try await shop.engine.view(new, atMost: .zero).job.id
    return try await shop.engine.wait(id, for: viewer, until: .finished, atMost: .seconds(60)).job
  }

  @Test("a thousand equal views share one job")
  func thousand() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let ids = try await withThrowingTaskGroup { group in
        for _ in 0..<1_000 {
          group.addTask { [new = new()] in try await shop.engine.view(new, atMost: .zero).job.id }
        }
        return try await group.reduce(into: Set<JobID>()) { $0.insert($1) }
      }
      #expect(ids.count == 1)
      let job = try await shop.engine.job(try #require(ids.first), for: viewer).job
      #expect(job.owner == .view && job.priority == .high)
    }
  }

  @Test("a view is answered by the same job while its image is fresh")
  func fresh() async throws {
    try await Workshop.open({ $0.cache.defaultTTL = .seconds(60) }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let first = try await finished(shop, new())
      #expect(first.phase == .success)
      shop.clock.advance(by: .seconds(59))
      #expect(try await shop.engine.view(new(), atMost: .zero).job.id == first.id)
      shop.clock.advance(by: .seconds(2))
      let second = try await finished(shop, new())
      #expect(second.id != first.id && second.phase == .success)
      #expect(shop.fetcher.requests.count == 2)
    }
  }

  @Test(
    "a view fetches an unstorable image again", arguments: [CacheMode.default, .forceCache])
  func unstored(mode: CacheMode) async throws {
    try await Workshop.open { shop in
      let fields = [HeaderField(name: "Cache-Control", value: "private")]
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      shop.fetcher.redirect(
        url,
        over: [
          FetchedRedirect(
            url: SourceURL(url)!, status: 302, headers: fields, hadFields: true, asked: .zero,
            answered: .zero)
        ], to: "http://b.example/")
      let new = new { $0.cacheMode = mode }
      let first = try await finished(shop, new)
      let second = try await finished(shop, new)
      #expect(first.phase == .success && second.phase == .success && first.id != second.id)
      #expect(shop.fetcher.requests.count == 2)
      // The entry of the URL that answered is deleted with the job.
      try await shop.engine.purge(second.id, for: viewer)
      #expect(try await shop.engine.cacheCounts().entries == 0)
    }
  }

  @Test("a view gets a new job if its mode or any other option requires it")
  func modes() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let first = try await finished(shop, new())
      let others: [(inout Submission) -> Void] = [
        { $0.cacheMode = .reload }, { $0.cacheMode = .noStore }, { $0.maxBytes = 1_000 },
        { $0.cacheKey = "k" }, { $0.savesData = true }, { $0.retention = .seconds(5) },
        { $0.alternatives = [SourceURL("http://b.example/")!] },
      ]
      var ids: Set = [first.id]
      for adjust in others { ids.insert(try await finished(shop, new(nil, .high, adjust)).id) }
      #expect(ids.count == others.count + 1)
      let again = try await finished(shop, new(nil, .high) { $0.cacheMode = .reload })
      #expect(!ids.contains(again.id))
      #expect(try await shop.engine.view(new(), atMost: .zero).job.id == first.id)
    }
  }

  @Test("a view gets the same failure for ten seconds, then a new job")
  func failure() async throws {
    try await Workshop.open({ $0.retry.maxAttempts = 1 }) { shop in
      shop.fetcher.answer(url, with: .fails(.timeout(seconds: 1)))
      let first = try await finished(shop, new())
      #expect(first.phase == .failure)
      shop.clock.advance(by: .seconds(9))
      #expect(try await shop.engine.view(new(), atMost: .zero).job.id == first.id)
      shop.clock.advance(by: .seconds(2))
      #expect(try await finished(shop, new()).id != first.id)
    }
  }

  @Test("a failure of one size applies to that size only")
  func failedVariant() async throws {
    // Variants are off, so every job with variants fails.
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      var animated = VariantRequest(name: "v0")
      animated.isAnimated = true
      let moving = new { [animated] in $0.variants = [animated] }
      let failed = try await finished(shop, moving)
      #expect(failed.failure?.code == .unsupportedFormat)
      let plain = try await finished(shop, new())
      #expect(plain.phase == .success)
      #expect(try await shop.engine.view(moving, atMost: .zero).job.id == failed.id)
      #expect(try await shop.engine.view(new(), atMost: .zero).job.id == plain.id)
    }
  }

  @Test("a view raises its job's priority and never lowers it")
  func priority() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.engine.view(new(nil, .low), atMost: .zero).job.id
      for (asked, priority) in [(Priority.high, Priority.high), (.low, .high)] {
        let job = try await shop.engine.view(new(nil, asked), atMost: .zero).job
        #expect(job.id == id && job.priority == priority)
      }
    }
  }

  @Test("a view gets a new job after the cache was cleared or the job was purged")
  func dropped() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let first = try await finished(shop, new())
      _ = try await shop.engine.deleteFromCache(SourceURL(url))
      let second = try await finished(shop, new())
      #expect(second.id != first.id && shop.fetcher.requests.count == 2)
      try await shop.engine.purge(second.id, for: viewer)
      #expect(try await finished(shop, new()).id != second.id)
    }
  }

  @Test("a job is cancelled when all its views have ended, and the next view gets a new one")
  func left() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let viewers = (0..<3).map { _ in
        Task { [new = new()] in try await shop.engine.view(new, atMost: .seconds(60)).job.phase }
      }
      try await until { shop.fetcher.requests.count == 1 }
      let id = try await shop.engine.view(new(), atMost: .zero).job.id
      try await until { shop.engine.caching.views.viewers(of: id) == 3 }
      for other in viewers.dropLast() {
        other.cancel()
        _ = await other.result
      }
      #expect(try await shop.engine.job(id, for: viewer).job.phase == .loading)
      viewers[2].cancel()
      #expect(try await viewers[2].value == .cancelled)
      #expect(try await shop.engine.job(id, for: viewer).job.phase == .cancelled)
      let next = try await shop.engine.view(new(), atMost: .zero).job
      #expect(next.id != id && !next.phase.isFinished)
    }
  }

  @Test("a view's job is unknown to all other owners, except to an admin")
  func owner() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let id = try await shop.engine.view(new(), atMost: .zero).job.id
      await #expect(throws: JobsError.unknownJob) {
        try await shop.engine.job(id, for: Workshop.me)
      }
      let admin = Caller(owner: Owner("root"), isAdmin: true)
      #expect(try await shop.engine.job(id, for: admin).job.id == id)
    }
  }
}
