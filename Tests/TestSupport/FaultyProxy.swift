internal import Glibc
internal import Synchronization

/// A proxy on loopback between clients and a TCP server, which simulates faults of networks and servers.
///
/// The fault is looked up when bytes arrive, so a change also affects existing connections. Each connection has two threads with
/// small stacks.
package final class FaultyProxy: Sendable {
  /// What happens to bytes.
  package enum Fault: Sendable {
    /// They are forwarded.
    case none
    /// They wait until the fault changes. If a connection ends meanwhile, its end waits too.
    case stall
    /// Existing and new connections are reset.
    case cut
    /// They are forwarded at this rate in bytes per second.
    case slow(bytesPerSecond: Int)
    /// The server does not receive the client's bytes. The client receives this response, and the connection ends.
    case answer([UInt8])
  }

  private struct State {
    var fault = Fault.none
    /// Returns the fault for bytes from clients, if no other fault applies.
    var rule: (@Sendable ([UInt8]) -> Fault)?
    var links: [Int: Link] = [:]
    var accepted = 0
    var stalled = 0
    var isStopped = false
  }

  private let state = Mutex(State())
  private let listener: Int32
  private let target: Int
  /// The port on 127.0.0.1 that clients connect to.
  package let port: Int

  /// Listens, and forwards connections to a port of 127.0.0.1.
  package init(to target: Int) throws {
    raiseDescriptorLimit()
    self.target = target
    (listener, port) = try listen(on: "127.0.0.1", port: 0)
    let unowned = Accepting(listener: listener)
    startSmallThread { [weak self] in unowned.run { descriptor in self?.begin(descriptor) } }
  }

  deinit { stop() }

  /// Ends all connections and stops listening.
  package func stop() {
    let links = state.withLock { state in
      state.isStopped = true
      return Array(state.links.values)
    }
    for link in links { link.reset() }
    shutdown(listener, Int32(SHUT_RDWR))
  }

  /// Sets the fault for all bytes, in both directions.
  package func become(_ fault: Fault) {
    let cut = state.withLock { state in
      state.fault = fault
      guard case .cut = fault else { return [Link]() }
      return Array(state.links.values)
    }
    for link in cut { link.reset() }
  }

  /// Sets a function that inspects each piece that a client sends, at most 64 KiB; nil to remove it.
  package func judge(_ rule: (@Sendable ([UInt8]) -> Fault)?) { state.withLock { $0.rule = rule } }

  /// The number of pieces that wait at the moment.
  package var stalled: Int { state.withLock { $0.stalled } }

  /// A refusal in the form of an object store.
  package static func refusal(_ status: Int, _ code: String) -> [UInt8] {
    let xml = "<?xml version=\"1.0\"?><Error><Code>\(code)</Code><Message>refused</Message></Error>"
    return Array(
      """
      HTTP/1.1 \(status) Told\r
      Content-Type: application/xml\r
      Content-Length: \(xml.utf8.count)\r
      Connection: close\r
      \r
      \(xml)
      """.utf8)
  }

  // MARK: One connection

  private func begin(_ client: Int32) {
    let link = Link(client: client, server: connected(to: target))
    let number = state.withLock { state -> Int? in
      if case .cut = state.fault { return nil }
      guard !state.isStopped, link.server >= 0 else { return nil }
      state.accepted += 1
      state.links[state.accepted] = link
      return state.accepted
    }
    guard let number else { return link.reset() }
    startSmallThread { [self] in
      pump(link, from: link.client, to: link.server, isRequest: true)
      forget(number)
    }
    startSmallThread { [self] in
      pump(link, from: link.server, to: link.client, isRequest: false)
      forget(number)
    }
  }

  private func forget(_ number: Int) { state.withLock { $0.links[number] = nil } }

  private func pump(_ link: Link, from source: Int32, to sink: Int32, isRequest: Bool) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    var wasHeld = false
    while true {
      let count = recv(source, &buffer, buffer.count, 0)
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { break }
      let piece = Array(buffer[..<count])
      let (fault, waited) = settled(piece, isRequest)
      wasHeld = wasHeld || waited
      switch fault {
      case .none, .stall: guard send(piece, to: sink) else { return link.end() }
      case .cut: return link.reset()
      case .slow(let rate):
        guard send(piece, to: sink) else { return link.end() }
        usleep(UInt32(min(900_000, piece.count * 1_000_000 / max(1, rate))))
      case .answer(let bytes):
        shutdown(link.server, Int32(SHUT_RDWR))
        guard isRequest else { continue }
        _ = send(bytes, to: source)
        shutdown(source, Int32(SHUT_WR))
        drain(source)
        return link.end()
      }
    }
    // A server may undo work when its client disconnects, but late bytes must still be processed.
    if wasHeld { usleep(1_000_000) }
    link.end()
  }

  /// The fault that applies to a piece, after waiting if necessary.
  private func settled(_ piece: [UInt8], _ isRequest: Bool) -> (Fault, waited: Bool) {
    var isWaiting = false
    while true {
      let fault = state.withLock { state -> Fault in
        if state.isStopped { return .cut }
        if case .none = state.fault, isRequest, let rule = state.rule { return rule(piece) }
        return state.fault
      }
      guard case .stall = fault else {
        if isWaiting { state.withLock { $0.stalled -= 1 } }
        return (fault, isWaiting)
      }
      if !isWaiting { state.withLock { $0.stalled += 1 } }
      isWaiting = true
      usleep(5_000)
    }
  }

  private func send(_ bytes: [UInt8], to sink: Int32) -> Bool {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes {
        Glibc.send(sink, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
      }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { return false }
      rest = rest.dropFirst(count)
    }
    return true
  }

  /// Reads what a client still sends. Otherwise closing would reset the connection, and the reset could overtake the response.
  private func drain(_ source: Int32) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    var limit = timeval(tv_sec: 2, tv_usec: 0)
    setsockopt(source, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    while recv(source, &buffer, buffer.count, 0) > 0 {}
  }
}

