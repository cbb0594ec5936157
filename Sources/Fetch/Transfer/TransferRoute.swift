/// The destination of one request. Everything is decided and every address is checked before libcurl receives
/// it.
struct TransferRoute: Sendable {
  /// The URL with its host in ASCII.
  var url: String
  /// The host as named in errors.
  var host: String
  var port: Int
  /// The addresses that may be connected to, in the order in which they are tried; at least one.
  var addresses: [IPAddress]
  /// The time that the name lookup took.
  var nameTime: Duration
  /// The policy that allowed these addresses. It is checked again for each connection.
  var policy: AddressPolicy
  /// The egress proxy that connects to the first address; nil: none.
  var proxy: ProxyRoute?

  /// The entries for libcurl's name cache: `name:port:address,address`.
  var pins: [String] {
    if let proxy { return [Self.pin(proxy.host, proxy.port, proxy.addresses)].compactMap { $0 } }
    return [Self.pin(host, port, addresses)].compactMap { $0 }
  }

  /// Whether the host to connect to is an IPv6 address, which needs no pin.
  var hasNoName: Bool { (proxy?.host ?? host).contains(":") }

  /// Nil for an IPv6 address: libcurl never looks it up, and the format cannot contain its colons.
  private static func pin(_ host: String, _ port: Int, _ addresses: [IPAddress]) -> String? {
    host.contains(":") ? nil : "\(host):\(port):\(addresses.map(\.inURL).joined(separator: ","))"
  }
}

/// The operator's proxy. The policy does not apply to its address.
struct ProxyRoute: Sendable {
  /// The proxy's URL, with credentials if configured.
  var url: String
  var host: String
  var port: Int
  var addresses: [IPAddress]

  /// The error detail for clients. It contains neither the proxy's name nor its address.
  static let unreachable = "the egress proxy could not be reached"
  /// The error detail if the proxy answered CONNECT with an error status.
  static func refused(_ status: Int) -> String { "the egress proxy answered \(status)" }
}
