import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("The reason that a queued job waits", .timeLimit(.minutes(15)))
struct WaitingForTests {
  private let busy = "http://busy.example/"

  private static func waiting(_ id: JobID, in shop: Workshop) async throws -> WaitingFor? {
    shop.engine.waiting(of: try await shop.engine.job(id, for: Workshop.me).job)
  }

  @Test("a job waits for a worker behind the jobs before it, until it runs or ends")
  func worker() async throws {
    try await Workshop.open({ $0.workers = 1 }) { shop in
      shop.fetcher.answer(busy, with: .hangs(after: ok))
      let running = try await shop.submit(busy)
      _ = try await shop.reached(.loading, running)
      #expect(try await Self.waiting(running, in: shop) == nil)
      var ids: [JobID] = []
      for (name, priority) in [("n1", Priority.normal), ("low", .low), ("n2", .normal)] {
        ids.append(try await shop.submit("http://\(name).example/", priority: priority))
      }
      var expected: [WaitingFor?] = [
        WaitingFor(.worker, origin: "http://n1.example", ahead: 0),
        WaitingFor(.worker, origin: "http://low.example", ahead: 2),
        WaitingFor(.worker, origin: "http://n2.example", ahead: 1),
      ]
      for (id, expected) in zip(ids, expected) {
        #expect(try await Self.waiting(id, in: shop) == expected)
      }
      shop.fetcher.answer("http://n1.example/", with: .hangs(after: ok))
      _ = try await shop.engine.cancel(running, for: Workshop.me)
      _ = try await shop.reached(.loading, ids[0])
      expected = [
        nil, WaitingFor(.worker, origin: "http://low.example", ahead: 1),
        WaitingFor(.worker, origin: "http://n2.example", ahead: 0),
      ]
      for (id, expected) in zip(ids, expected) {
        #expect(try await Self.waiting(id, in: shop) == expected)
      }
      _ = try await shop.engine.cancel(ids[2], for: Workshop.me)
      #expect(try await Self.waiting(ids[2], in: shop) == nil)
    }
  }

