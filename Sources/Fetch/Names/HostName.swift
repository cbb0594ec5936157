internal import Jobs

/// A URL's host in a normalized form, so that different spellings of one host are equal.
enum HostName: Equatable {
  case address(IPAddress)
  /// Lower case ASCII, without a trailing dot.
  case name(String)

  /// Nil if the host is neither a name nor an address, such as `1.2.3.4.5` or `a..b`.
  init?(_ host: String) {
    if host.contains(":") {
      guard let address = IPAddress(host) else { return nil }
      self = .address(address)
      return
    }
    guard let ascii = host.utf8.allSatisfy({ $0 < 0x80 }) ? host : CurlURL.asciiHost(host) else {
      return nil
    }
    // After the conversion to ASCII, because full-width digits and dots can form an address, too.
    let name = ascii.hasSuffix(".") ? String(ascii.dropLast()) : ascii
    switch NumericHost(name) {
    case .address(let address): self = .address(address)
    case .broken: return nil
    case .name:
      guard Self.isLegal(name) else { return nil }
      self = .name(name)
    }
  }

  /// The host as the rules for hosts compare it.
  var text: String {
    switch self {
    case .address(let address): address.description
    case .name(let name): name
    }
  }

  /// The host as the limits per origin compare it. An IPv4-mapped IPv6 address becomes its IPv4 address.
  var originSpelling: String {
    switch self {
    case .address(let address): address.unmapped.description
    case .name(let name): name
    }
  }

  /// The host as written in a URL: IPv6 in brackets.
  var inURL: String {
    switch self {
    case .address(let address): address.inURL
    case .name(let name): name
    }
  }

  /// Labels of 1 to 63 characters, 253 in total (RFC 1035). Underscores and hyphens at the ends of labels are
  /// allowed, because some real names have them (RFC 952 forbids the hyphens). The name must not begin with a
  /// hyphen: in `CURLOPT_RESOLVE` that removes a pin.
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
