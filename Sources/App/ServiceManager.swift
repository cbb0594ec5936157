internal import Glibc

/// The service manager that started this process, and is told how it is: systemd's protocol, sd_notify(3). Where
/// `NOTIFY_SOCKET` names no socket nobody is told.
struct ServiceManager: Sendable {
  enum State: String {
    /// Requests are answered and jobs taken.
    case ready = "READY=1"
    /// Told to stop, and at it.
    case stopping = "STOPPING=1"
    /// Alive; for a manager that ends what it does not hear this of.
    case alive = "WATCHDOG=1"
  }

  private let socketPath: String?
  /// The longest that it may hear nothing; nil: it does not listen for that.
  private let patience: Duration?

  /// The one that the environment tells of.
  init() {
    func value(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
    socketPath = value("NOTIFY_SOCKET").flatMap { $0.isEmpty ? nil : $0 }
    // The times of another process that may have inherited the variable are not ours to keep.
    let isMeant = value("WATCHDOG_PID").map { $0 == "\(getpid())" } ?? true
    let microseconds = value("WATCHDOG_USEC").flatMap(Int64.init)
    patience = isMeant ? microseconds.flatMap { $0 > 0 ? Duration.microseconds($0) : nil } : nil
  }

  /// Says it once; a manager that can't be reached is none of the service's concern.
  func tell(_ state: State) {
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

  /// Says that the process is alive, twice as often as the manager wants to hear it, until the task is cancelled. A
  /// process whose tasks get no turn any more says nothing.
  func keepTelling() async {
    while !Task.isCancelled {
      if patience != nil { tell(.alive) }
      try? await Task.sleep(for: patience.map { $0 / 2 } ?? .seconds(86_400))
    }
  }
}
