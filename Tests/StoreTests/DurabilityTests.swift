import Foundation
import Glibc
import Jobs
import Synchronization
import TestSupport
import Testing

@testable import Images
@testable import SQL
@testable import SQLite

@Suite("Durability")
struct DurabilityTests {
  @Test("each commit on the writing connection is synced")
  func synchronous() async throws {
    let jobs = try OpenJobs()
    _ = try await jobs.store.submit(.sample(1))
    let (synchronous, mode) = try await jobs.store.sql.write { transaction in
      (
        try transaction.execute("PRAGMA synchronous").int(0, 0),
        try transaction.execute("PRAGMA journal_mode").bytes(0, 0)
      )
    }
    #expect(synchronous == 2 && mode == Array("wal".utf8))
    await jobs.store.close()
  }

  @Test("claims, reservations and cache uses are committed without a sync")
  func unsynced() async throws {
    let jobs = try OpenJobs()
    let store = jobs.store
    _ = try await store.submit(.sample(1), .sample(2))
    _ = try await store.instance
    let before = store.work
    let (_, claim) = try #require(await store.claimOne())
    _ = try await store.reserve(.sample(1), bytes: 10, as: JobID(at: .at(1)), limit: 100)
    try await store.touch([CacheEntry.sample(1, .sample(1), bytes: 10).id: .at(5)])
    let between = store.work - before
    #expect(between.transactions == 3 && between.syncedTransactions == 0)
    let synchronous = try await store.onWriter { try $0.execute("PRAGMA synchronous").int(0, 0) }
    #expect(synchronous == 1)
    _ = try await store.complete(
      Completion([claim]) { job in
        job.fail(.notCached, at: .at(9), keptFor: .seconds(9))
        return true
      })
    #expect((store.work - before).syncedTransactions == 1)
    await store.close()
  }

  private static func logSize(_ jobs: OpenJobs) throws -> Int {
    let attributes = try FileManager.default.attributesOfItem(
      atPath: jobs.folder.path + "/jobs.sqlite-wal")
    return try #require(attributes[.size] as? Int)
  }

  @Test("a clean stop empties the log, so that the database is a single file")
  func emptiedLog() async throws {
    let jobs = try OpenJobs()
    _ = try await jobs.store.submit((0..<500).map { .sample($0) }, key: nil, capacity: .max)
    #expect(try Self.logSize(jobs) > 100_000)
    await jobs.store.close()
    let left = (try? Self.logSize(jobs)) ?? 0
    #expect(left == 0)
    let copy = jobs.folder.path + "/copy/jobs.sqlite"
    try FileManager.default.createDirectory(
      atPath: jobs.folder.path + "/copy", withIntermediateDirectories: true)
    try FileManager.default.copyItem(atPath: jobs.folder.path + "/jobs.sqlite", toPath: copy)
    let opened = try SQLJobStore(SQLJobStore.Configuration(SQLiteDatabase(.init(path: copy))))
    #expect(try await opened.counts().jobs[.queued] == 500)
    await opened.close()
  }

  @Test("a stop does not wait for another program that reads the database, and loses nothing")
  func readByAnother() async throws {
    let jobs = try OpenJobs()
    _ = try await jobs.store.submit((0..<500).map { .sample($0) }, key: nil, capacity: .max)
    let backup = try jobs.file
    try backup.run("BEGIN; SELECT count(*) FROM jobs")
    _ = try await jobs.store.submit(.sample(1_000))
    await jobs.store.close()
    try backup.run("COMMIT")
    let reopened = try jobs.folder.openJobs()
    #expect(try await reopened.counts().jobs[.queued] == 501)
    await reopened.close()
  }

  /// Blocks the writing thread, so that further operations wait together.
  /// - Returns: a semaphore to continue, and the task of the blocking operation.
  private static func hold(
    _ store: StoreUnderTest
  ) async -> (gate: DispatchSemaphore, held: Task<Void, any Error>) {
    let gate = DispatchSemaphore(value: 0)
    let (runs, running) = AsyncStream<Void>.makeStream()
    let held = Task<Void, any Error> {
      try await store.onWriter { _ in
        running.finish()
        gate.wait()
      }
    }
    for await _ in runs {}
    return (gate, held)
  }

