internal import Glibc

/// An IPv4 or IPv6 address as a number. A zone ("%eth0") is never part of it.
package struct IPAddress: Hashable, Sendable, CustomStringConvertible {
  enum Family: Hashable, Sendable {
    case v4, v6

    /// The length of an address in bits.
    var bits: Int { self == .v4 ? 32 : 128 }
  }

  /// IPv4 or IPv6. An IPv4-mapped address counts as IPv6; ``unmapped`` converts it.
  let family: Family
  /// The address in host byte order. An IPv4 address uses the low 32 bits.
  package let value: UInt128

  init(v4 value: UInt32) {
    family = .v4
    self.value = UInt128(value)
  }

  init(v6 value: UInt128) {
    family = .v6
    self.value = value
  }

  /// Reads four decimal numbers, or the IPv6 notation of RFC 4291 section 2.2. ``NumericHost`` reads the
  /// lenient IPv4 spellings of host names, such as `0x7f.1`.
  package init?(_ text: some StringProtocol) {
    let text = String(text)
    guard !text.utf8.contains(0) else { return nil }
    var v4 = in_addr()
    var v6 = in6_addr()
    if inet_pton(AF_INET, text, &v4) == 1 {
      self.init(v4: UInt32(bigEndian: v4.s_addr))
    } else if inet_pton(AF_INET6, text, &v6) == 1 {
      self.init(v6: Self.number(v6))
    } else {
      return nil
    }
  }

  /// Reads the IPv4 or IPv6 address of a socket address. Nil for other families.
  init?(_ address: UnsafePointer<sockaddr>) {
    let raw = UnsafeRawPointer(address)
    switch Int32(address.pointee.sa_family) {
    case AF_INET:
      let v4 = raw.loadUnaligned(as: sockaddr_in.self)
      self.init(v4: UInt32(bigEndian: v4.sin_addr.s_addr))
    case AF_INET6:
      self.init(v6: Self.number(raw.loadUnaligned(as: sockaddr_in6.self).sin6_addr))
    default: return nil
    }
  }

  /// The canonical notation (RFC 5952 for IPv6), without brackets.
  package var description: String {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(INET6_ADDRSTRLEN)) { buffer in
      let size = socklen_t(buffer.count)
      if family == .v4 {
        var v4 = in_addr(s_addr: UInt32(truncatingIfNeeded: value).bigEndian)
        inet_ntop(AF_INET, &v4, buffer.baseAddress!, size)
      } else {
        var v6 = value.bigEndian
        inet_ntop(AF_INET6, &v6, buffer.baseAddress!, size)
      }
      return String(cString: buffer.baseAddress!)
    }
  }

  /// The address as written in a URL: IPv6 in brackets.
  var inURL: String { family == .v6 ? "[\(self)]" : description }

  private static func number(_ address: in6_addr) -> UInt128 {
    withUnsafeBytes(of: address) { UInt128(bigEndian: $0.loadUnaligned(as: UInt128.self)) }
  }
}

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
  var embedded: [IPAddress] {
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

/// A network: all addresses with the same leading bits (RFC 4632).
package struct CIDR: Hashable, Sendable, CustomStringConvertible {
  /// The first address of the network.
  package let network: IPAddress
  /// The number of leading bits that all addresses of the network share.
  let prefixLength: Int

  /// Reads `10.0.0.0/8`, `fc00::/7`, or a single address without a length. Returns nil if bits beyond the
  /// prefix length are set, since that is usually a typing error.
  package init?(_ text: some StringProtocol) {
    let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
    guard let address = IPAddress(parts[0]) else { return nil }
    var length = address.family.bits
    if parts.count == 2 {
      let digits = parts[1].utf8
      guard 1...3 ~= digits.count, digits.allSatisfy({ 0x30...0x39 ~= $0 }),
        let given = Int(parts[1]), given <= length
      else { return nil }
      length = given
    }
    guard address.value & ~Self.mask(length, of: address.family) == 0 else { return nil }
    network = address
    prefixLength = length
  }

  /// Whether the network contains the address. An IPv4 network contains no IPv6 address, and vice versa.
  package func contains(_ address: IPAddress) -> Bool {
    address.family == network.family
      && address.value & Self.mask(prefixLength, of: network.family) == network.value
  }

  package var description: String { "\(network)/\(prefixLength)" }

  private static func mask(_ length: Int, of family: IPAddress.Family) -> UInt128 {
    let ones = family == .v4 ? UInt128(UInt32.max) : UInt128.max
    let shift = family.bits - length
    return shift >= 128 ? 0 : ones & (ones << UInt128(shift))
  }
}
