internal import Glibc
internal import Synchronization

/// Holds back replies of a ``ScriptedOrigin`` until it is opened. It can't be closed again.
package final class Gate: Sendable {
  /// Becomes readable when the gate is open.
  let descriptor: Int32
  private let other: Mutex<Int32?>

  /// A closed gate.
  package init() {
    var ends: [Int32] = [-1, -1]
    // A child process must not inherit the descriptor and keep the gate closed.
    precondition(pipe(&ends) == 0, "no descriptor is left")
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    descriptor = ends[0]
    other = Mutex(ends[1])
  }

  deinit {
    open()
    close(descriptor)
  }

  /// Opens the gate.
  package func open() {
    let end = other.withLock { $0.take() }
    if let end { close(end) }
  }
}
