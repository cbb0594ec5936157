import SQL
import Synchronization
import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("Answers from memory while other instances change jobs", .timeLimit(.minutes(15)))
struct AnnouncementTests {
  private let url = "http://a.example/x.png"

  /// Two instances that may answer from memory soon after their start. One of them has read a successful job.
  private struct Pair {
    let (reader, writer): (Workshop, Workshop)
    let id: JobID
    var store: MemoryJobStore { reader.store }

    static func open(
      pause: Duration = .milliseconds(1), patience: Duration = .seconds(60),
      _ body: (Pair) async throws -> Void
    ) async throws {
      let (store, images) = (MemoryJobStore(isExclusive: false), MemoryImageStore())
      let adjust = { @Sendable (configuration: inout JobEngine.Configuration) in
        configuration.announcements.pause = pause
        configuration.announcements.patience = patience
      }
      try await Workshop.open(store: store, images: images, adjust) { reader in
        try await Workshop.open(
          store: await store.another(), images: images, clock: reader.clock, adjust
        ) { writer in
          for shop in [reader, writer] {
            shop.fetcher.answer("http://a.example/x.png", with: .pieces([ok], total: ok.count))
          }
          let id = try await writer.submit("http://a.example/x.png")
          _ = try await writer.finished(id)
          let pair = Pair(reader: reader, writer: writer, id: id)
          try await pair.settle()
          try await body(pair)
        }
      }
    }

    /// Sends heartbeats until the reader answers the job from memory.
    func settle() async throws {
      try await until {
        heartbeat()
        _ = try await reader.engine.job(id, for: Workshop.me)
        return isInMemory
      }
    }

    func heartbeat() { store.publish(.heartbeat(until: .now), from: .none) }

    var isInMemory: Bool { reader.engine.peek(id, for: Workshop.me) != nil }

    func read() async throws -> Job { try await reader.engine.job(id, for: Workshop.me).job }

    func edit() async throws -> Job {
      try await writer.engine.edit(id, for: Workshop.me, priority: nil, tags: ["new"]).job
    }
  }

  @Test("a change of a finished job is acknowledged once no other instance shows the old state")
  func change() async throws {
    try await Pair.open { pair in
      pair.store.calls.holdEvents()
      let isAcknowledged = Atomic(false)
      async let edited = {
        let job = try await pair.edit()
        isAcknowledged.store(true, ordering: .relaxed)
        return job
      }()
      // The announcement is not delivered, so the reader shows the old state, and the change has to wait.
      try await Task.sleep(for: .milliseconds(100))
      let isEarly = isAcknowledged.load(ordering: .relaxed)
      #expect(!isEarly)
      #expect(try await pair.read().tags.isEmpty)
      pair.store.calls.releaseEvents()
      let after = try await edited
      #expect(after.tags == ["new"])
      pair.store.calls.holdEvents()
      let read = try await pair.read()
      #expect(read.tags == ["new"] && read.version == after.version)
    }
  }

  @Test("an instance that receives no events shows the new state once the change is acknowledged")
  func cutOff() async throws {
    try await Pair.open(patience: .milliseconds(200)) { pair in
      pair.heartbeat()
      pair.store.calls.holdEvents()
      _ = try await pair.edit()
      #expect(try await pair.read().tags == ["new"])
    }
  }

  @Test("a state that was read before the change and arrives after it is not kept in memory")
  func readInProgress() async throws {
    try await Pair.open(pause: .seconds(2)) { pair in
      pair.store.publish(.lost, from: .none)
      try await until { !pair.isInMemory }
      // From now on, only the announcement keeps the early state out of memory.
      pair.heartbeat()
      try await Task.sleep(for: .milliseconds(2_100))
      await pair.store.calls.hold(.job.answer)
      async let early = pair.read()
      try await until { await pair.store.calls.heldCalls == 1 }
      // Only the early read waits.
      await pair.store.calls.hold(.markOrphans)
      let version = try await pair.edit().version
      await pair.store.calls.letGo()
      #expect(try await early.version < version)
      #expect(!pair.isInMemory)
      #expect(try await pair.read().version == version)
    }
  }

  @Test("a purged job is unknown to an instance that has read it and receives no events")
  func purge() async throws {
    try await Pair.open(patience: .milliseconds(200)) { pair in
      pair.heartbeat()
      pair.store.calls.holdEvents()
      try await pair.writer.engine.purge(pair.id, for: Workshop.me)
      await #expect(throws: JobsError.unknownJob) { try await pair.read() }
    }
  }