  @Test("concurrent submissions share commits")
  func groups() async throws {
    let jobs = try OpenJobs()
    let store = jobs.store
    let (gate, held) = await Self.hold(store)
    let before = store.work
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<100 {
        group.addTask { _ = try await store.submit(.sample(Int64(number))) }
      }
      group.addTask {
        let deadline = ContinuousClock.now + patience
        while store.sql.writing.waiting < 100, ContinuousClock.now < deadline { await Task.yield() }
        gate.signal()
      }
      try await group.waitForAll()
    }
    try await held.value
    #expect((store.work - before).transactions <= 2)
    #expect(try await store.counts().jobs[.queued] == 100)
    await store.close()
  }

  @Test("a repeated key writes nothing")
  func repetition() async throws {
    let jobs = try OpenJobs()
    let store = jobs.store
    var key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    let batch = (0..<50).map { Job.sample($0) }
    #expect(try await store.submit(batch, key: key, capacity: 99) == .accepted)
    let before = store.work
    let again = try await store.submit([.sample(99)], key: key, capacity: 0)
    #expect(again == .repeated(batch.map { .kept($0) }))
    key.fingerprint = .sample(2)
    #expect(try await store.submit([.sample(99)], key: key, capacity: 0) == .keyReused)
    #expect((store.work - before).changes == 0)
    await store.close()
  }

  @Test("no commit has more operations than the limit")
  func batchLimit() async throws {
    let jobs = try OpenJobs { $0.maxBatch = 7 }
    let store = jobs.store
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<50 {
        group.addTask { _ = try await store.submit(.sample(Int64(number))) }
      }
      try await group.waitForAll()
    }
    #expect(store.work.transactions >= 8)
    await store.close()
  }

  @Test("a failed operation undoes only its own changes")
  func failsAlone() async throws {
    let jobs = try OpenJobs()
    let store = jobs.store
    let (gate, held) = await Self.hold(store)
    let bad = Task {
      try await store.sql.perform(on: store.sql.writing, isMerged: true) { transaction in
        try transaction.insert([JobRow(.sample(1))], tags: [])
        throw StoreError.unavailable(detail: "on purpose")
      }
    }
    async let good = store.submit(.sample(2))
    let deadline = ContinuousClock.now + patience
    while store.sql.writing.waiting < 2, ContinuousClock.now < deadline { await Task.yield() }
    gate.signal()
    #expect(try await good == .accepted)
    await #expect(throws: StoreError.unavailable(detail: "on purpose")) { try await bad.value }
    try await held.value
    #expect(try await store.counts().jobs[.queued] == 1)
    try await store.audit()
    await store.close()
  }

  @Test("acknowledged jobs survive a crash at any time")
  func crash() async throws {
    let jobs = try OpenJobs()
    let store = jobs.store
    // Without checkpoints the log only grows. So a copy of the database, followed by a copy of its
    // log, is the state after a crash at that time.
    try await store.onWriter { try $0.run("PRAGMA wal_autocheckpoint = 0") }
    let acknowledged = Acknowledged()
    let copies = try await withThrowingTaskGroup(of: Void.self) { group in
      for worker in 0..<8 {
        group.addTask {
          for number in 0..<60 {
            let job = Job.sample(Int64(worker * 1_000 + number), tags: ["t"])
            _ = try await store.submit(job)
            acknowledged.add(job.id)
            _ = try await store.claim(1, at: .at(9_999))
          }
        }
      }
      var copies: [(TemporaryFolder, Set<JobID>)] = []
      for _ in 0..<5 {
        let known = acknowledged.all
        let copy = try TemporaryFolder()
        for name in ["jobs.sqlite", "jobs.sqlite-wal"] {
          try FileManager.default.copyItem(
            atPath: jobs.folder.path + "/" + name, toPath: copy.path + "/" + name)
        }
        copies.append((copy, known))
        // There are 480 jobs.
        _ = await poll { acknowledged.all.count >= min(known.count + 40, 480) }
      }
      try await group.waitForAll()
      return copies
    }
    for (copy, known) in copies {
      let survivor = try copy.openJobs()
      _ = try await survivor.recover()
      #expect(try await survivor.counts().jobs[.loading] == 0)
      for id in known { #expect(try await survivor.job(id)?.phase == .queued) }
      try await survivor.audit()
      await survivor.close()
    }
    #expect(copies.last.map { !$0.1.isEmpty } == true)
    await store.close()
  }

  private final class Acknowledged: Sendable {
    private let ids = Mutex<Set<JobID>>([])
    var all: Set<JobID> { ids.withLock(\.self) }
    func add(_ id: JobID) { ids.withLock { _ = $0.insert(id) } }
  }

  /// Limits the size of the database, like a full disk.
  private static func limitPages(_ store: StoreUnderTest, more: Int64) async throws {
    try await store.onWriter { transaction in
      let pages = try #require(transaction.execute("PRAGMA page_count").int(0, 0))
      try transaction.run("PRAGMA max_page_count = \(pages + more)")
    }
  }

  @Test("a full disk is reported, and the store works again when there is space")
  func fullDisk() async throws {
    let jobs = try OpenJobs()
    let store = jobs.store
    try await Self.limitPages(store, more: 3)
    var outcome: StoreError?
    for number in 0..<200 where outcome == nil {
      do throws(StoreError) {
        let batch = (0..<20).map { Job.sample(Int64(number * 20 + $0)) }
        _ = try await store.base.submit(batch, key: nil, capacity: .max)
      } catch {
        outcome = error
      }
    }
    #expect(outcome == .full)
    try await store.audit()
    try await Self.limitPages(store, more: 1_000_000)
    #expect(try await store.submit(.sample(99_999)) == .accepted)
    try await store.audit()
    await store.close()
  }

  @Test("a message whose result could not be stored on a full disk is not sent again")
  func fullOutbox() async throws {
    let jobs = try OpenJobs()
    let store = jobs.store
    let instance = try await store.instance
    var job = Job.sample(1)
    var submission = job.submission
    submission.webhook = Webhook(
      url: SourceURL("https://a.example/hook")!, events: WebhookEvent.jobEnds)
    job = Job(
      id: job.id, owner: job.owner, submission: submission, priority: .normal, tags: [],
      createdAt: job.createdAt)
    _ = try await store.submit(job)
    _ = try await store.update(job.id, under: nil) { $0.cancel(at: .at(5), keptFor: .seconds(9)) }
    func take(_ sending: [WebhookMessage]) async throws -> [WebhookMessage] {
      try await store.base.claimMessages(
        MessageRequest(by: instance, sending: Set(sending.map(\.id)), count: 9, perHost: 2)
      ).messages
    }
    store.clock.set(.at(10))
    let taken = try await take([])
    var message = try #require(taken.first)
    message.recordAnswer(
      WebhookAnswer(
        at: .at(20), time: .zero, status: nil,
        error: .noResponse(host: "a.example", detail: String(repeating: "x", count: 100_000))),
      under: .standard, dice: 0)
    try await Self.limitPages(store, more: 0)
    for _ in 0..<3 {
      await #expect(throws: StoreError.full) {
        try await store.base.saveResult(message, by: instance)
      }
      #expect(try await take(taken).isEmpty)
    }
    try await Self.limitPages(store, more: 1_000_000)
    try await store.base.saveResult(message, by: instance)
    #expect(try await store.base.messages(of: job.id) == [message])
    await store.close()
  }

  @Test("a lease does not end when the system's clock is set forward")
  func clockSetForward() async throws {
    let folder = try TemporaryFolder()
    let clock = ManualClock(.at(0))
    var database = SQLiteDatabase.Configuration(path: folder.path + "/jobs.sqlite")
    database.clock = { clock.now }
    let store = try SQLJobStore(SQLJobStore.Configuration(SQLiteDatabase(database)))
    let instance = try await store.register(for: .seconds(600))
    clock.set(.at(86_400_000))
    #expect(try await store.recoverExpired(9).isEmpty)
    #expect(try await store.renew(instance, for: .seconds(600)) != nil)
    #expect(try await store.submit([.sample(1)], key: nil, capacity: 9) == .accepted)
    let claimed = try await store.claim(1, for: instance, room: .unlimited)
    #expect(claimed.jobs.count == 1)
    await store.close()
  }

  @Test("a file that is no database is refused and not overwritten")
  func foreignFile() throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/jobs.sqlite"
    try Data("not a database, but a text file".utf8).write(to: URL(fileURLWithPath: path))
    #expect(throws: StoreError.self) { try folder.openJobs() }
    #expect(try String(contentsOfFile: path, encoding: .utf8).hasPrefix("not a database"))
  }

  @Test("a second process can't open the database before the first has closed it")
  func locked() async throws {
    let jobs = try OpenJobs()
    let error = #expect(throws: StoreError.self) { try jobs.folder.openJobs() }
    #expect(error.map { "\($0)".contains("another service") } == true)
    let reopened = try await jobs.reopened()
    await reopened.close()
  }

  @Test("a folder can be locked after its process released it, and soon after a kill")
  func inherited() throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/lock"
    let first = try FolderLock(path)
    // The descriptor that a child has between spawn and exec.
    let copy = try #require(Self.descriptor(of: path).map { fcntl($0, F_DUPFD_CLOEXEC, 0) })
    first.release()
    let second = try FolderLock(path)
    second.release()
    close(copy)

    let left = open(path, O_RDWR | O_CLOEXEC)
    try #require(flock(left, LOCK_EX | LOCK_NB) == 0)
    Thread.detachNewThread {
      usleep(100_000)
      close(left)
    }
    let third = try FolderLock(path)
    #expect(throws: StoreError.self) { try FolderLock(path) }
    third.release()
  }

  /// Returns a descriptor of this process that is open for a file.
  private static func descriptor(of path: String) throws -> Int32? {
    var file = stat()
    try #require(stat(path, &file) == 0)
    return (0..<Int32(sysconf(Int32(_SC_OPEN_MAX)))).first { number in
      var open = stat()
      return fstat(number, &open) == 0 && open.st_ino == file.st_ino && open.st_dev == file.st_dev
    }
  }

  @Test("a closed store has finished its accepted requests and rejects all others")
  func closed() async throws {
    let jobs = try OpenJobs()
    let store = jobs.store
    async let submitted = store.submit([.sample(1)], key: nil, capacity: 1)
    _ = try await submitted
    await store.close()
    await #expect(throws: StoreError.self) { try await store.submit(.sample(2)) }
    await #expect(throws: StoreError.self) { try await store.job(JobID(at: .at(1))) }
  }
}
