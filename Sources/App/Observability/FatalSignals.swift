internal import Glibc
internal import Synchronization

/// What ends a process that is broken: its last log lines are written first, where that goes.
enum FatalSignals {
  private static let numbers = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP]
  /// By number, what each did before; written once, before a handler is there.
  nonisolated(unsafe) private static let former =
    UnsafeMutablePointer<sigaction>.allocate(capacity: 65)

  /// Has each wait for the log's thread for a second, then do what it did before.
  static func awaitLog() {
    var action = sigaction()
    action.__sigaction_handler.sa_sigaction = { number, information, _ in
      // Nothing here locks or allocates: the thread may have stopped anywhere.
      var rounds = 200
      while rounds > 0, LogWriter.unwritten.load(ordering: .relaxed) > 0 {
        poll(nil, 0, 5)
        rounds -= 1
      }
      sigaction(number, FatalSignals.former + Int(number), nil)
      // A fault is met again on return; what another process sent, or abort(), has to be sent again.
      if let code = information?.pointee.si_code, code <= 0 { raise(number) }
    }
    action.sa_flags = SA_SIGINFO | SA_ONSTACK
    // Read once here, so that no handler is the first to make it.
    _ = LogWriter.unwritten.load(ordering: .relaxed)
    for number in numbers {
      sigaction(number, nil, former + Int(number))
      sigaction(number, &action, nil)
    }
  }
}
