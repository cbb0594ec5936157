import Foundation
import Jobs
import Logging
import SQL
import SQLite
import Synchronization
import TestSupport
import Testing

@testable import Engine

/// An engine over SQLite, with many jobs for one origin that treats all requests alike.
final class ManyJobsEngine: Sendable {
  /// How the origin behaves.
  enum Origin: Sendable, CaseIterable {
    case refuses
    /// Sends nothing until the jobs time out.
    case slow
    case good
  }

  let engine: JobEngine
  let store: SQLJobStore
  let database: CountedSQLite
  let origin: Answers
  private let running: Task<Void, any Error>
  private let folder: String

  /// Answers all requests in the same way, and counts them.
  final class Answers: ImageFetcher {
    private let origin: Origin
    private let asked = Atomic(0)

    init(_ origin: Origin) { self.origin = origin }

    var requests: Int { asked.load(ordering: .relaxed) }

    func fetch(_ request: FetchRequest) async throws(FetchError) -> FetchedResponse {
      asked.add(1, ordering: .relaxed)
      switch origin {
      case .refuses: throw .connectFailure(host: request.url.host, detail: "refused")
      case .slow:
        while !Task.isCancelled { try? await Task.sleep(for: .seconds(60)) }
        throw .cancelled
      case .good:
        let headers = [HeaderField(name: "Cache-Control", value: "no-store")]
        return FetchedResponse(
          url: request.url, status: 200, headers: headers, contentLength: nil, body: Once(ok),
          timings: TransferTimings())
      }
    }
  }

  private final class Once: ImageBytes {
    private let bytes: Mutex<[UInt8]?>
    init(_ bytes: [UInt8]) { self.bytes = Mutex(bytes) }
    func next() async throws(FetchError) -> [UInt8]? { bytes.withLock { $0.take() } }
  }

  init(_ behaviour: Origin, workers: Int) async throws {
    let memory = "/dev/shm/"
    let base = FileManager.default.isWritableFile(atPath: memory) ? memory : NSTemporaryDirectory()
    folder = base + "crowd-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    database = try CountedSQLite(.init(path: folder + "/jobs.sqlite"))
    store = try SQLJobStore(.init(database))
    origin = Answers(behaviour)
    var configuration = JobEngine.Configuration()
    configuration.workers = workers
    configuration.retry.initialBackoff = .milliseconds(1)
    configuration.cache.isEnabled = false
    let parts = JobEngine.Parts(
      store: store, images: MemoryImageStore(), spool: MemoryImageSpool(), fetcher: origin,
      codec: FakeCodec(),
      threads: TestThreads())
    let engine = JobEngine(
      configuration, parts,
      now: { Timestamp(milliseconds: Int64(Date().timeIntervalSince1970 * 1_000)) },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    self.engine = engine
    running = Task { try await engine.run() }
    while engine.state == .starting { try await Task.sleep(for: .milliseconds(1)) }
  }

  /// Submits this many jobs, all for one URL or each for its own.
  func submit(
    _ count: Int, areEqual: Bool, _ adjust: (inout Submission) -> Void = { _ in }
  ) async throws {
    let jobs = (0..<count).map { number in
      let url = "http://crowd.example/\(areEqual ? 0 : number)"
      var submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
      submission.cacheMode = .noStore
      adjust(&submission)
      return NewJob(submission: submission)
    }
    _ = try await engine.submit(jobs, by: Workshop.me, key: nil)
  }

  func count(_ phases: Phase...) async throws -> Int {
    let counts = try await store.counts()
    return phases.reduce(0) { $0 + (counts.jobs[$1] ?? 0) }
  }

  var work: CountedSQLite.Work { database.work }

  /// Stops the engine as a signal would.
  func stop(within limit: Duration) async throws {
    await engine.drain(within: limit)
    try await running.value
  }

  func close() async throws {
    try await stop(within: .zero)
    await store.close()
    try FileManager.default.removeItem(atPath: folder)
  }
}
