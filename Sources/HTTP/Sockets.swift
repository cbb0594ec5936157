internal import CMicroHTTPD
import Glibc

/// A listening socket.
struct Listener {
  let descriptor: Int32
  let host: String
  let port: Int

  /// Resolves the host, binds and listens.
  init(host: String, port: Int) throws(ServerError) {
    var hints = addrinfo()
    hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV
    var found: UnsafeMutablePointer<addrinfo>?
    guard (0...65535).contains(port), getaddrinfo(host, String(port), &hints, &found) == 0,
      let found
    else { throw .unknownHost(host) }
    defer { freeaddrinfo(found) }
    let descriptor = socket(
      found.pointee.ai_family,
      Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
    guard descriptor >= 0, Self.listen(descriptor, found.pointee) else {
      let code = errno
      if descriptor >= 0 { close(descriptor) }
      throw .addressUnavailable(host: host, port: port, errno: code)
    }
    self.descriptor = descriptor
    (self.host, self.port) = Self.name(descriptor)
  }

  private static func listen(_ descriptor: Int32, _ address: addrinfo) -> Bool {
    set(descriptor, SOL_SOCKET, SO_REUSEADDR, 1)
    // `::` accepts IPv4, too, whatever the system's default is.
    if address.ai_family == AF_INET6 { set(descriptor, Int32(IPPROTO_IPV6), IPV6_V6ONLY, 0) }
    return bind(descriptor, address.ai_addr, address.ai_addrlen) == 0
      && Glibc.listen(descriptor, 4096) == 0
  }

  private static func set(_ descriptor: Int32, _ level: Int32, _ option: Int32, _ value: Int32) {
    withUnsafePointer(to: value) {
      _ = setsockopt(descriptor, level, option, $0, socklen_t(MemoryLayout<Int32>.size))
    }
  }

  private static func name(_ descriptor: Int32) -> (String, Int) {
    var address = sockaddr_storage()
    var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
    let host = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { generic in
        getsockname(descriptor, generic, &size)
        return Address.text(generic)
      }
    }
    return (host, Address.port(address))
  }
}

/// Socket addresses.
enum Address {
  /// Returns the address without its port. An IPv4-mapped IPv6 address is returned as IPv4.
  static func text(_ address: UnsafePointer<sockaddr>) -> String {
    switch Int32(address.pointee.sa_family) {
    case AF_INET:
      return UnsafeRawPointer(address).loadUnaligned(as: sockaddr_in.self).sin_addr.text(AF_INET)
    case AF_INET6:
      let bytes = UnsafeRawPointer(address).loadUnaligned(as: sockaddr_in6.self).sin6_addr
      let text = bytes.text(AF_INET6)
      return text.hasPrefix("::ffff:") && text.contains(".") ? String(text.dropFirst(7)) : text
    default: return ""
    }
  }

  /// Returns the port in host byte order.
  static func port(_ address: sockaddr_storage) -> Int {
    withUnsafeBytes(of: address) { bytes in
      // IPv4 and IPv6 addresses store the port at the same offset.
      Int(UInt16(bigEndian: bytes.load(fromByteOffset: 2, as: UInt16.self)))
    }
  }
}

private protocol NetworkAddress {}
extension in_addr: NetworkAddress {}
extension in6_addr: NetworkAddress {}

extension NetworkAddress {
  fileprivate func text(_ family: Int32) -> String {
    withUnsafePointer(to: self) { address in
      withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(INET6_ADDRSTRLEN)) { buffer in
        guard let text = inet_ntop(family, address, buffer.baseAddress, socklen_t(buffer.count))
        else { return "" }
        return String(cString: text)
      }
    }
  }
}

/// An epoll set with an eventfd that wakes it. Watched descriptors leave the set when they are closed.
final class EventSet: Sendable {
  private let descriptor: Int32
  private let wakeDescriptor: Int32

  /// The name returned after `wake` was called.
  static let woken: UInt64 = .max

  init() throws(ServerError) {
    descriptor = epoll_create1(Int32(EPOLL_CLOEXEC))
    wakeDescriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
    guard descriptor >= 0, wakeDescriptor >= 0 else {
      throw .resourcesExhausted(detail: String(cString: strerror(errno)))
    }
    add(wakeDescriptor, CMicroHTTPD_readable, as: Self.woken)
  }

  deinit {
    close(wakeDescriptor)
    close(descriptor)
  }

  @discardableResult
  func add(_ watched: Int32, _ events: UInt32, as name: UInt64) -> Bool {
    control(EPOLL_CTL_ADD, watched, events, name)
  }

  func change(_ watched: Int32, _ events: UInt32, as name: UInt64) {
    _ = control(EPOLL_CTL_MOD, watched, events, name)
  }

  func remove(_ watched: Int32) { _ = control(EPOLL_CTL_DEL, watched, 0, 0) }

  private func control(_ operation: Int32, _ watched: Int32, _ events: UInt32, _ name: UInt64)
    -> Bool
  {
    var event = epoll_event(events: events, data: epoll_data_t(u64: name))
    return epoll_ctl(descriptor, operation, watched, &event) == 0
  }

  /// Ends a wait; may be called from any thread.
  func wake() {
    var one: UInt64 = 1
    _ = write(wakeDescriptor, &one, 8)
  }

  /// Waits for events, at most this many milliseconds.
  /// - Returns: The names of the descriptors that are ready.
  func wait(milliseconds: Int) -> [UInt64] {
    withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: 256) { events in
      let count = epoll_wait(
        descriptor, events.baseAddress!, Int32(events.count), Int32(milliseconds))
      let names = (0..<Int(max(0, count))).map { events[$0].data.u64 }
      if names.contains(Self.woken) {
        var counter: UInt64 = 0
        _ = read(wakeDescriptor, &counter, 8)
      }
      return names
    }
  }
}
