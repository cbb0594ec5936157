internal import Executors
internal import Glibc
public import Logging
internal import Metrics
internal import UnixSignals

/// Why the service did not start, or had to end.
public enum StartError: Error, Sendable, Equatable {
  /// The operator can mend it; the text says what and where.
  case operatorMistake(String)
  /// A store can't be used, as it is now: the text says which, and why.
  case unusableStore(String)
  /// Ours, or the machine's.
  case internalFault(String)
}

/// The service: built from a configuration, run until a signal or for as long as a body takes, stopped in reverse.
public enum Service {
  /// What keeps anything here from beginning; nil: nothing.
  public static var hindrance: String? { canStartThreads(8) ? nil : noThreads }

  /// Serves until SIGTERM or SIGINT; a second one ends the process at once, losing nothing accepted. SIGHUP takes other
  /// tokens over, but where there is a terminal, which tells by it that it is closed.
  ///
  /// - Parameter read: reads the configuration again.
  public static func run(
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
    // The store holds what clients send to origins, credentials among it.
    umask(0o077)
    for warning in warnings(of: configuration) { log.warning("\(warning)") }
    if configuration.connections < configuration.server.maxConnections {
      log.warning(
        "fewer connections than configured: the rest of the descriptors is for jobs",
        metadata: [
          "connections": "\(configuration.connections)",
          "max_connections": "\(configuration.server.maxConnections)",
        ])
    }
    let folder = FreshFolder(configuration.storage.path)
    let parts = try Parts(configuration, registry: registry, log: log)
    let place: (host: String, port: Int)
    do throws(StartError) { place = try parts.listen() } catch {
      folder.takeBack()
      throw error
    }
    let manager = ServiceManager()
    let reloader = Reloader(configuration, of: parts, log: log, read: read)
    let failure = await withTaskGroup { group in
      group.addTask { await parts.work(place) { manager.tell(.ready) } }
      group.addTask { await obey(signals, parts, manager, reloader) }
      group.addTask {
        await reloader.watch()
        return nil
      }
      group.addTask {
        await manager.keepTelling()
        return nil
      }
      group.addTask {
        await parts.keepActivity(registry)
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
      // Work ends by itself only when it failed; else when the signals' task has drained it.
      let failure = await group.next() ?? nil
      group.cancelAll()
      return failure
    }
    await parts.close()
    if let failure { throw failure }
    log.notice("stopped")
  }

  /// Looks at what the configuration names, without starting anything.
  ///
  /// - Returns: what is no mistake, but hardly meant; a line each.
  public static func examine(_ configuration: Configuration) throws(StartError) -> [String] {
    let placeholders = configuration.placeholders
    if placeholders.loading != nil || placeholders.failure != nil {
      let quiet = Logger(label: "imagefetch") { _ in SwiftLogNoOpLogHandler() }
      _ = try PlaceholderFile.pictures(
        configuration, by: Decoding(configuration, log: quiet).codec)
    }
    return warnings(of: configuration)
  }

  private static func warnings(of configuration: Configuration) -> [String] {
    let (view, auth) = (configuration.view, configuration.auth)
    var warnings: [String] = []
    if view.enabled, !auth.all.isEmpty, view.keys.isEmpty {
      warnings.append(
        "view.enabled has no effect: with tokens a view's URL is signed, and view.keys is empty")
    }
    if getenv(Configuration.tokenVariable) != nil {
      warnings.append("\(Configuration.tokenVariable) has no effect: it is for imagefetch get")
    }
    return warnings
  }

  /// Serves from the moment that the body can be answered until it has returned; what runs then is put back as queued
  /// once `server.drain_timeout` is over. Its data need not outlive the process.
  ///
  /// - Parameter body: is given the port.
  static func run<Outcome: Sendable>(
    _ configuration: Configuration, log: Logger,
    around body: @escaping @Sendable (_ port: Int) async -> Outcome
  ) async throws(StartError) -> Outcome {
    SystemLimits.apply()
    // What it keeps goes with the process: to wait for the disk would be for nothing.
    let parts = try Parts(
      configuration, registry: PrometheusRegistry(), log: log, isDurable: false)
    let place = try parts.listen()
    let (readiness, isReady) = AsyncStream.makeStream(of: Void.self)
    let result = await withTaskGroup { group in
      group.addTask {
        let failure = await parts.work(place) { isReady.finish() }
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
      // The work ends after the drain; by itself only when it failed, and then there is nobody to wait for.
      for await end in group where result == nil {
        result = end
        if case .failure = end { group.cancelAll() }
      }
      return result
    }
    await parts.close()
    guard let result else { throw .internalFault("the service ended by itself") }
    return try result.get()
  }

  private static func obey(
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
    manager.tell(.stopping)
    // Waits for a second signal for as long as the process may yet live.
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
