internal import API
internal import Executors
internal import Glibc
internal import HTTP
package import Logging
internal import Metrics
internal import UnixSignals

// App: configuration, wiring, start and stop, logs and metrics.
//
// Input: flags, environment variables and the configuration file, from the executable `imagefetch`. Output: the running
// service, its log and its metrics. The files, in reading order:
//
// 1. `Configuration/`: reads and validates the configuration. `Configuration` merges the keys of all modules,
//    `ConfigurationLoader` applies the sources, `Rule` checks keys against each other.
// 2. `Service`: runs until a signal or for one command, and stops. `Reloader` applies changed tokens.
// 3. `Parts`: creates all modules' objects. `Configuration+Parts` completes their settings; `ConfiguredJobStore`,
//    `ConfiguredImageStore`, `ConfiguredDestinations` and `ImageDecoding` select implementations.
// 4. `Observability/`: log lines (`LineLogHandler` in `LogRecord`, `LogWriter`), metrics (`PrometheusRegistry`) and traces
//    (`TraceExporter`).
// 5. `Migration/`, `LocalService`, `Probe`, `ViewURL`: the work of the other commands.
//
// Most of it runs once, on the main task. `LogWriter` has its own thread; `Service` runs the periodic tasks.

/// Why the service did not start, or had to stop.
package enum StartError: Error, Sendable, Equatable {
  /// The operator can fix it. The text says what is wrong and where.
  case operatorMistake(String)
  /// A store can't be used at the moment. The text says which, and why.
  case unusableStore(String)
  /// A fault of this program or of the machine.
  case internalFault(String)
}

/// Runs the service with a configuration, until a signal or for the duration of a closure.
package enum Service {
  /// The reason why no command can run on this machine; nil if there is none.
  package static var startProblem: String? { canStartThreads(8) ? nil : noThreadsMessage }

  /// Serves until SIGTERM or SIGINT. A second signal ends the process at once; accepted jobs are not lost.
  ///
  /// SIGHUP reloads the tokens. If standard input is a terminal, SIGHUP ends the process instead, because it means that
  /// the terminal was closed.
  ///
  /// - Parameter read: reads the configuration again.
  package static func run(
    _ configuration: Configuration, log: Logger,
    read: @escaping @Sendable () throws(Configuration.Mistakes) -> Configuration
  ) async throws(StartError) {
    let registry = PrometheusRegistry()
    MetricsSystem.bootstrap(registry)
    StandardError.countDropped()
    let signals =
      isatty(STDIN_FILENO) == 1
      ? await UnixSignalsSequence(trapping: .sigterm, .sigint)
      : await UnixSignalsSequence(trapping: .sigterm, .sigint, .sighup)
    SystemLimits.apply()
    // Files are readable by this user only: the store contains header fields for origins, which may hold credentials.
    umask(0o077)
    for warning in warnings(of: configuration) { log.warning("\(warning)") }
    if configuration.maxConnections < configuration.http.maxConnections {
      log.warning(
        "fewer connections than configured, the limit on file descriptors is too low",
        metadata: [
          "connections": "\(configuration.maxConnections)",
          "max_connections": "\(configuration.http.maxConnections)",
        ])
    }
    let folder = CreatedFolder(configuration.storage.path)
    let parts = try Parts(configuration, registry: registry, log: log)
    let place: (host: String, port: Int)
    do throws(StartError) { place = try parts.listen() } catch {
      folder.removeIfCreated()
      throw error
    }
    let manager = ServiceManager()
    let reloader = Reloader(configuration, of: parts, log: log, read: read)
    let failure = await withTaskGroup { group in
      group.addTask { await parts.run(place) { manager.notify(.ready) } }
      group.addTask { await handle(signals, parts, manager, reloader) }
      group.addTask {
        await reloader.watch()
        return nil
      }
      group.addTask {
        await manager.runWatchdog()
        return nil
      }
      group.addTask {
        await parts.recordActivity(registry)
        return nil
      }
      group.addTask {
        await Allocator.trimRegularly()
        return nil
      }
      if let tracer = parts.tracer {
        group.addTask {
          await tracer.run()
          return nil
        }
      }
      // The first task to end is the engine's, because it failed, or the signals' task, after the drain.
      let failure = await group.next() ?? nil
      group.cancelAll()
      return failure
    }
    await parts.close()
    if let failure { throw failure }
    log.notice("stopped")
  }

  /// Checks the configuration and the files that it names, without starting the service.
  ///
  /// - Returns: Warnings about settings that are valid but have no effect, one line each.
  package static func check(_ configuration: Configuration) throws(StartError) -> [String] {
    let placeholders = configuration.placeholders
    if placeholders.loading != nil || placeholders.failure != nil {
      let quiet = Logger(label: "imagefetch") { _ in SwiftLogNoOpLogHandler() }
      _ = try PlaceholderFile.images(
        configuration, by: ImageDecoding(configuration, log: quiet).codec)
    }
    return warnings(of: configuration)
  }

  private static func warnings(of configuration: Configuration) -> [String] {
    let (isEnabled, view, auth) = (
      configuration.api.view.isEnabled, configuration.view, configuration.auth
    )
    var warnings: [String] = []
    if isEnabled, !auth.all.isEmpty, view.keys.isEmpty {
      warnings.append(
        "view.enabled has no effect: GET /image needs signed URLs, but view.keys is empty")
    }
    if getenv(Configuration.tokenVariable) != nil {
      warnings.append("\(Configuration.tokenVariable) has no effect: only imagefetch get uses it")
    }
    return warnings
  }

  /// Serves while `body` runs, then drains. Jobs that still run after `server.drain_timeout` are queued again.
  ///
  /// The data need not survive a crash.
  ///
  /// - Parameter body: called with the port once the service answers requests.
  static func run<Outcome: Sendable>(
    _ configuration: Configuration, log: Logger,
    around body: @escaping @Sendable (_ port: Int) async -> Outcome
  ) async throws(StartError) -> Outcome {
    SystemLimits.apply()
    // The data is deleted when the command ends, so it is not synced to disk.
    let parts = try Parts(
      configuration, registry: PrometheusRegistry(), log: log, isDurable: false)
    let place = try parts.listen()
    let (readiness, isReady) = AsyncStream.makeStream(of: Void.self)
    let result = await withTaskGroup { group in
      group.addTask {
        let failure = await parts.run(place) { isReady.finish() }
        return failure.map { Result<Outcome, StartError>.failure($0) }
      }
      group.addTask {
        for await _ in readiness {}
        if Task.isCancelled { return nil }
        let outcome = await body(place.port)
        await parts.drain()
        return .success(outcome)
      }
      var result: Result<Outcome, StartError>?
      // The engine ends after the drain, or earlier if it failed. After a failure `body` is cancelled.
      for await end in group where result == nil {
        result = end
        if case .failure = end { group.cancelAll() }
      }
      return result
    }
    await parts.close()
    guard let result else { throw .internalFault("the service stopped unexpectedly") }
    return try result.get()
  }

  private static func handle(
    _ signals: UnixSignalsSequence, _ parts: Parts, _ manager: ServiceManager,
    _ reloader: Reloader
  ) async -> StartError? {
    var signals = signals.makeAsyncIterator()
    var signal = await signals.next()
    while signal == .sighup {
      reloader.reload()
      signal = await signals.next()
    }
    guard signal != nil else { return nil }
    manager.notify(.stopping)
    // Wait for a second signal until the process ends.
    Task {
      repeat { signal = await signals.next() } while signal == .sighup
      guard signal != nil else { return }
      StandardError.flushBriefly()
      _exit(0)
    }
    await parts.drain()
    return nil
  }
}

