internal import Glibc
internal import Jobs
internal import Synchronization

/// Keeps a second service out of a folder until it is released or let go of.
///
/// The kernel drops the lock when the process ends, however it ends.
final class FolderLock: Sendable {
  private let descriptor: Mutex<Int32?>

  /// How long the last one may still have it after its end: a child that it was about to spawn has its descriptors until the child
  /// executes something.
  private static let patience = Duration.seconds(2)

  /// - Parameter path: the file to lock; made when it isn't there.
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

  /// Lets the next one in.
  func release() {
    let held = descriptor.withLock { held in
      defer { held = nil }
      return held
    }
    guard let held else { return }
    // Closing alone would leave it locked by a child that is being spawned, which has a copy of the descriptor.
    flock(held, LOCK_UN)
    close(held)
  }
}