  @Test("an instance that has just started reads finished jobs from the store")
  func start() async throws {
    let (store, images) = (MemoryJobStore(isExclusive: false), MemoryImageStore())
    try await Workshop.open(store: store, images: images) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let id = try await shop.submit(url)
      _ = try await shop.finished(id)
      store.publish(.heartbeat(until: .now), from: .none)
      _ = try await shop.engine.job(id, for: Workshop.me)
      #expect(shop.engine.peek(id, for: Workshop.me) == nil)
    }
  }

  @Test("a job that is loaded here is not shown while the store is unavailable")
  func outage() async throws {
    let (store, images) = (MemoryJobStore(isExclusive: false), MemoryImageStore())
    try await Workshop.open(store: store, images: images) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.submit(url)
      _ = try await shop.reached(.loading, id)
      await store.calls.fail(with: [.unavailable(detail: "test")], of: .job)
      await #expect(throws: JobsError.store(.unavailable(detail: "test"))) {
        try await shop.engine.job(id, for: Workshop.me)
      }
      _ = try await shop.engine.cancel(id, for: Workshop.me)
    }
  }

  @Test("all jobs of a purged batch are unknown at once")
  func purgedBatch() async throws {
    try await Pair.open(patience: .milliseconds(200)) { pair in
      let begun = try await pair.writer.engine.createBatch(
        NewBatch(), by: Workshop.me, key: nil)
      let batch = begun.batch
      var lines = NewLines(after: 0)
      let submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
      lines.jobs.append(NewLines.Job(line: 1, job: NewJob(submission: submission)))
      lines.count = 1
      _ = try await pair.writer.engine.add(lines, to: batch, by: Workshop.me)
      let query = JobQuery(owner: nil, now: pair.writer.clock.now, limit: 9)
      let listed = try await pair.writer.engine.jobs(query).jobs
      let id = try #require(listed.first { $0.batch != nil }?.id)
      _ = try await pair.writer.finished(id)
      try await until {
        pair.heartbeat()
        _ = try await pair.reader.engine.job(id, for: Workshop.me)
        return pair.reader.engine.peek(id, for: Workshop.me) != nil
      }
      pair.heartbeat()
      pair.store.calls.holdEvents()
      // The store has not deleted the batch's jobs yet.
      await pair.store.calls.hold(.endStopped)
      try await pair.writer.engine.purge(batch: batch.id, refusedAfter: nil, for: Workshop.me)
      await #expect(throws: JobsError.unknownJob) {
        try await pair.reader.engine.job(id, for: Workshop.me)
      }
      await pair.store.calls.letGo()
    }
  }
}

@Suite("The rules of answers from memory")
struct AnnouncedChangesTests {
  private let start = ContinuousClock.now
  private static let moment = Timestamp(milliseconds: 1_800_000_000_000)
  private let job = Job(
    id: JobID(at: moment), owner: Owner("anna"),
    submission: Submission(source: .url(SourceURL("http://a.example/")!, lowData: nil)),
    priority: .normal, tags: [], createdAt: moment)

  private func after(_ seconds: Double) -> ContinuousClock.Instant { start + .seconds(seconds) }

  @Test("jobs are settled a minute after the first heartbeat, and again a minute after a loss")
  func settled() {
    var changes = AnnouncedChanges(AnnouncementRules())
    #expect(!changes.isSettled(job, at: after(1_000)))
    changes.recordHeartbeat(asked: after(0), at: after(0))
    #expect(!changes.isSettled(job, at: after(59)))
    #expect(changes.isSettled(job, at: after(60)))
    changes.recordLoss(at: after(100))
    #expect(!changes.isSettled(job, at: after(159)))
    #expect(changes.isSettled(job, at: after(160)))
  }

  @Test("an announced job, or a job of an announced batch, is not settled for a minute")
  func announced() throws {
    var changes = AnnouncedChanges(AnnouncementRules())
    changes.recordHeartbeat(asked: after(0), at: after(0))
    changes.add(job.id, at: after(100))
    #expect(!changes.isSettled(job, at: after(159)))
    #expect(changes.isSettled(job, at: after(160)))
    let line = Job(
      id: job.id, owner: job.owner, submission: job.submission, priority: .normal, tags: [],
      createdAt: Self.moment, batch: BatchPosition(id: JobID(at: Self.moment), line: 1))
    changes.add(try #require(line.batch).id, at: after(200))
    #expect(!changes.isSettled(line, at: after(259)))
    #expect(changes.isSettled(line, at: after(260)))
  }

  @Test("a settled state is current until the next announcement or loss")
  func current() {
    var changes = AnnouncedChanges(AnnouncementRules())
    func isCurrent(settled moment: Double, at now: Double) -> Bool {
      changes.recordHeartbeat(asked: after(now), at: after(now))
      return changes.isCurrent(job, settled: after(moment), at: after(now))
    }
    #expect(isCurrent(settled: 100, at: 1) && isCurrent(settled: 100, at: 1_000))
    changes.add(job.id, at: after(1_001))
    #expect(!isCurrent(settled: 100, at: 2_000) && isCurrent(settled: 1_061, at: 2_000))
    changes.recordLoss(at: after(2_001))
    #expect(!isCurrent(settled: 1_061, at: 2_002) && isCurrent(settled: 2_061, at: 2_062))
  }

  @Test("nothing is current three seconds after the last heartbeat was asked for")
  func heartbeat() {
    var changes = AnnouncedChanges(AnnouncementRules())
    #expect(!changes.isCurrent(job, settled: after(1), at: after(2)))
    changes.recordHeartbeat(asked: after(0), at: after(0))
    #expect(changes.isCurrent(job, settled: after(1), at: after(2.9)))
    #expect(!changes.isCurrent(job, settled: after(1), at: after(3)))
  }

  @Test("after more announcements than can be remembered, nothing is settled for a minute")
  func tooMany() {
    var rules = AnnouncementRules()
    rules.maxRemembered = 2
    var changes = AnnouncedChanges(rules)
    changes.recordHeartbeat(asked: after(0), at: after(0))
    for _ in 0..<3 { changes.add(JobID(at: Self.moment), at: after(100)) }
    #expect(!changes.isSettled(job, at: after(159)))
    #expect(changes.isSettled(job, at: after(160)))
  }
}
