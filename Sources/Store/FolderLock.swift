internal import Glibc
internal import Jobs
internal import Synchronization

/// Keeps a second service out of a folder until it is released or let go of.
///
/// The kernel drops the lock when the process ends, however it ends.
final class FolderLock: Sendable {
  private let descriptor: Mutex<Int32?>

  /// - Parameter path: the file to lock; made when it isn't there.
  init(_ path: String) throws(StoreError) {
    let descriptor = Glibc.open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
    guard descriptor >= 0 else { throw StoreError(errno: errno, "opening \(path)") }
    guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
      let code = errno
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
    if let held { close(held) }
  }
}