/// Both ends of a connection through the proxy. They are closed when both threads have finished.
private final class Link: Sendable {
  let client: Int32
  let server: Int32

  init(client: Int32, server: Int32) { (self.client, self.server) = (client, server) }

  deinit {
    close(client)
    if server >= 0 { close(server) }
  }

  /// Shuts the connection down in an orderly way.
  func end() {
    shutdown(client, Int32(SHUT_RDWR))
    shutdown(server, Int32(SHUT_RDWR))
  }

  /// Resets the connection, which wakes blocked readers.
  func reset() {
    for descriptor in [client, server] where descriptor >= 0 {
      var nobody = sockaddr(
        sa_family: sa_family_t(AF_UNSPEC),
        sa_data: (
          0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        ))
      connect(descriptor, &nobody, socklen_t(MemoryLayout<sockaddr>.size))
    }
  }
}

/// Accepts connections until the listener is shut down.
private struct Accepting: Sendable {
  let listener: Int32

  func run(_ begin: (Int32) -> Void) {
    while true {
      let descriptor = accept(listener, nil, nil)
      guard descriptor >= 0 else {
        if [EINTR, ECONNABORTED, EMFILE].contains(errno) { continue }
        break
      }
      _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
      begin(descriptor)
    }
    close(listener)
  }
}

/// - Returns: A connection to the port on this machine; -1 if no server listens there.
private func connected(to port: Int) -> Int32 {
  let descriptor = socket(
    AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
  var address = sockaddr_in()
  address.sin_family = sa_family_t(AF_INET)
  address.sin_port = in_port_t(port).bigEndian
  address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
  let result = withUnsafePointer(to: &address) {
    $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
      connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
    }
  }
  guard result == 0 else {
    close(descriptor)
    return -1
  }
  var on: Int32 = 1
  setsockopt(
    descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
  return descriptor
}
