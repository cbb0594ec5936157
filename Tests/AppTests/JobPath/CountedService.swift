import API
import CCounting
import Codec
import Engine
import Executors
import Fetch
import Foundation
import Glibc
import HTTP
import Jobs
import Logging
import TestSupport

@testable import App
@testable import Images
@testable import SQL
@testable import SQLite

/// Counts of what the service did for a job.
struct PathCounts {
  /// The number of calls by name. Only calls that were made are listed.
  var calls: [String: Int]
  var libraries: CCounts
  /// The number of tasks for the threads that read and write the database, wait for files, and decode.
  var readers: Int
  var writer: Int
  var files: Int
  var decoders: Int

  /// How often work continued on another thread.
  var hops: Int {
    readers + writer + files + decoders
      + libraries.sharedThreads + libraries.fetchWakeUps + libraries.resumes
  }

  /// The counts that the test limits, by name.
  var figures: [(name: String, count: Int)] {
    let libraries = libraries
    return [
      ("hops", hops), ("to Swift's shared threads", libraries.sharedThreads),
      ("to store-read", readers), ("to store-write", writer), ("to store-images", files),
      ("to decode", decoders), ("to fetch-loop", libraries.fetchWakeUps),
      ("to libmicrohttpd", libraries.resumes), ("synced commits", libraries.syncedCommits),
      ("unsynced commits", libraries.unsyncedCommits), ("file syncs", libraries.fileSyncs),
      ("SQL statements", libraries.statements), ("store calls", calls.values.reduce(0, +)),
    ]
  }

  static func - (later: PathCounts, earlier: PathCounts) -> PathCounts {
    var counts = later
    for (name, count) in earlier.calls {
      let rest = counts.calls[name, default: 0] - count
      counts.calls[name] = rest == 0 ? nil : rest
    }
    counts.readers -= earlier.readers
    counts.writer -= earlier.writer
    counts.files -= earlier.files
    counts.decoders -= earlier.decoders
    let (old, new) = (earlier.libraries, later.libraries)
    counts.libraries = CCounts(
      fileSyncs: new.fileSyncs - old.fileSyncs, logSyncs: new.logSyncs - old.logSyncs,
      databaseSyncs: new.databaseSyncs - old.databaseSyncs,
      syncedCommits: new.syncedCommits - old.syncedCommits,
      unsyncedCommits: new.unsyncedCommits - old.unsyncedCommits,
      statements: new.statements - old.statements,
      sharedThreads: new.sharedThreads - old.sharedThreads,
      fetchWakeUps: new.fetchWakeUps - old.fetchWakeUps,
      suspends: new.suspends - old.suspends, resumes: new.resumes - old.resumes)
    return counts
  }
}

/// The whole service in this process, as `serve` builds it, with counts of everything that it does.
struct CountedService {
  private let store: SQLJobStore
  private let images: FileImageStore
  private let decoders = ThreadPool(name: "decode", threads: 1)
  private let fetcher: CurlFetcher
  private let engine: JobEngine
  private let server: HTTPServer
  private let calls = Calls()

  /// Use it in a separate process, because the counts are those of the whole process.
  init(folder: String) throws {
    ccounting_start()
    var configuration = App.Configuration()
    configuration.http.port = 0
    configuration.http.threads = 1
    configuration.fetcher.policy.allowNetworks = [CIDR("127.0.0.0/8")].compactMap(\.self)
    configuration.fetcher.policy.allowPorts = []
    let log = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    store = try SQLJobStore(
      SQLJobStore.Configuration(SQLiteDatabase(.init(path: folder + "/jobs.sqlite"))))
    images = try FileImageStore(.init(path: folder + "/images"))
    fetcher = try CurlFetcher(configuration.fetcher)
    engine = JobEngine(
      configuration.engineConfiguration,
      JobEngine.Parts(
        store: CountingJobStore(store: store, calls: calls),
        images: CountingImageStore(
          store: TieredImageStore(jobs: store, files: images), calls: calls),
        spool: CountingImageSpool(spool: images.spool, calls: calls),
        fetcher: fetcher,
        codec: StreamingCodec(), renderer: StreamingRenderer(), threads: decoders),
      now: { .wallClock }, log: log)
    let routes = Routes(
      service: engine, configuration: configuration.routesConfiguration, openAPI: [],
      openAPIJSON: { [] },
      dashboard: { WebPage([], contentSecurityPolicy: "") }, metrics: { "" },
      activity: { Activity(end: .wallClock) }, log: log)
    server = HTTPServer(
      try configuration.serverConfiguration(), handler: routes.respond(to:),
      refusal: routes.refuse(_:origin:), log: log)
  }

