internal import Glibc

/// An IPv4 or IPv6 address as a number. A zone ("%eth0") is never part of it.
package struct IPAddress: Hashable, Sendable, CustomStringConvertible {
  package enum Family: Hashable, Sendable {
    case v4, v6

    /// The length of an address in bits.
    package var bits: Int { self == .v4 ? 32 : 128 }
  }

  /// IPv4 or IPv6. An IPv4-mapped address counts as IPv6; ``unmapped`` converts it.
  package let family: Family
  /// The address in host byte order. An IPv4 address uses the low 32 bits.
  package let value: UInt128

  package init(v4 value: UInt32) {
    family = .v4
    self.value = UInt128(value)
  }

  package init(v6 value: UInt128) {
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
