import Logging
import SQL
import Synchronization
import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("Concurrent changes", .timeLimit(.minutes(15)))
struct ChangingTests {
  private let url = "http://a.example/x.png"

  /// Runs both changes while the store holds them back, so that both have read the job before either changes
  /// it.
  private func together(
    _ shop: Workshop, _ first: @escaping @Sendable () async throws -> Void,
    _ second: @escaping @Sendable () async throws -> Void
  ) async throws -> [JobsError?] {
    await shop.store.calls.hold()
    return try await withThrowingTaskGroup { group in
      for change in [first, second] {
        group.addTask { () -> JobsError? in
          do { try await change() } catch let error as JobsError { return error }
          return nil
        }
      }
      try await until { await shop.store.calls.heldCalls >= 2 }
      await shop.store.calls.letGo()
      return try await group.reduce(into: []) { $0.append($1) }
    }
  }

  @Test("one of two concurrent changes that name the same version succeeds")
  func ifMatch() async throws {
    try await Workshop.open({ $0.workers = 1 }) { shop in
      shop.fetcher.answer("http://busy.example/", with: .hangs(after: ok))
      _ = try await shop.reached(.loading, shop.submit("http://busy.example/"))
      let engine = shop.engine
      typealias Change = @Sendable (JobID, Int) async throws -> Void
      let edit: Change = { id, version in
        _ = try await engine.edit(
          id, for: Workshop.me, priority: nil, tags: ["\(UInt64.random(in: 0 ... .max))"],
          ifVersion: [version])
      }
      let cancel: Change = { id, version in
        _ = try await engine.cancel(id, for: Workshop.me, ifVersion: [version])
      }
      let purge: Change = { id, version in
        try await engine.purge(id, for: Workshop.me, ifVersion: [version])
      }
      for (first, second) in [
        (edit, edit), (edit, cancel), (edit, purge), (cancel, cancel), (cancel, purge),
        (purge, purge),
      ] {
        let id = try await shop.submit(url)
        let version = try await engine.job(id, for: Workshop.me).job.version
        let ends = try await together(shop, { try await first(id, version) }) {
          try await second(id, version)
        }
        #expect(ends.filter { $0 == nil }.count == 1, "\(ends)")
        #expect(ends.contains(.versionDiffers) || ends.contains(.unknownJob), "\(ends)")
      }
    }
  }

  @Test(
    "a change is answered with the job right after it, even if a later state is known by then",
    arguments: [true, false])
  func ownChange(isExclusive: Bool) async throws {
    let store = MemoryJobStore(isExclusive: isExclusive)
    try await Workshop.open(store: store, { $0.workers = 0 }) { shop in
      let (engine, moment) = (shop.engine, shop.clock.now)
      typealias Own = @Sendable (JobID) async throws -> JobSnapshot
      typealias Later = @Sendable (inout Job) -> Bool
      let cancel: Later = { $0.cancel(at: moment, keptFor: .seconds(60)) }
      let changes: [(own: Own, Phase, tags: [String], Later)] = [
        (
          { try await engine.edit($0, for: Workshop.me, priority: nil, tags: ["own"]) }, .queued,
          ["own"], { $0.edit(priority: nil, tags: ["later"]) }
        ),
        (
          { try await engine.edit($0, for: Workshop.me, priority: nil, tags: []) }, .queued, [],
          cancel
        ),
        (
          { try await engine.cancel($0, for: Workshop.me) }, .cancelled, [],
          { $0.fetchAgain(at: moment, from: .regular) }
        ),
        ({ try await engine.refetch($0, for: Workshop.me) }, .queued, [], cancel),
      ]
      for (number, (own, phase, tags, later)) in changes.enumerated() {
        let id = try await shop.submit(url)
        if number == 3 { _ = try await engine.cancel(id, for: Workshop.me) }
        await store.calls.hold(.update.answer)
        async let answer = own(id)
        let held: Void? = try? await until { await store.calls.heldCalls == 1 }
        let last = try? await store.update(id, under: nil, later)
        // As the request or the event that reports the later change does.
        if let last { engine.events.publisher.publish(last, hasEnded: false) }
        await store.calls.letGo()
        let (shown, newest) = (try await answer, try #require(last))
        #expect(held != nil && shown.job.phase == phase && shown.job.tags == tags, "\(number)")
        #expect(shown.job.version < newest.version, "\(number)")
        #expect(try await engine.job(id, for: Workshop.me).job == newest)
        await #expect(throws: JobsError.versionDiffers) {
          try await engine.edit(
            id, for: Workshop.me, priority: nil, tags: nil, ifVersion: [shown.job.version])
        }
      }
    }
  }