  @Test("a job waits for its next try and shows its last failure, also after a restart")
  func retry() async throws {
    let store = MemoryJobStore()
    let failure = FetchError.originStatus(503, retryAfter: 20)
    var id: JobID?
    try await Workshop.open(store: store) { shop in
      shop.fetcher.answer(busy, with: .fails(failure))
      let submitted = try await shop.submit(busy)
      let job = try await shop.engine.wait(
        submitted, for: Workshop.me, until: .versionOtherThan(1), atMost: .seconds(10)
      ).job
      id = job.id
      try await until {
        try await shop.engine.job(submitted, for: Workshop.me).job.lastFailure != nil
      }
      let due = shop.clock.now + .seconds(20)
      let waiting = try await shop.engine.job(submitted, for: Workshop.me).job
      #expect(waiting.phase == .queued && waiting.nextAttempt == due)
      #expect(waiting.lastFailure == .fetch(failure))
      #expect(
        shop.engine.waiting(of: waiting)
          == WaitingFor(.retry, origin: "http://busy.example", until: due))
    }
    let retried = try #require(id)
    try await Workshop.open(store: store) { shop in
      shop.fetcher.answer(busy, with: .pieces([ok], total: nil))
      let waiting = try await shop.engine.job(retried, for: Workshop.me).job
      #expect(waiting.phase == .queued && waiting.lastFailure == .fetch(failure))
      #expect(shop.engine.waiting(of: waiting)?.reason == .retry)
      shop.clock.advance(by: .seconds(21))
      _ = try await shop.submit("http://other.example/")
      let done = try await shop.finished(retried)
      #expect(done.phase == .success && done.lastFailure == nil && done.nextAttempt == nil)
    }
  }

  @Test("a job waits for a free transfer at its origin")
  func originLimit() async throws {
    try await Workshop.open({ $0.maxPerOrigin = 1 }) { shop in
      shop.fetcher.answer(busy, with: .hangs(after: ok))
      _ = try await shop.reached(.loading, shop.submit(busy))
      let id = try await shop.submit("http://busy.example/2")
      let expected = WaitingFor(.originLimit, origin: "http://busy.example")
      #expect(try await Self.waiting(id, in: shop) == expected)
    }
  }

  @Test(
    "a job waits for its origin also if the host is spelled differently",
    arguments: ["http://127.1/2", "http://2130706433/2"])
  func spelledOtherwise(url: String) async throws {
    let fetcher = ScriptedFetcher(spellings: ["127.1": "127.0.0.1", "2130706433": "127.0.0.1"])
    let (first, gone) = ("http://127.0.0.1/1", "http://gone.example/")
    try await Workshop.open(fetcher: fetcher, { $0.maxPerOrigin = 1 }) { shop in
      shop.fetcher.answer(first, with: .hangs(after: ok))
      _ = try await shop.reached(.loading, shop.submit(first))
      let expected = WaitingFor(.originLimit, origin: "http://127.0.0.1")
      let id = try await shop.submit(url)
      #expect(try await Self.waiting(id, in: shop) == expected)
      #expect(try await shop.engine.job(id, for: Workshop.me).job.url?.string == url)
      let alternative = try await shop.submit(gone) { $0.alternatives = [SourceURL(url)!] }
      while try await Self.waiting(alternative, in: shop) != expected {
        let phase = try await shop.engine.job(alternative, for: Workshop.me).job.phase
        try #require(!phase.isFinished)
        await Task.yield()
      }
    }
  }

  @Test("a job waits for a time if its origin's rate decides")
  func originRate() async throws {
    try await Workshop.open({ $0.requestsPerSecondPerOrigin = 0.001 }) { shop in
      shop.fetcher.answer(busy, with: .pieces([ok], total: nil))
      _ = try await shop.finished(shop.submit(busy))
      let id = try await shop.submit("http://busy.example/2")
      let waiting = try #require(try await Self.waiting(id, in: shop))
      #expect(waiting.reason == .originRate && waiting.origin == "http://busy.example")
      let until = try #require(waiting.until)
      #expect(.seconds(900) ... .seconds(1_001) ~= until - shop.clock.now)
    }
  }

  @Test("an origin reports its pause first, then its rate, then its number of transfers")
  func states() throws {
    let start = ContinuousClock.now
    var rules = OriginRules()
    rules.maxTransfers = 2
    rules.requestsPerSecond = 1
    var origin = OriginState()
    #expect(origin.waitReason(at: start, rules) == nil)
    origin.begin(at: start, rules)
    let rated = try #require(origin.waitReason(at: start, rules))
    #expect(rated == (.originRate, start + .seconds(1)))
    origin.begin(at: start + .seconds(1), rules)
    let full = try #require(origin.waitReason(at: start + .seconds(1), rules))
    #expect(full == (.originLimit, nil))
    origin.finish(.unknown, at: start + .seconds(2), rules)
    #expect(origin.waitReason(at: start + .seconds(2), rules) == nil)
    origin.finish(.unknown, at: start + .seconds(2), rules)
    origin.waiting = 1
    let behind = try #require(origin.waitReason(at: start + .seconds(2), rules))
    #expect(behind == (.originRate, start + .seconds(3)), "a waiting load is served first")

    var gone = OriginState()
    for _ in 0..<rules.maxFailures {
      gone.begin(at: start, rules)
      gone.finish(.unreached, at: start, rules)
    }
    let paused = try #require(gone.waitReason(at: start, rules))
    #expect(paused == (.originPaused, start + rules.firstPause))
    let later = start + rules.firstPause
    gone.begin(at: later, rules)
    let probed = try #require(gone.waitReason(at: later, rules))
    #expect(probed == (.originPaused, nil))
  }
}

@Suite("Positions in the queue")
struct QueuePositionsTests {
  private let ids = JobIDSequence()
  private let moment = Timestamp(milliseconds: 1_800_000_000_000)

