internal import Foundation
internal import Glibc

/// Starts a thread that runs `body` and ends with it.
/// - Parameters:
///   - name: shown by `top -H` and debuggers; Linux keeps 15 bytes of it.
///   - niceness: how far the thread steps back where others want the core (nice(2), which is the thread's own in Linux);
///     what it starts in its turn is as nice.
public func startThread(
  named name: String, niceness: Int = 0, _ body: @escaping @Sendable () -> Void
) {
  Thread.detachNewThread {
    nameThisThread(name)
    if niceness > 0 { _ = nice(Int32(niceness)) }
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