/// Reports the service's state to the service manager, with the protocol of systemd's sd_notify(3).
///
/// Nothing is reported if `NOTIFY_SOCKET` is not set.
struct ServiceManager: Sendable {
  enum State: String {
    /// Requests are answered and jobs are accepted.
    case ready = "READY=1"
    /// The service is draining.
    case stopping = "STOPPING=1"
    /// The service is alive. A manager with a watchdog restarts a service that stops sending this.
    case alive = "WATCHDOG=1"
  }

  private let socketPath: String?
  /// The watchdog's timeout; nil if the manager has no watchdog.
  private let watchdogTimeout: Duration?

  /// Reads `NOTIFY_SOCKET`, `WATCHDOG_PID` and `WATCHDOG_USEC` from the environment.
  init() {
    func value(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
    socketPath = value("NOTIFY_SOCKET").flatMap { $0.isEmpty ? nil : $0 }
    // The variables may be inherited from another process. `WATCHDOG_PID` names the process that they are for.
    let isMeant = value("WATCHDOG_PID").map { $0 == "\(getpid())" } ?? true
    let microseconds = value("WATCHDOG_USEC").flatMap(Int64.init)
    watchdogTimeout =
      isMeant ? microseconds.flatMap { $0 > 0 ? Duration.microseconds($0) : nil } : nil
  }

  /// Sends the state once. Errors are ignored, because the service also works without a manager.
  func notify(_ state: State) {
    guard let socketPath else { return }
    var address = sockaddr_un()
    var path = Array(socketPath.utf8)
    guard path.count < MemoryLayout.size(ofValue: address.sun_path) else { return }
    // An abstract socket's name begins with a NUL, which no variable can hold.
    if path[0] == UInt8(ascii: "@") { path[0] = 0 }
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
    let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { return }
    defer { close(descriptor) }
    let length = socklen_t(MemoryLayout<sa_family_t>.size + path.count)
    let message = Array(state.rawValue.utf8)
    withUnsafePointer(to: &address) { address in
      address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
        _ = sendto(descriptor, message, message.count, 0, address, length)
      }
    }
  }

  /// Sends `alive` twice per watchdog timeout, until the task is cancelled.
  ///
  /// If the process's tasks no longer run, nothing is sent, and the manager restarts the service.
  func runWatchdog() async {
    while !Task.isCancelled {
      if watchdogTimeout != nil { notify(.alive) }
      try? await Task.sleep(for: watchdogTimeout.map { $0 / 2 } ?? .seconds(86_400))
    }
  }
}
