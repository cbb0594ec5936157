internal import Glibc

/// Finds the addresses of a name. Called on threads that may block.
public protocol NameResolver: Sendable {
  /// - Parameter name: lower case ASCII, without a dot at the end; never a number's spelling.
  /// - Returns: the addresses in the order to be tried, at least one.
  func addresses(of name: String) throws(ResolutionError) -> [IPAddress]
}

/// Why a name has no address.
public struct ResolutionError: Error, Sendable, Equatable {
  /// The system's word for it.
  public var detail: String

  /// A reason.
  public init(detail: String) { self.detail = detail }
}

/// The system's resolver: `/etc/hosts`, DNS and whatever else nsswitch.conf names.
public struct SystemResolver: NameResolver {
  /// The system's resolver.
  ///
  /// `getaddrinfo` holds its thread until it gives up, by default after some 20 s and more for dead
  /// servers. The first resolver of the process sets the environment's `RES_OPTIONS`
  /// (resolv.conf(5)) to `timeout:2 attempts:2`, unless the operator did: to be made before other
  /// threads read the environment.
  public init() { Self.boundPatience }

  /// Asks `getaddrinfo` for both families; up to 16 addresses.
  public func addresses(of name: String) throws(ResolutionError) -> [IPAddress] {
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

  private static let boundPatience: Void = {
    _ = setenv("RES_OPTIONS", "timeout:2 attempts:2", 0)
  }()

  /// A hostile zone may answer with hundreds.
  private static let maxAddresses = 16
}