  /// Runs while the body runs, on a thread that does not belong to Swift's shared ones.
  func run(_ body: @escaping @Sendable (_ port: Int) -> Void) async throws {
    let port = try server.start().port
    let (readiness, isReady) = AsyncStream.makeStream(of: Void.self)
    try await withThrowingTaskGroup { group in
      group.addTask { try await engine.run { isReady.finish() } }
      for await _ in readiness {}
      await withCheckedContinuation { continuation in
        startThread(named: "client") {
          body(port)
          continuation.resume()
        }
      }
      await engine.drain(within: .seconds(10))
      try await group.waitForAll()
    }
    await server.stop(within: .seconds(2))
    fetcher.shutdown()
    await store.close()
  }

  /// Submits a job and waits for its end without requests to the service, and then until the service is idle.
  ///
  /// - Returns: The counts for this time. Nil if the job did not succeed; the reason is printed.
  func count(_ client: PlainClient, job url: String) -> PathCounts? {
    let before = counts
    guard let id = client.post(url: url).flatMap({ JobID($0) }) else {
      print("\(url) is not accepted")
      return nil
    }
    let admin = Caller(owner: Owner(""), isAdmin: true)
    var phase = Phase.queued
    let deadline = ContinuousClock.now + .seconds(60)
    while !phase.isFinished, ContinuousClock.now < deadline {
      usleep(1000)
      phase = engine.peek(id, for: admin)?.job.phase ?? phase
    }
    guard phase == .success else {
      print("\(url) is \(phase)")
      return nil
    }
    return settled() - before
  }

  /// Waits until the counts stay equal for 20 ms. The service's periodic work has longer pauses.
  func settled() -> PathCounts {
    var (last, since) = (counts, 0)
    let deadline = ContinuousClock.now + .seconds(5)
    while since < 10, ContinuousClock.now < deadline {
      usleep(2000)
      let now = counts
      since = now.hops == last.hops ? since + 1 : 0
      last = now
    }
    return last
  }

  private var counts: PathCounts {
    PathCounts(
      calls: calls.all, libraries: ccounting_counts(), readers: store.reading.accepted,
      writer: store.writing.accepted, files: Int(images.disk.enqueuedCount),
      decoders: Int(decoders.enqueuedCount))
  }
}

/// A client on one connection that uses no Swift task.
final class PlainClient {
  private let socket: Int32
  private let port: Int

  init?(port: Int) {
    self.port = port
    socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = in_port_t(port).bigEndian
    address.sin_addr.s_addr = in_addr_t(0x7F00_0001).bigEndian
    let code = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard code == 0 else { return nil }
  }

  deinit { close(socket) }

  /// - Returns: The accepted job's id.
  func post(url: String) -> String? {
    let body = "{\"url\":\"\(url)\"}"
    let request = """
      POST /jobs HTTP/1.1\r
      Host: 127.0.0.1:\(port)\r
      Content-Type: application/json\r
      Content-Length: \(body.utf8.count)\r
      \r
      \(body)
      """
    guard send(socket, request, request.utf8.count, Int32(MSG_NOSIGNAL)) > 0 else {
      return nil
    }
    var answer = ""
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = read(socket, &buffer, buffer.count)
      guard count > 0 else { return nil }
      answer += String(decoding: buffer.prefix(count), as: UTF8.self)
      // The response is complete: it ends with the accepted job's document.
      guard answer.hasSuffix("}") || answer.hasSuffix("}\n") else { continue }
      guard answer.hasPrefix("HTTP/1.1 202 ") else { return nil }
      return answer.firstMatch(of: #/"id":"([^"]+)"/#).map { String($0.1) }
    }
  }
}
