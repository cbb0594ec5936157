internal import API
internal import Contract
internal import Dashboard
package import Engine
package import Executors
internal import Fetch
internal import Foundation
internal import Glibc
internal import HTTP
package import Images
package import Jobs
internal import Logging

/// The service's parts. Each is created after the parts that it uses, and closed before them.
struct Parts: Sendable {
  private let configuration: Configuration
  private let log: Logger
  private let jobs: ConfiguredJobStore
  private let images: ConfiguredImageStore
  private let fetcher: CurlFetcher
  private let engine: JobEngine
  private let routes: Routes
  private let tokens: CurrentTokens
  private let server: HTTPServer
  private let recorder: ActivityRecorder
  private let decoding: ImageDecoding
  /// Nil if `tracing.endpoint` is not set.
  let tracer: TraceExporter?

  /// - Parameter isDurable: whether jobs and images survive a crash of the machine.
  init(
    _ configuration: Configuration, registry: PrometheusRegistry, log: Logger,
    isDurable: Bool = true
  ) throws(StartError) {
    try configuration.checkImageKeys()
    self.configuration = configuration
    self.log = log
    fetcher = try Self.makeFetcher(configuration.fetcher)
    let locals = try configuration.sources.localRoot.map(Self.openLocals)
    let tokens = CurrentTokens(configuration)
    self.tokens = tokens
    let decoding = ImageDecoding(configuration, log: log)
    self.decoding = decoding
    tracer = Self.makeTracer(configuration, fetcher, log)
    var engineConfiguration = configuration.engineConfiguration
    engineConfiguration.placeholders = try PlaceholderFile.images(
      configuration, by: decoding.codec)
    jobs = try ConfiguredJobStore(configuration, isDurable: isDurable)
    images = try ConfiguredImageStore(
      configuration, isDurable: isDurable, references: jobs.store, now: Self.now, log: log)
    engine = JobEngine(
      engineConfiguration,
      JobEngine.Parts(
        store: jobs.store, images: TieredImageStore(jobs: jobs.store, files: images.store),
        spool: images.spool, fetcher: fetcher, codec: decoding.codec,
        renderer: decoding.renderer, locals: locals,
        webhooks: JobEngine.Webhooks(
          client: fetcher.sender(under: configuration.webhookPolicy),
          rules: tokens.rules(configuration.webhookRules), body: WebhookBody.encode),
        destinations: try ConfiguredDestinations(
          configuration, fetcher: fetcher, now: Self.now, log: log),
        tracer: tracer,
        // Decode threads have a lower priority, so that responses and transfers get a core at once.
        threads: ThreadPool(
          name: "decode", threads: configuration.decodeThreads, niceness: 5)),
      now: Self.now, log: log)
    let (engine, recorder) = (engine, ActivityRecorder(at: Self.now()))
    self.recorder = recorder
    routes = Routes(
      service: engine, configuration: configuration.routesConfiguration,
      openAPI: OpenAPIDocument.bytes, openAPIJSON: { OpenAPIDocument.json },
      dashboard: { WebPage.dashboard },
      metrics: {
        await engine.observe()
        return registry.render() + ProcessMetrics.render()
      },
      activity: { () async throws(JobsError) in
        try await engine.activity() ?? recorder.activity
      }, log: log)
    server = HTTPServer(
      try configuration.serverConfiguration(), handler: routes.respond(to:),
      refusal: routes.refuse(_:origin:),
      log: log)
  }

  @Sendable static func now() -> Timestamp {
    Timestamp(milliseconds: Int64(Date().timeIntervalSince1970 * 1000))
  }

  private static func openLocals(_ root: String) throws(StartError) -> LocalFolder {
    do throws(StoreError) { return try LocalFolder(root) } catch {
      throw .operatorMistake("sources.local_root: \"\(root)\" can't be used: \(error)")
    }
  }

  private static func makeFetcher(
    _ configuration: CurlFetcher.Configuration
  ) throws(StartError) -> CurlFetcher {
    do throws(FetcherSetupError) { return try CurlFetcher(configuration) } catch {
      switch error {
      case .unusableProxy: throw .operatorMistake("fetch.proxy: \(error)")
      case .unreadableCertificates: throw .operatorMistake("\(error)")
      case .curlUnavailable, .noDescriptor: throw .internalFault("libcurl: \(error)")
      }
    }
  }

