/// IPv4 addresses embedded in IPv6 addresses.
///
/// A translator or tunnel on the path extracts the embedded IPv4 address and connects to it. Checking only
/// the IPv6 address would therefore let a request reach private IPv4 networks.
extension IPAddress {
  /// The IPv4 address of an IPv4-mapped address (`::ffff:a.b.c.d`), which the kernel connects to over IPv4.
  /// Any other address is returned unchanged.
  package var unmapped: IPAddress {
    family == .v6 && value >> 32 == 0xFFFF ? low32 : self
  }

  /// The IPv4 addresses embedded in an IPv4-compatible, translated (NAT64, SIIT), 6to4, Teredo or ISATAP
  /// address. Empty for any other address.
  package var embedded: [IPAddress] {
    // `::` and `::1` match `::/96` but embed no IPv4 address.
    guard family == .v6, value > 1 else { return [] }
    switch Self.forms.first(where: { $0.prefix.contains(self) })?.form {
    case .low: return [low32]
    case .sixToFour: return [v4(at: 80)]
    // A Teredo address stores the server's address as it is and the client's address inverted (RFC 4380
    // section 4).
    case .teredo: return [v4(at: 64), IPAddress(v4: ~UInt32(truncatingIfNeeded: value))]
    // RFC 6052 section 2.2: bits 64 to 71 are zero and split the IPv4 address in two.
    case .translated48: return [IPAddress(v4: translated48)]
    case nil: return isISATAP ? [low32] : []
    }
  }

  /// The length of the prefix that determines how an IPv4 address is embedded, in bits. 0 if none is
  /// embedded.
  var embeddingPrefixLength: Int {
    if unmapped != self { return 96 }
    if embedded.isEmpty { return 0 }
    return Self.forms.first { $0.prefix.contains(self) }?.prefix.prefixLength ?? 96
  }

  private enum Form { case low, sixToFour, teredo, translated48 }

  private static let forms: [(prefix: CIDR, form: Form)] = [
    (CIDR("::/96")!, .low), (CIDR("::ffff:0:0:0/96")!, .low), (CIDR("64:ff9b::/96")!, .low),
    (CIDR("64:ff9b:1::/48")!, .translated48), (CIDR("2002::/16")!, .sixToFour),
    (CIDR("2001::/32")!, .teredo),
  ]

  /// Whether the interface identifier is `[02]00:5efe:a.b.c.d` (RFC 5214 section 6.1).
  private var isISATAP: Bool {
    let identifier = UInt32(truncatingIfNeeded: value >> 32)
    return identifier & ~0x0200_0000 == 0x0000_5EFE
  }

  private var low32: IPAddress { v4(at: 0) }

  private func v4(at shift: Int) -> IPAddress {
    IPAddress(v4: UInt32(truncatingIfNeeded: value >> UInt128(shift)))
  }

  private var translated48: UInt32 {
    let high = UInt32(truncatingIfNeeded: value >> 64) & 0xFFFF
    let low = UInt32(truncatingIfNeeded: value >> 40) & 0xFFFF
    return high << 16 | low
  }
}
