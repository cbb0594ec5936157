internal import Glibc

/// Reports the service's state to the service manager, with the protocol of systemd's sd_notify(3).
///
/// Nothing is reported if `NOTIFY_SOCKET` is not set.
struct ServiceManager: Sendable {
  enum State: String {
    /// Requests are answered and jobs are accepted.
    case ready = "READY=1"
    /// The service is draining.
    case stopping = "STOPPING=1"
    /// The service is alive. A manager with a watchdog restarts a service that stops sending this.
    case alive = "WATCHDOG=1"
  }

  private let socketPath: String?
  /// The watchdog's timeout; nil if the manager has no watchdog.
  private let watchdogTimeout: Duration?

  /// Reads `NOTIFY_SOCKET`, `WATCHDOG_PID` and `WATCHDOG_USEC` from the environment.
  init() {
    func value(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
    socketPath = value("NOTIFY_SOCKET").flatMap { $0.isEmpty ? nil : $0 }
    // The variables may be inherited from another process. `WATCHDOG_PID` names the process that they are for.
    let isMeant = value("WATCHDOG_PID").map { $0 == "\(getpid())" } ?? true
    let microseconds = value("WATCHDOG_USEC").flatMap(Int64.init)
    watchdogTimeout =
      isMeant ? microseconds.flatMap { $0 > 0 ? Duration.microseconds($0) : nil } : nil
  }

  /// Sends the state once. Errors are ignored, because the service also works without a manager.
  func notify(_ state: State) {
    guard let socketPath else { return }
    var address = sockaddr_un()
    var path = Array(socketPath.utf8)
    guard path.count < MemoryLayout.size(ofValue: address.sun_path) else { return }
    // An abstract socket's name begins with a NUL, which no variable can hold.
    if path[0] == UInt8(ascii: "@") { path[0] = 0 }
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
    let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { return }
    defer { close(descriptor) }
    let length = socklen_t(MemoryLayout<sa_family_t>.size + path.count)
    let message = Array(state.rawValue.utf8)
    withUnsafePointer(to: &address) { address in
      address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
        _ = sendto(descriptor, message, message.count, 0, address, length)
      }
    }
  }

  /// Sends `alive` twice per watchdog timeout, until the task is cancelled.
  ///
  /// If the process's tasks no longer run, nothing is sent, and the manager restarts the service.
  func runWatchdog() async {
    while !Task.isCancelled {
      if watchdogTimeout != nil { notify(.alive) }
      try? await Task.sleep(for: watchdogTimeout.map { $0 / 2 } ?? .seconds(86_400))
    }
  }
}
