internal import Foundation
internal import Glibc

/// Starts a thread that runs `body` and ends with it.
/// - Parameter name: shown by `top -H` and debuggers; Linux keeps 15 bytes of it.
public func startThread(named name: String, _ body: @escaping @Sendable () -> Void) {
  Thread.detachNewThread {
    nameThisThread(name)
    body()
  }
}

/// Foundation's own naming does nothing where the thread begins before whoever starts it has noted its handle, and
/// pthread_setname_np isn't in Swift's Glibc module.
private func nameThisThread(_ name: String) {
  let file = open("/proc/thread-self/comm", O_WRONLY | O_CLOEXEC)
  guard file >= 0 else { return }
  let bytes = Array(name.utf8.prefix(15))
  _ = write(file, bytes, bytes.count)
  close(file)
}