  @Test(
    "a version stays valid while only progress changes")
  func progress() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.submit(url)
      var shown = try await shop.reached(.loading, id)
      let taken = try #require(await shop.store.job(id)).version
      while shown.progress.completed == 0 {
        let goal = WaitCondition.versionOtherThan(shown.version)
        shown = try await shop.engine.wait(
          id, for: Workshop.me, until: goal, atMost: .seconds(10)
        ).job
      }
      #expect(taken < shown.version)
      let edited = try await shop.engine.edit(
        id, for: Workshop.me, priority: nil, tags: ["new"], ifVersion: [taken])
      #expect(edited.job.tags == ["new"] && edited.job.version > shown.version)
      #expect(edited.job.progress == shown.progress, "an edit does not undo progress")
      await #expect(throws: JobsError.versionDiffers) {
        try await shop.engine.edit(
          id, for: Workshop.me, priority: nil, tags: ["old"], ifVersion: [taken, shown.version])
      }
      await #expect(throws: JobsError.versionDiffers) {
        try await shop.engine.purge(id, for: Workshop.me, ifVersion: [shown.version])
      }
      try await shop.engine.purge(id, for: Workshop.me, ifVersion: [edited.job.version])
    }
  }

  @Test("an end is published once, by the request that made it, even if the store repeats it")
  func madeAgain() async throws {
    let lines = LogLines()
    try await Workshop.open(log: lines.logger, { $0.workers = 1 }) { shop in
      shop.fetcher.answer("http://busy.example/", with: .hangs(after: ok))
      _ = try await shop.reached(.loading, shop.submit("http://busy.example/"))
      let moment = shop.clock.now + .seconds(1)
      for isAfterAnother in [true, false] {
        let (store, id) = (shop.store, try await shop.submit(url))
        let another = StoreCalls.TryAgain.afterAnother {
          _ = try await store.update(id, under: nil) {
            $0.cancel(at: moment, keptFor: .seconds(60))
          }
        }
        await store.calls.makeAgain(isAfterAnother ? another : .afterCommit)
        #expect(try await shop.engine.cancel(id, for: Workshop.me).job.phase == .cancelled)
        #expect(lines.ends(of: id) == (isAfterAnother ? [] : ["cancelled"]))
      }
      let id = try await shop.submit(url)
      let version = try await shop.engine.job(id, for: Workshop.me).job.version
      await shop.store.calls.makeAgain(.afterCommit)
      let job = try await shop.engine.cancel(id, for: Workshop.me, ifVersion: [version]).job
      #expect(job.phase == .cancelled, "its own change is no conflict")
    }
  }

  @Test("a job's end is logged once, however it ends and however many requests end it")
  func logged() async throws {
    let lines = LogLines()
    try await Workshop.open(
      log: lines.logger,
      {
        $0.workers = 1; $0.cache.defaultTTL = .seconds(60)
      }
    ) { shop in
      shop.fetcher.answer("http://busy.example/", with: .hangs(after: ok))
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let done = try await shop.finished(shop.submit(url)).id
      #expect(lines.ends(of: done) == ["success"])
      let again = try await shop.finished(shop.submit(url))
      #expect(again.cache?.status == .hit && lines.ends(of: again.id) == ["success"])
      let failed = try await shop.finished(shop.submit("http://none.example/")).id
      try await until { lines.ends(of: failed) == ["failure"] }

      let busy = try await shop.submit("http://busy.example/")
      _ = try await shop.reached(.loading, busy)
      // The queued job may start once the first one is cancelled.
      shop.fetcher.answer("http://other.example/", with: .hangs(after: ok))
      let queued = try await shop.submit("http://other.example/")
      // Cancel the queued job first: an idle worker would start it at once.
      for id in [queued, busy] {
        let cancel: @Sendable () async throws -> Void = { [engine = shop.engine] in
          _ = try await engine.cancel(id, for: Workshop.me)
        }
        #expect(try await together(shop, cancel, cancel) == [nil, nil])
        #expect(lines.ends(of: id) == ["cancelled"])
      }
      try await shop.engine.purge(queued, for: Workshop.me)
      #expect(lines.ends(of: queued) == ["cancelled"])
      let purged = try await shop.submit("http://busy.example/")
      _ = try await shop.reached(.loading, purged)
      try await shop.engine.purge(purged, for: Workshop.me)
      #expect(lines.ends(of: purged) == ["cancelled"])
    }
  }
}

/// Collects log lines.
final class LogLines: Sendable {
  private let lines = Mutex<[(message: String, metadata: Logger.Metadata)]>([])

  var logger: Logger { Logger(label: "test") { _ in Handler(lines: self) } }

  /// The phases of a job that were logged as its end.
  func ends(of id: JobID) -> [String] {
    lines.withLock { lines in
      lines.filter { $0.message == "job finished" && $0.metadata["job"] == "\(id)" }
        .map { $0.metadata["phase"].map { "\($0)" } ?? "" }
    }
  }

  func count(_ message: String) -> Int {
    lines.withLock { $0.count { $0.message == message } }
  }

  private struct Handler: LogHandler {
    let lines: LogLines
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.info

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      lines.lines.withLock { $0.append(("\(event.message)", event.metadata ?? [:])) }
    }
  }
}
