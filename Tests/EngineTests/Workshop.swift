import Images
import Jobs
import Logging
import SQL
import TestSupport

@testable import Engine

/// An engine with stores in memory, a scripted origin and a fake codec. It runs while a test's body runs.
struct Workshop {
  let engine: JobEngine
  let store: MemoryJobStore
  let images: MemoryImageStore
  let fetcher: ScriptedFetcher
  let codec: FakeCodec
  let clock: ManualClock
  static let me = Caller(owner: Owner("me"), isAdmin: false)

  /// - Parameters:
  ///   - jpegs: decodes instead of the plain fake codec.
  static func open(
    store: MemoryJobStore = MemoryJobStore(), images: MemoryImageStore = MemoryImageStore(),
    fetcher: ScriptedFetcher = ScriptedFetcher(), renderer: (any ImageRenderer)? = nil,
    jpegs: JPEGCodec? = nil,
    locals: (any LocalImages)? = nil, destinations: (any ImageDestinations)? = nil,
    clock: ManualClock = ManualClock(),
    threads: any ComputeThreads = TestThreads(),
    log: Logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
    _ adjust: (inout JobEngine.Configuration) -> Void = { _ in },
    _ body: (Workshop) async throws -> Void
  ) async throws {
    var configuration = JobEngine.Configuration()
    configuration.workers = 4
    configuration.retry.initialBackoff = .milliseconds(1)
    adjust(&configuration)
    store.calls.use { clock.now }
    let codec = jpegs?.fake ?? FakeCodec()
    var parts = JobEngine.Parts(
      store: store, images: images, spool: images.spool, fetcher: fetcher, codec: codec,
      renderer: renderer,
      locals: locals, destinations: destinations,
      threads: threads)
    if let jpegs { parts.codec = jpegs }
    if store.largestEmbedded > 0 { parts.images = TieredImageStore(jobs: store, files: images) }
    let engine = JobEngine(
      configuration, parts, now: { clock.now }, log: log)
    let workshop = Workshop(
      engine: engine, store: store, images: images, fetcher: fetcher,
      codec: codec, clock: clock)
    async let running: Void = engine.run()
    do {
      while engine.state == .starting { await Task.yield() }
      try await body(workshop)
      await engine.drain(within: .zero)
      try await running
    } catch {
      await engine.drain(within: .zero)
      try await running
      throw error
    }
  }

  func submit(
    _ url: String, priority: Priority = .normal, _ adjust: (inout Submission) -> Void = { _ in }
  ) async throws -> JobID {
    var submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
    adjust(&submission)
    let new = NewJob(submission: submission, priority: priority)
    return try await engine.submit([new], by: Self.me, key: nil)[0].id
  }

  func finished(_ id: JobID) async throws -> Job {
    try await engine.wait(id, for: Self.me, until: .finished, atMost: patience).job
  }

  /// Stores an image that becomes stale. Its origin is silent once and then sends `last`.
  func storeStale(_ url: String, then last: [UInt8] = ok) async throws {
    let fields = [HeaderField(name: "Cache-Control", value: "max-age=1, stale-if-error=86400")]
    fetcher.answer(url, with: .responds(200, fields, ok), .silent, .responds(200, fields, last))
    _ = try await finished(submit(url))
    clock.advance(by: .seconds(5))
  }

  func reached(_ phase: Phase, _ id: JobID) async throws -> Job {
    while true {
      try Task.checkCancellation()
      let job = try await engine.job(id, for: Self.me).job
      if job.phase == phase || job.phase.isFinished { return job }
      let goal = WaitCondition.versionOtherThan(job.version)
      _ = try await engine.wait(id, for: Self.me, until: goal, atMost: .seconds(10))
    }
  }
}

extension BegunBatch {
  /// The batch, if it has been neither purged nor expired.
  var batch: Batch {
    switch self {
    case .new(let batch), .repeated(let batch): batch
    case .gone(let id): fatalError("\(id) is gone")
    }
  }
}

let ok = Array("ok then some bytes".utf8)
