/// Where one request goes: everything decided and every address judged before libcurl hears of it.
struct Route: Sendable {
  /// The URL with its host in ASCII.
  var url: String
  /// The host as errors name it.
  var host: String
  var port: Int
  /// The addresses that may be connected to, in the order to be tried; at least one.
  var addresses: [IPAddress]
  /// How long the name's resolution took.
  var nameTime: Duration
  /// What judged it, and judges each connection.
  var policy: AddressPolicy
  /// The egress proxy that is asked to connect to the first address.
  var proxy: ProxyRoute?

  /// What libcurl's name cache is filled with: `name:port:address,address`.
  var pins: [String] {
    if let proxy { return [Self.pin(proxy.host, proxy.port, proxy.addresses)].compactMap { $0 } }
    return [Self.pin(host, port, addresses)].compactMap { $0 }
  }

  /// Whether the host that is connected to is an IPv6 address, which has no pin.
  var hasNoName: Bool { (proxy?.host ?? host).contains(":") }

  /// Nil for an IPv6 address, which libcurl looks up nowhere and whose colons the entry can't hold.
  private static func pin(_ host: String, _ port: Int, _ addresses: [IPAddress]) -> String? {
    host.contains(":") ? nil : "\(host):\(port):\(addresses.map(\.inURL).joined(separator: ","))"
  }
}

/// The operator's proxy; its address is the operator's choice and not judged.
struct ProxyRoute: Sendable {
  /// With the credentials it may contain.
  var url: String
  var host: String
  var port: Int
  var addresses: [IPAddress]

  /// What clients are told of it: neither its name nor its address.
  static let unreachable = "the egress proxy could not be reached"
  /// The status that the proxy answered CONNECT with.
  static func refused(_ status: Int) -> String { "the egress proxy answered \(status)" }
}