  private func job(_ priority: Priority = .normal, at seconds: Int = 0) -> Job {
    let moment = moment + .seconds(seconds)
    return Job(
      id: ids.next(at: moment), owner: .anonymous,
      submission: Submission(source: .local("x")), priority: priority, tags: [],
      createdAt: moment)
  }

  @Test("a job's position is the number of jobs submitted before it or with a higher priority")
  func order() {
    let positions = QueuePositions(since: moment)
    positions.clear()
    let batch = (0..<5_000).map { _ in job() }
    positions.add(batch)
    let alone = (1..<100).map { job(at: $0) }
    for job in alone { positions.add([job]) }
    #expect(batch.map { positions.ahead(of: $0) } == (0..<5_000).map { $0 })
    #expect(alone.map { positions.ahead(of: $0) } == (5_000..<5_099).map { $0 })
    positions.removeClaimed(Array(batch[..<1_234]))
    #expect(batch[1_234...].map { positions.ahead(of: $0) } == (0..<3_766).map { $0 })
    #expect(alone.map { positions.ahead(of: $0) } == (3_766..<3_865).map { $0 })
    let urgent = [job(.high), job(.high)]
    positions.add(urgent)
    let low = job(.veryLow)
    positions.add([low])
    #expect(urgent.map { positions.ahead(of: $0) } == [0, 1])
    #expect(positions.ahead(of: batch[1_234]) == 2 && positions.ahead(of: low) == 3_867)
    positions.removeClaimed(urgent + Array(batch[1_234...]) + Array(alone[..<50]))
    #expect(positions.ahead(of: alone[50]) == 0 && positions.ahead(of: low) == 49)
    positions.clear()
    #expect(positions.ahead(of: low) == 0)
  }

  @Test("positions of many jobs use bounded memory and are approximately right")
  func bounded() throws {
    let positions = QueuePositions(since: moment)
    positions.clear()
    let jobs = (0..<20_000).map { job(at: $0) }
    for job in jobs { positions.add([job]) }
    for place in stride(from: 0, to: 20_000, by: 777) {
      let ahead = try #require(positions.ahead(of: jobs[place]))
      #expect(abs(ahead - place) <= 40, "\(place)")
    }
    positions.removeClaimed(Array(jobs[..<10_000]))
    let ahead = try #require(positions.ahead(of: jobs[15_000]))
    #expect(abs(ahead - 5_000) <= 40)
    positions.removeClaimed([jobs[19_999]])
    #expect(positions.ahead(of: job(at: 20_000)) == 0)
    // Added after it was claimed.
    let fast = job(at: 20_001)
    positions.removeClaimed([fast])
    positions.add([fast])
    #expect(positions.ahead(of: job(at: 20_002)) == 0)
  }

  @Test("the position is unknown behind jobs of an earlier run and for a requeued job")
  func unknown() {
    let positions = QueuePositions(since: moment)
    let old = Job(
      id: JobID(at: moment + .seconds(-1)), owner: .anonymous,
      submission: Submission(source: .local("x")), priority: .normal, tags: [],
      createdAt: moment + .seconds(-1))
    let (new, later, high) = (job(at: 1), job(at: 2), job(.high, at: 3))
    positions.add([new, later, high])
    #expect(positions.ahead(of: later) == nil)
    positions.removeClaimed([old])
    #expect(positions.ahead(of: later) == nil)
    positions.removeClaimed([new])
    #expect(positions.ahead(of: later) == 1 && positions.ahead(of: high) == 0)
    #expect(positions.ahead(of: job(.low, at: 4)) == nil)
    positions.clear()
    var again = job(at: 5)
    _ = again.cancel(at: moment, keptFor: .seconds(1))
    _ = again.fetchAgain(at: moment, from: .regular)
    #expect(positions.ahead(of: again) == nil)
    var back = job(at: 6)
    back.start(at: moment)
    back.requeue()
    #expect(positions.ahead(of: back) == nil)
  }
}
