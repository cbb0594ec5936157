public import Jobs

/// Where the fetcher may go: pure rules over scheme, host name, port and address.
///
/// What is denied is denied whatever allows it. The address rule holds for every address whatever
/// the name: allowing a host never opens a network.
public struct AddressPolicy: Sendable {
  /// The schemes that are fetched; empty: http and https.
  public var allowSchemes: Set<String> = ["http", "https"]
  /// Networks taken out of the built-in block list. An IPv4 network also covers the IPv6 addresses that embed it; an IPv6
  /// network covers the IPv4 addresses that its own embed only if all of them embed one the same way.
  public var allowNetworks: [CIDR] = []
  /// Networks that are never fetched from.
  public var denyNetworks: [CIDR] = []
  /// Exact names, or `*.example.org` for everything below; empty: all.
  public var allowHosts: [String] = []
  /// Like `allowHosts`, but never fetched from.
  public var denyHosts: [String] = []
  /// Empty: all.
  public var allowPorts: Set<Int> = [80, 443]

  /// The configuration's defaults: the public internet on ports 80 and 443.
  public init() {}

  /// Why a URL's scheme, port or host is refused; nil when it isn't.
  /// - Parameter host: in its ASCII form, lower case, without a dot at the end.
  public func objection(scheme: String, host: String, port: Int) -> BlockReason? {
    if !allowSchemes.isEmpty, !allowSchemes.contains(scheme) { return .scheme(scheme) }
    if !allowPorts.isEmpty, !allowPorts.contains(port) { return .port(port) }
    if denyHosts.contains(where: { Self.matches(host, $0) }) { return .host }
    if !allowHosts.isEmpty, !allowHosts.contains(where: { Self.matches(host, $0) }) {
      return .host
    }
    return nil
  }

  /// Why an address is refused; nil when it isn't.
  public func objection(to address: IPAddress) -> BlockReason? {
    forbiddingName(of: address).map { .address(address.description, name: $0) }
  }

  private func forbiddingName(of address: IPAddress) -> String? {
    let outer = address.unmapped
    let inner = outer.embedded
    let forms = [address, outer] + inner
    if forms.contains(where: { form in denyNetworks.contains { $0.contains(form) } }) {
      return "deny_networks"
    }
    // All of those within, since Teredo carries two and only one of them is where the packets end.
    if allows(address) || allows(outer) || !inner.isEmpty && inner.allSatisfy(allows) {
      return nil
    }
    return inner.lazy.filter { !allows($0) }.compactMap(SpecialPurposeRegistry.forbiddingName).first
      ?? (isWithinAllowed(outer) ? nil : SpecialPurposeRegistry.forbiddingName(of: outer))
  }

  /// Whether a network allows the address, and the IPv4 addresses embedded in it with it.
  ///
  /// `::/0` says nothing of `::ffff:127.0.0.1`, which the kernel connects to as IPv4, nor of what a translator or a
  /// tunnel would make of an address.
  private func allows(_ address: IPAddress) -> Bool {
    allowNetworks.contains {
      $0.contains(address) && $0.prefixLength >= address.embeddingPrefixLength
    }
  }

  private func isWithinAllowed(_ address: IPAddress) -> Bool {
    allowNetworks.contains { $0.contains(address) }
  }

  private static func matches(_ host: String, _ pattern: String) -> Bool {
    guard pattern.hasPrefix("*.") else { return host == pattern }
    let suffix = pattern.utf8.dropFirst()
    return host.utf8.count > suffix.count && host.utf8.suffix(suffix.count).elementsEqual(suffix)
  }
}
