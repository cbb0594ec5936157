internal import Glibc
internal import Jobs
internal import Synchronization

/// Locks a folder against a second process until it is released.
///
/// The kernel releases the lock when the process ends for any reason.
final class FolderLock: Sendable {
  private let descriptor: Mutex<Int32?>

  /// How long to wait for a lock of a process that has ended. A child process that it was spawning
  /// inherits the lock and holds it until it calls exec.
  private static let patience = Duration.seconds(2)

  /// - Parameter path: the file to lock; created if missing.
  init(_ path: String) throws(StoreError) {
    let descriptor = Glibc.open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
    guard descriptor >= 0 else { throw StoreError(errno: errno, "opening \(path)") }
    let deadline = ContinuousClock.now + Self.patience
    while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
      let code = errno
      if code == EWOULDBLOCK, ContinuousClock.now < deadline {
        usleep(10_000)
        continue
      }
      close(descriptor)
      guard code == EWOULDBLOCK else { throw StoreError(errno: code, "locking \(path)") }
      throw .unavailable(detail: "\(path) is locked: another service uses this folder")
    }
    self.descriptor = Mutex(descriptor)
  }

  deinit { release() }

  /// Releases the lock.
  func release() {
    let held = descriptor.withLock { held in
      defer { held = nil }
      return held
    }
    guard let held else { return }
    // A child that is being spawned has a copy of the descriptor, so closing it is not enough.
    flock(held, LOCK_UN)
    close(held)
  }
}
