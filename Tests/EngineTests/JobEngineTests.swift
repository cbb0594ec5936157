import Jobs
import TestSupport
import Testing

@testable import Engine

@Suite("The job engine", .timeLimit(.minutes(15)))
struct JobEngineTests {
  private let url = "http://a.example/x.png"

  @Test("a job goes from its URL to a stored image")
  func success() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([Array(ok[..<4]), Array(ok[4...])], total: ok.count))
      let job = try await shop.finished(shop.submit(url))
      #expect(job.phase == .success)
      #expect(job.progress == Progress(completed: ok.count, total: ok.count))
      #expect(job.attempts == 1)
      #expect(job.cache?.status == .miss)
      let image = try #require(job.image)
      #expect(image.bytes == ok.count && image.url?.string == url)
      let stored = try #require(try await shop.engine.openImage(image.digest))
      #expect(stored.read(at: 0, count: 100) == ok)
    }
  }

  @Test("a broken image fails the job and leaves nothing behind")
  func broken() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([Array("no".utf8)], total: nil))
      let job = try await shop.finished(shop.submit(url))
      #expect(job.phase == .failure && job.failure?.code == .decodeFailed)
      #expect(job.image == nil && shop.images.digests.isEmpty)
      #expect(shop.fetcher.requests.count == 1, "a broken image is not fetched again")
    }
  }

  @Test("a body without bytes fails with no_data")
  func empty() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([], total: 0))
      let job = try await shop.finished(shop.submit(url))
      #expect(job.failure?.code == .noData)
    }
  }

  @Test("temporary errors are tried again, and the attempts are counted")
  func retries() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(
        url, with: .fails(.originStatus(503, retryAfter: nil)),
        .breaks(after: ok, .truncated(received: ok.count, expected: 99)), .pieces([ok], total: nil))
      let id = try await shop.submit(url)
      try await until {
        shop.clock.advance(by: .seconds(1));
        return try await shop.engine.job(id, for: Workshop.me).job.phase.isFinished
      }
      let job = try await shop.finished(id)
      #expect(job.phase == .success && job.attempts == 3)
    }
  }

  @Test("a job fails after max_attempts with the last error")
  func givesUp() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .fails(.originStatus(503, retryAfter: nil)))
      let id = try await shop.submit(url) { $0.maxAttempts = 2 }
      try await until {
        shop.clock.advance(by: .seconds(1));
        return try await shop.engine.job(id, for: Workshop.me).job.phase.isFinished
      }
      let job = try await shop.finished(id)
      #expect(job.failure == .fetch(.originStatus(503, retryAfter: nil)) && job.attempts == 2)
    }
  }

  @Test("the alternatives are tried in order when a URL fails")
  func alternatives() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer("http://c.example/3", with: .pieces([ok], total: nil))
      let id = try await shop.submit(url) {
        $0.alternatives = ["http://b.example/2", "http://c.example/3", "http://d.example/4"]
          .map { SourceURL($0)! }
      }
      let job = try await shop.finished(id)
      #expect(job.image?.url?.host == "c.example" && job.attempts == 3)
      #expect(shop.fetcher.requests.map(\.url.host) == ["a.example", "b.example", "c.example"])
    }
  }

  @Test("a job fails if the image does not have the digest in integrity")
  func integrity() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let right = MemoryImageStore.digest(of: ok)
      let wrong = MemoryImageStore.digest(of: [1])
      let good = try await shop.submit(url) { $0.integrity = right }
      let bad = try await shop.submit(url) { $0.integrity = wrong }
      #expect(try await shop.finished(good).phase == .success)
      #expect(
        try await shop.finished(bad).failure == .integrityMismatch(expected: wrong, actual: right))
    }
  }

  @Test("only-if-cached asks no origin")
  func onlyIfCached() async throws {
    try await Workshop.open { shop in
      let job = try await shop.finished(shop.submit(url) { $0.cacheMode = .onlyIfCached })
      #expect(job.failure == .notCached && job.attempts == 0 && shop.fetcher.requests.isEmpty)
    }
  }

  @Test("the low-data URL is loaded if the network is constrained or the client saves data")
  func lowData() async throws {
    let low = SourceURL("http://a.example/low.png")!
    for (isConstrained, savesData) in [(true, false), (false, true)] {
      try await Workshop.open({ $0.isConstrained = isConstrained }) { shop in
        shop.fetcher.answer(low.string, with: .pieces([ok], total: nil))
        let id = try await shop.submit(url) {
          $0.source = .url(SourceURL(url)!, lowData: low)
          $0.savesData = savesData
        }
        #expect(try await shop.finished(id).image?.variant == .lowData)
      }
    }
  }

  @Test("a job's own limits apply but never exceed the configured ones")
  func limits() async throws {
    try await Workshop.open({
      $0.timeout = .milliseconds(200); $0.maxBytes = 100; $0.retry.maxAttempts = 1
    }) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let slow = try await shop.submit(url) { $0.timeout = .seconds(60) }
      let hasty = try await shop.submit(url) { $0.timeout = .milliseconds(50) }
      #expect(try await shop.finished(slow).failure == .fetch(.timeout(seconds: 0.2)))
      #expect(try await shop.finished(hasty).failure == .fetch(.timeout(seconds: 0.05)))
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let small = try await shop.finished(shop.submit(url) { $0.maxBytes = 10 })
      #expect(small.failure == .fetch(.tooLarge(limit: 10)))
      let coarse = try await shop.finished(shop.submit(url) { $0.maxPixels = 50 })
      #expect(coarse.failure?.code == .tooManyPixels)
      #expect(shop.fetcher.requests.allSatisfy { $0.maxBytes == 100 })
    }
  }

  @Test("uploaded bytes are decoded and stored like fetched ones")
  func captured() async throws {
    try await Workshop.open { shop in
      let capture = try await shop.engine.beginCapture(by: .anonymous)
      try await capture.write(ok)
      let image = try await capture.finish()
      let source = Source.captured(image.digest, bytes: image.bytes, contentType: "image/png")
      let id = try await shop.engine.submit(
        captured: capture, as: NewJob(submission: Submission(source: source)),
        by: Workshop.me, key: nil
      ).id
      let job = try await shop.finished(id)
      #expect(job.phase == .success && job.cache == nil && job.attempts == 0)
      #expect(job.image?.bytes == ok.count)
    }
  }

  @Test("a decode in another process counts as decode time")
  func elsewhere() async throws {
    try await Workshop.open { shop in
      shop.codec.isElsewhere(true)
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let job = try await shop.finished(try await shop.submit(url))
      #expect(job.phase == .success)
      #expect(job.timings.decode ?? .zero >= .milliseconds(500))
    }
  }

  @Test("progress is shown while bytes arrive, each time with a new version")
  func progress() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.submit(url)
      var job = try await shop.reached(.loading, id)
      while job.progress.completed == 0 {
        try Task.checkCancellation()
        let goal = WaitCondition.versionOtherThan(job.version)
        job = try await shop.engine.wait(id, for: Workshop.me, until: goal, atMost: .seconds(5)).job
      }
      #expect(job.progress.completed == ok.count && job.progress.total == nil)
      let listed = try await shop.engine.jobs(JobQuery(owner: nil, now: shop.clock.now, limit: 10))
      #expect(listed.jobs.first?.progress.completed == ok.count)
    }
  }

  @Test("jobs are found by their host, however it is spelled")
  func hosts() async throws {
    let spellings = ["b\u{FC}cher.example", "xn--bcher-kva.example"]
    let fetcher = ScriptedFetcher(spellings: [spellings[0]: spellings[1]])
    try await Workshop.open(fetcher: fetcher) { shop in
      _ = try await shop.submit(url)
      var ids: Set<JobID> = []
      for host in spellings { ids.insert(try await shop.submit("http://\(host)/x.png")) }
      for host in spellings {
        var query = JobQuery(owner: nil, now: shop.clock.now, limit: 10)
        query.host = host
        let found = try await shop.engine.jobs(query).jobs
        #expect(Set(found.map(\.id)) == ids, "\(host)")
      }
    }
  }
}

/// Waits until `condition` is true.
func until(_ condition: () async throws -> Bool) async throws {
  let deadline = ContinuousClock.now + patience
  while try await !condition() {
    try #require(ContinuousClock.now < deadline, "waited too long")
    try await Task.sleep(for: .milliseconds(2))
  }
}
