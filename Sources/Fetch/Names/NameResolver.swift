internal import Glibc

/// Finds the addresses of a name. It is called on threads that may block.
package protocol NameResolver: Sendable {
  /// - Parameter name: Lower case ASCII, without a trailing dot; never a number.
  /// - Returns: At least one address, in the order in which to try them.
  func addresses(of name: String) throws(ResolutionError) -> [IPAddress]
}

/// Why a name has no address.
package struct ResolutionError: Error, Sendable, Equatable {
  /// The resolver's error message.
  var detail: String

  package init(detail: String) { self.detail = detail }
}

/// The system's resolver: `/etc/hosts`, DNS and other sources in nsswitch.conf.
package struct SystemResolver: NameResolver {
  /// Creates the resolver and limits the time that DNS queries take.
  ///
  /// By default `getaddrinfo` blocks its thread for 20 s or longer if servers do not answer. The first
  /// resolver of the process therefore sets the environment variable `RES_OPTIONS` (resolv.conf(5)) to
  /// `timeout:2 attempts:2`, unless it is already set. Create it before other threads read the environment.
  init() { Self.limitQueryTime }

  /// Looks up IPv4 and IPv6 addresses with `getaddrinfo`. Returns at most 16.
  package func addresses(of name: String) throws(ResolutionError) -> [IPAddress] {
    var hints = addrinfo()
    hints.ai_family = AF_UNSPEC
    hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    var list: UnsafeMutablePointer<addrinfo>?
    let status = getaddrinfo(name, nil, &hints, &list)
    guard status == 0 else { throw ResolutionError(detail: String(cString: gai_strerror(status))) }
    defer { freeaddrinfo(list) }
    var found: [IPAddress] = []
    for entry in sequence(first: list, next: { $0?.pointee.ai_next }) {
      guard let address = entry?.pointee.ai_addr.flatMap({ IPAddress($0) }) else { break }
      if !found.contains(address), found.count < Self.maxAddresses { found.append(address) }
    }
    guard !found.isEmpty else { throw ResolutionError(detail: "no address") }
    return found
  }

  private static let limitQueryTime: Void = {
    _ = setenv("RES_OPTIONS", "timeout:2 attempts:2", 0)
  }()

  /// A hostile zone may return hundreds of addresses.
  private static let maxAddresses = 16
}
