internal import Glibc
internal import Synchronization

/// Signals that a crash raises. Their handlers give the log's thread time to write the last lines.
enum FatalSignals {
  private static let numbers = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP]
  /// The previous action of each signal, by number. Written once, before the handlers are installed.
  nonisolated(unsafe) private static let previousActions =
    UnsafeMutablePointer<sigaction>.allocate(capacity: 65)

  /// Installs handlers that wait up to one second for the log's thread and then run the previous action.
  static func installHandlers() {
    var action = sigaction()
    action.__sigaction_handler.sa_sigaction = { number, information, _ in
      // A signal handler must not lock or allocate: the thread may have been interrupted while it held any lock.
      var rounds = 200
      while rounds > 0, LogWriter.unwritten.load(ordering: .relaxed) > 0 {
        poll(nil, 0, 5)
        rounds -= 1
      }
      sigaction(number, FatalSignals.previousActions + Int(number), nil)
      // The faulting instruction runs again on return and raises the signal again. A signal from kill() or abort() must
      // be raised here.
      if let code = information?.pointee.si_code, code <= 0 { raise(number) }
    }
    action.sa_flags = SA_SIGINFO | SA_ONSTACK
    // Initialize this static before a handler reads it, because initialization takes a lock.
    _ = LogWriter.unwritten.load(ordering: .relaxed)
    for number in numbers {
      sigaction(number, nil, previousActions + Int(number))
      sigaction(number, &action, nil)
    }
  }
}
