internal import Jobs

/// A URL's host, once every spelling of it has become one.
enum HostName: Equatable {
  case address(IPAddress)
  /// Lower case ASCII, without a dot at the end.
  case name(String)

  /// Nil for what is neither a name nor an address, such as `1.2.3.4.5` or `a..b`.
  init?(_ host: String) {
    if host.contains(":") {
      guard let address = IPAddress(host) else { return nil }
      self = .address(address)
      return
    }
    guard let ascii = host.utf8.allSatisfy({ $0 < 0x80 }) ? host : CurlURL.asciiHost(host) else {
      return nil
    }
    // Only now: full-width digits and dots turn into an address as well.
    let name = ascii.hasSuffix(".") ? String(ascii.dropLast()) : ascii
    switch NumericHost(name) {
    case .address(let address): self = .address(address)
    case .broken: return nil
    case .name:
      guard Self.isLegal(name) else { return nil }
      self = .name(name)
    }
  }

  /// As the rules for hosts compare it.
  var text: String {
    switch self {
    case .address(let address): address.description
    case .name(let name): name
    }
  }

  /// By which an origin's limits tell it from others: an IPv4 address in IPv6's clothes is connected to as what it is.
  var one: String {
    switch self {
    case .address(let address): address.unmapped.description
    case .name(let name): name
    }
  }

  /// As it stands in a URL.
  var inURL: String {
    switch self {
    case .address(let address): address.inURL
    case .name(let name): name
    }
  }

  /// Labels of 1 to 63 characters, 253 in all (RFC 1035), with the underscore that is found in the
  /// wild, and hyphens at the ends of labels, which RFC 952 forbids but some names have. The name itself never begins
  /// with one: in `CURLOPT_RESOLVE` that removes a pin.
  private static func isLegal(_ name: String) -> Bool {
    name.utf8.count <= 253 && !name.hasPrefix("-")
      && name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        .allSatisfy { label in
          1...63 ~= label.count
            && label.allSatisfy { byte in
              0x61...0x7A ~= byte || 0x30...0x39 ~= byte || byte == UInt8(ascii: "-")
                || byte == UInt8(ascii: "_")
            }
        }
  }
}
