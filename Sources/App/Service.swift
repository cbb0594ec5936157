internal import Glibc
public import Logging
internal import Metrics
internal import UnixSignals

/// Why the service did not start, or had to end.
public enum StartError: Error, Sendable, Equatable {
  /// The operator can mend it; the text says what and where.
  case operatorMistake(String)
  /// Ours, or the machine's.
  case internalFault(String)
}

/// The service as a process: built from a configuration, run until a signal, stopped in reverse.
public enum Service {
  /// Serves until SIGTERM or SIGINT; a second one ends the process at once, losing nothing accepted.
  public static func run(_ configuration: Configuration, log: Logger) async throws(StartError) {
    let registry = PrometheusRegistry()
    MetricsSystem.bootstrap(registry)
    let signals = await UnixSignalsSequence(trapping: .sigterm, .sigint)
    SystemLimits.apply()
    if configuration.view.enabled, !configuration.auth.tokens.isEmpty,
      configuration.view.keys.isEmpty
    {
      log.warning(
        "view.enabled has no effect: with tokens a view's URL is signed, and view.keys is empty")
    }
    let parts = try Parts(configuration, registry: registry, log: log)
    let place = try parts.listen()
    let failure = await withTaskGroup { group in
      group.addTask { await parts.work(place) }
      group.addTask { await obey(signals, parts) }
      // Work ends by itself only when it failed; else when the signals' task has drained it.
      let failure = await group.next() ?? nil
      group.cancelAll()
      return failure
    }
    await parts.close()
    if let failure { throw failure }
    log.notice("stopped")
  }

  private static func obey(_ signals: UnixSignalsSequence, _ parts: Parts) async -> StartError? {
    var signals = signals.makeAsyncIterator()
    guard await signals.next() != nil else { return nil }
    // Waits for a second signal for as long as the process may yet live.
    Task { if await signals.next() != nil { _exit(0) } }
    await parts.drain()
    return nil
  }
}
