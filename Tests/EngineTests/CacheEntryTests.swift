import Jobs
import TestSupport
import Testing
import Waiting

@testable import Engine

@Suite("Entries of the cache", .timeLimit(.minutes(15)))
struct CacheEntryTests {
  @Test("an entry is kept while the store can't verify its image")
  func storeFails() async throws {
    try await Workshop.open({ $0.cache.memory = 0 }) { shop in
      shop.fetcher.answer("http://a.example/x", with: .pieces([ok], total: ok.count))
      let only: @Sendable (inout Submission) -> Void = {
        ($0.cacheMode, $0.maxAttempts) = (.onlyIfCached, 1)
      }
      _ = try await shop.finished(shop.submit("http://a.example/x"))
      shop.images.failVerifying(true)
      let unknown = try await shop.finished(shop.submit("http://a.example/x", only))
      #expect(unknown.failure == .internal, "it is not reported as not cached")
      shop.images.failVerifying(false)
      let known = try await shop.finished(shop.submit("http://a.example/x", only))
      #expect(known.cache?.status == .hit)
      #expect(shop.fetcher.requests.count == 1)
      shop.images.failVerifying(true)
      let fetched = try await shop.finished(shop.submit("http://a.example/x"))
      #expect(fetched.phase == .success && fetched.cache?.status == .miss)
      #expect(shop.fetcher.requests.count == 2)
    }
  }

  @Test("an entry is revalidated only if its bytes are stored, even if they are still in memory")
  func onlyInMemory() async throws {
    try await Workshop.open { shop in
      let (url, fields) = ("http://a.example/x", [HeaderField(name: "ETag", value: "\"v1\"")])
      shop.fetcher.answer(
        url, with: .responds(200, fields, ok), .responds(304, fields), .responds(200, fields, ok))
      let first = try await shop.finished(shop.submit(url))
      let digest = try #require(first.image?.digest)
      #expect(try await shop.engine.openImage(digest) != nil)
      try await shop.images.remove(ImageName(digest))
      let job = try await shop.finished(shop.submit(url) { $0.cacheMode = .noCache })
      #expect(job.phase == .success && job.cache?.status == .miss)
      #expect(shop.images.digests == [digest])
      #expect(shop.fetcher.requests.count == 3)
    }
  }

  @Test(
    "an entry is dropped once the origin sends a response that may not be stored",
    arguments: [CacheMode.noCache, .reload, .default])
  func superseded(mode: CacheMode) async throws {
    try await Workshop.open { shop in
      let (url, other) = ("http://a.example/x", ok + ok)
      func responds(_ control: String, _ bytes: [UInt8]) -> ScriptedFetcher.Answer {
        .responds(200, [HeaderField(name: "Cache-Control", value: control)], bytes)
      }
      shop.fetcher.answer(url, with: responds("max-age=1000", ok), responds("no-store", other))
      let first = try await shop.finished(shop.submit(url))
      let asking = try await shop.submit(url) {
        $0.cacheMode = mode
        // The stored image has another digest than the job requires.
        if mode == .default { $0.integrity = MemoryImageStore.digest(of: other) }
      }
      let second = try await shop.finished(asking)
      #expect(second.image?.digest == MemoryImageStore.digest(of: other))
      let third = try await shop.finished(shop.submit(url))
      #expect(third.cache?.status == .miss && third.image?.digest == second.image?.digest)
      #expect(shop.fetcher.requests.count == 3)
      let digest = try #require(first.image?.digest)
      #expect(try await shop.engine.openImage(digest) != nil, "the first job still has its image")
    }
  }

  @Test("the least recently used entry is evicted, even if it was used only a moment ago")
  func recentlyUsed() async throws {
    try await Workshop.open({ $0.cache.disk = 2 * ok.count + 2 }) { shop async throws in
      func run(_ name: String) async throws -> CacheOutcome.Status? {
        let url = "http://a.example/\(name)"
        shop.fetcher.answer(
          url, with: .pieces([ok + Array(name.utf8)], total: ok.count + 1))
        shop.clock.advance(by: .seconds(1))
        return try await shop.finished(shop.submit(url)).cache?.status
      }
      for (name, status) in [
        ("a", .miss), ("b", .miss), ("a", .hit), ("c", .miss), ("a", .hit), ("b", .miss),
      ] as [(String, CacheOutcome.Status)] {
        #expect(try await run(name) == status, "\(name)")
      }
    }
  }

