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
