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

/// Reads the IPv4 spellings that C libraries and browsers accept: `127.1`, `0x7f.1`, `2130706433`,
/// `017700000001` (WHATWG URL standard, section 3.5).
enum NumericHost: Equatable {
  case address(IPAddress)
  /// The host ends in a number but is no valid address. It is refused and never looked up as a name.
  case broken
  case name

  /// - Parameter host: Lower case, without a trailing dot.
  init(_ host: some StringProtocol) {
    let parts = host.split(separator: ".", omittingEmptySubsequences: false)
    guard let last = parts.last, Self.looksNumeric(last) else {
      self = .name
      return
    }
    self = Self.address(parts).map { .address($0) } ?? .broken
  }

  private static func looksNumeric(_ part: some StringProtocol) -> Bool {
    part.utf8.allSatisfy { 0x30...0x39 ~= $0 } && !part.isEmpty || number(part) != nil
  }

  /// Each part but the last is one byte. The last part fills the remaining bytes.
  private static func address(_ parts: [some StringProtocol]) -> IPAddress? {
    guard parts.count <= 4 else { return nil }
    var value: UInt64 = 0
    for part in parts.dropLast() {
      guard let byte = number(part), byte <= 255 else { return nil }
      value = value << 8 | byte
    }
    let room = UInt64(8 * (5 - parts.count))
    guard let last = number(parts[parts.count - 1]), last < 1 << room else { return nil }
    return IPAddress(v4: UInt32(value << room | last))
  }

  /// Reads decimal, octal (`0…`) or hexadecimal (`0x…`) digits. Nil if the part is no number or exceeds 64
  /// bits.
  private static func number(_ part: some StringProtocol) -> UInt64? {
    if part.hasPrefix("0x") {
      let digits = part.dropFirst(2)
      return digits.isEmpty ? 0 : plainNumber(digits, radix: 16)
    }
    if part.hasPrefix("0"), part.utf8.count > 1 { return plainNumber(part.dropFirst(), radix: 8) }
    return plainNumber(part, radix: 10)
  }

  /// Refuses a leading sign, which the standard library's parser accepts.
  private static func plainNumber(_ digits: some StringProtocol, radix: Int) -> UInt64? {
    guard let first = digits.utf8.first, first != UInt8(ascii: "+"), first != UInt8(ascii: "-")
    else { return nil }
    return UInt64(digits, radix: radix)
  }
}