  private static func makeTracer(
    _ configuration: Configuration, _ fetcher: CurlFetcher, _ log: Logger
  ) -> TraceExporter? {
    guard let rules = configuration.tracingRules,
      let endpoint = configuration.tracing.endpoint.flatMap({ SourceURL($0) })
    else { return nil }
    return TraceExporter(
      to: endpoint, rules: rules, name: configuration.instanceName,
      by: fetcher.sender(under: .everywhere), log: log)
  }

  /// Replaces the tokens with those of `configuration`.
  func replaceTokens(from configuration: Configuration) {
    tokens.replace(from: configuration)
    routes.replaceTokens(configuration.routesConfiguration.tokens)
  }

  /// Opens the port. From now on probes are answered. Jobs are accepted once ``run(_:onReady:)`` calls `onReady`.
  func listen() throws(StartError) -> (host: String, port: Int) {
    do throws(ServerError) { return try server.start() } catch {
      throw StartError(error)
    }
  }

  /// Runs the engine until it is drained.
  ///
  /// - Parameter onReady: called once jobs are accepted.
  /// - Returns: The error if the stores can't be used; nil after a drain.
  func run(
    _ place: (host: String, port: Int), onReady: () -> Void = {}
  ) async -> StartError? {
    if let failure = await images.check(jobs.store) { return failure }
    // The sandbox test waits for a process to start. It runs on its own thread, so that the start does not wait for it.
    startThread(named: "decoders") { [decoding, log] in
      decoding.logIsolation(to: log)
      Versions.report(to: log)
    }
    do {
      try await engine.run {
        log.notice(
          "listening",
          metadata: [
            "instance": "\(configuration.instanceName)", "address": "\(place.host)",
            "port": "\(place.port)",
            "url": "\(configuration.pageURL(port: Int(place.port)))",
          ])
        onReady()
      }
      return nil
    } catch {
      return .unusableStore("the job store can't be read: \(error)")
    }
  }

  /// Records activity every five seconds, until the task is cancelled.
  func recordActivity(_ registry: PrometheusRegistry) async {
    await recorder.run(registry, now: Self.now, log: log) {
      await engine.observe()
    } publish: { (step) async throws(StoreError) in
      try await engine.record(step)
    }
  }

  /// Refuses new jobs and waits for running ones to finish, at most `server.drain_timeout`. Clients can still read jobs.
  func drain() async {
    log.notice("stopping", metadata: ["drain_timeout": "\(configuration.server.drainTimeout)"])
    await engine.drain(within: configuration.server.drainTimeout)
  }

  func close() async {
    server.stopAccepting()
    await server.stop(within: .seconds(2))
    fetcher.shutdown()
    images.close()
    await jobs.close()
  }
}

extension WebPage {
  /// The dashboard's page, created on the first request for it.
  fileprivate static let dashboard: WebPage = {
    let page = DashboardPage(version: buildVersion)
    return WebPage(page.bytes, contentSecurityPolicy: page.contentSecurityPolicy)
  }()
}

extension StartError {
  /// Translates the reason why the port could not be opened.
  init(_ error: ServerError) {
    switch error {
    case .unknownHost(let host):
      self = .operatorMistake("server.host: \"\(host)\" is not an address of this machine")
    case .addressUnavailable(let host, let port, let code):
      let reason = String(cString: strerror(code))
      self = .operatorMistake("server.port: can't listen on \(host) port \(port): \(reason)")
    case .invalidCertificate(let detail):
      self = .operatorMistake("server.tls: not a usable certificate and key: \(detail)")
    case .resourcesExhausted(let detail):
      self = .internalFault("not enough threads or memory: \(detail)")
    case .libraryTooOld(let version, let oldest):
      self = .operatorMistake(
        "libmicrohttpd \(version) is installed. Install \(oldest) or a later version.")
    case .alreadyStarted: self = .internalFault("the server was started twice")
    }
  }
}

/// Lets the engine use a `ThreadPool` as its decode threads. Each task or worker has its own lane in the pool.
extension ThreadPool: ComputeThreads {
  package func lane(at priority: Priority) -> any TaskLane { lane(priority: priority.level) }

  package func workerLane(at priority: Priority) -> any WorkerLane {
    serialLane(priority: priority.level)
  }
}

extension ThreadPool.Lane: ComputeLane {
  package func move(to priority: Priority) { setPriority(priority.level) }
}

extension ThreadPool.SerialLane: ComputeLane {
  package func move(to priority: Priority) { setPriority(priority.level) }
}

extension Priority {
  fileprivate var level: UInt8 { UInt8(rawValue) }
}

/// The engine serves the API's requests.
extension JobEngine: JobService {}

/// Lets the HTTP server send a stored image with sendfile(2), without copying it into the process.
extension OpenedFile: SendableFile {}
