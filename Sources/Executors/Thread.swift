internal import Foundation

/// Starts a thread that runs `body` and ends with it.
/// - Parameter name: shown by `top -H` and debuggers; Linux keeps 15 bytes of it.
public func startThread(named name: String, _ body: @escaping @Sendable () -> Void) {
  Thread.detachNewThread {
    Thread.current.name = name
    body()
  }
}
