/// A network: all addresses with the same leading bits (RFC 4632).
package struct CIDR: Hashable, Sendable, CustomStringConvertible {
  /// The first address of the network.
  package let network: IPAddress
  /// The number of leading bits that all addresses of the network share.
  package let prefixLength: Int

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