  @Test("a stale entry is not revalidated again if another load has done it")
  func freshened() async throws {
    try await Workshop.open({ $0.cache.defaultTTL = .seconds(60) }) { shop in
      shop.fetcher.answer("http://a.example/x", with: .pieces([ok], total: ok.count))
      let job = try await shop.finished(shop.submit("http://a.example/x"))
      await shop.engine.refresher.refresh(job)
      #expect(shop.fetcher.requests.count == 1)
      shop.clock.advance(by: .seconds(61))
      await shop.engine.refresher.refresh(job)
      #expect(shop.fetcher.requests.count == 2)
    }
  }

  @Test(
    "an image's modification date is Last-Modified, or its arrival if that is later or unreadable")
  func modified() async throws {
    try await Workshop.open { shop in
      for (date, modified) in [
        ("Thu, 01 Jan 1970 00:00:01 GMT", Timestamp(milliseconds: 1_000)),
        ("Thu, 01 Jan 2970 00:00:01 GMT", shop.clock.now), ("soon", shop.clock.now),
      ] {
        let field = HeaderField(name: "Last-Modified", value: date)
        shop.fetcher.answer("http://a.example/x", with: .responds(200, [field], ok))
        let id = try await shop.submit("http://a.example/x") { $0.cacheMode = .reload }
        let job = try await shop.finished(id)
        #expect(job.image?.modifiedAt == modified, "\(date)")
      }
    }
  }

  @Test("a job's cache_ttl does not make redirects storable")
  func assignedLifetime() async throws {
    try await Workshop.open({ $0.cache.defaultTTL = .zero }) { shop in
      let url = SourceURL("http://a.example/x")!
      shop.fetcher.answer(url.string, with: .pieces([ok], total: ok.count))
      for status in [301, 302] {
        shop.fetcher.redirect(
          url.string,
          over: [
            FetchedRedirect(
              url: url, status: status, headers: [], hadFields: true, asked: .zero, answered: .zero)
          ], to: "http://a.example/y")
        for _ in 0..<2 {
          let job = try await shop.finished(shop.submit(url.string) { $0.cacheTTL = 86_400 })
          #expect(job.cache?.status == .miss)
        }
      }
    }
  }

  @Test("a revalidation has the time of any transfer, including the wait for room at the origin")
  func freshenedInTime() async throws {
    try await Workshop.open {
      $0.cache.defaultTTL = .seconds(60)
      ($0.timeout, $0.maxPerOrigin) = (.milliseconds(400), 1)
    } _: { shop in
      shop.fetcher.answer(
        "http://a.example/x", with: .pieces([ok], total: ok.count), .silent)
      let job = try await shop.finished(shop.submit("http://a.example/x"))
      shop.clock.advance(by: .seconds(61))
      await shop.engine.refresher.refresh(job)
      #expect(shop.fetcher.requests.map(\.timeout).last == .milliseconds(400))
      let place = try await shop.engine.queue.origins.admit("http://a.example")
      await shop.engine.refresher.refresh(job)
      #expect(shop.fetcher.requests.count == 2, "it was not asked")
      withExtendedLifetime(place) {}
    }
  }

  @Test("a stale entry replaces a timeout if stale-if-error allows it")
  func staleInTime() async throws {
    for (field, isStale) in [("stale-if-error=86400", true), ("must-revalidate", false)] {
      try await Workshop.open { shop in
        let fields = [HeaderField(name: "Cache-Control", value: "max-age=1, \(field)")]
        shop.fetcher.answer(
          "http://a.example/x", with: .responds(200, fields, ok), .silent)
        let first = try await shop.finished(shop.submit("http://a.example/x"))
        #expect(first.cache?.status == .miss)
        shop.clock.advance(by: .seconds(5))
        let job = try await shop.finished(
          shop.submit("http://a.example/x") {
            ($0.timeout, $0.maxAttempts) = (.seconds(2), 1)
          })
        #expect(job.phase == (isStale ? .success : .failure))
        #expect((job.cache?.status == .stale) == isStale)
        #expect(shop.fetcher.requests.count == 2)
      }
    }
  }

  @Test("jobs that share a timed-out transfer each get the stale entry when their own time is over")
  func staleTogether() async throws {
    try await Workshop.open { shop in
      let fields = [
        HeaderField(name: "Cache-Control", value: "max-age=1, stale-if-error=86400")
      ]
      shop.fetcher.answer("http://a.example/x", with: .responds(200, fields, ok), .silent)
      _ = try await shop.finished(shop.submit("http://a.example/x"))
      shop.clock.advance(by: .seconds(5))
      let patient = try await shop.submit("http://a.example/x") { $0.timeout = .seconds(8) }
      while shop.fetcher.requests.count < 2 { await Task.yield() }
      let hurried = try await shop.submit("http://a.example/x") {
        ($0.timeout, $0.maxAttempts) = (.milliseconds(50), 1)
      }
      let early = try await shop.finished(hurried)
      #expect(early.cache?.status == .stale && early.attempts == 1)
      #expect(try await shop.engine.job(patient, for: Workshop.me).job.phase == .loading)
      #expect(try await shop.finished(patient).cache?.status == .stale)
      #expect(shop.fetcher.requests.count == 2)
    }
  }

  @Test("a job gets the stale entry at its timeout, and the others get the origin's response later")
  func staleBeforeOthers() async throws {
    try await Workshop.open { shop in
      let (url, new, goesOn) = ("http://a.example/x", ok + [1], Latch())
      let fields = [HeaderField(name: "Cache-Control", value: "max-age=1, stale-if-error=86400")]
      shop.fetcher.answer(
        url, with: .responds(200, fields, ok),
        .waits(after: ok, { await goesOn.wait() }, then: [1]))
      _ = try await shop.finished(shop.submit(url))
      shop.clock.advance(by: .seconds(5))
      let patient = try await shop.submit(url)
      while shop.fetcher.requests.count < 2 { await Task.yield() }
      func hurry(_ integrity: ImageDigest? = nil) async throws -> Job {
        let id = try await shop.submit(url) {
          ($0.timeout, $0.maxAttempts, $0.integrity) = (.milliseconds(50), 1, integrity)
        }
        return try await shop.finished(id)
      }
      let hurried = try await hurry()
      #expect(hurried.cache?.status == .stale)
      #expect(hurried.image?.digest == MemoryImageStore.digest(of: ok))
      let choosy = try await hurry(MemoryImageStore.digest(of: new))
      #expect(choosy.failure?.code == .timeout, "it times out as it would alone")
      goesOn.open()
      let last = try await shop.finished(patient)
      #expect(last.cache?.status == .miss)
      #expect(last.image?.digest == MemoryImageStore.digest(of: new))
      #expect(shop.fetcher.requests.count == 2)
    }
  }

  @Test("a job that joins much later does not get the stale entry when the first one times out")
  func latecomer() async throws {
    try await Workshop.open { shop in
      try await shop.storeStale("http://a.example/x")
      let first = try await shop.submit("http://a.example/x") { $0.timeout = .seconds(3) }
      while shop.fetcher.requests.count < 2 { await Task.yield() }
      // A job that comes within a second ends together with the first one.
      try await Task.sleep(for: .milliseconds(1_500))
      let late = try await shop.submit("http://a.example/x") { $0.timeout = .seconds(3) }
      let job = try await shop.finished(late)
      #expect(job.phase == .success && job.cache?.status == .miss && job.tries == 1)
      #expect(try await shop.finished(first).cache?.status == .stale)
      #expect(shop.fetcher.requests.count == 3)
    }
  }

  @Test("a job that joins much later does not fail when the stale entry of the first one is gone")
  func goneMeanwhile() async throws {
    try await Workshop.open { shop in
      try await shop.storeStale("http://a.example/x")
      let first = try await shop.submit("http://a.example/x") {
        ($0.timeout, $0.maxAttempts) = (.seconds(3), 1)
      }
      while shop.fetcher.requests.count < 2 { await Task.yield() }
      // A job that comes within a second ends together with the first one.
      try await Task.sleep(for: .milliseconds(1_500))
      let late = try await shop.submit("http://a.example/x") {
        ($0.timeout, $0.maxAttempts) = (.seconds(3), 1)
      }
      try await shop.images.remove(ImageName(MemoryImageStore.digest(of: ok)))
      let job = try await shop.finished(late)
      #expect(job.phase == .success && job.tries == 1)
      #expect(try await shop.finished(first).failure?.code == .timeout)
      #expect(shop.fetcher.requests.count == 3)
    }
  }

  @Test("a job with more time does not get the stale entry when a job with less time does")
  func hurriedFirst() async throws {
    try await Workshop.open { shop in
      try await shop.storeStale("http://a.example/x")
      let hurried = try await shop.submit("http://a.example/x") { $0.timeout = .milliseconds(300) }
      while shop.fetcher.requests.count < 2 { await Task.yield() }
      let patient = try await shop.submit("http://a.example/x") { $0.timeout = .seconds(30) }
      let image = try #require(try await shop.finished(patient).cache)
      #expect(image.status != .stale)
      #expect(try await shop.finished(hurried).cache?.status == .stale)
    }
  }
}
