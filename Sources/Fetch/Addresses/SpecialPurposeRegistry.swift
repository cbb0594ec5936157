/// The networks that are not part of the public internet: IANA's special-purpose address registries for IPv4
/// and IPv6 (RFC 6890, as of 2025), and some networks that the registries do not list.
///
/// The most specific row decides about an address. A row that the registry does not mark as globally
/// reachable ("False", or "N/A" for deprecated blocks) is never fetched from.
package enum SpecialPurposeRegistry {
  /// One row of a registry.
  package struct Row: Sendable {
    /// The address block.
    package let network: CIDR
    /// The block's name in the registry.
    package let name: String
    /// Whether the registry says "Globally Reachable: True".
    package let isGloballyReachable: Bool

    init(_ network: String, _ name: String, reachable: Bool = false) {
      self.network = CIDR(network)!  // the tables below are constants, and every row is tested
      self.name = name
      isGloballyReachable = reachable
    }
  }

  /// Returns the name of the row that forbids an address, or nil for a public address.
  package static func forbiddingName(of address: IPAddress) -> String? {
    let rows = address.family == .v4 ? ipv4 : ipv6
    let row = rows.filter { $0.network.contains(address) }
      .max { $0.network.prefixLength < $1.network.prefixLength }
    guard let row else {
      return address.family == .v4 || globalUnicast.contains(address) ? nil : "Not Global Unicast"
    }
    return row.isGloballyReachable ? nil : row.name
  }

  /// The only IPv6 block allocated for public use (RFC 4291 section 2.4, IANA's IPv6 address space registry).
  private static let globalUnicast = CIDR("2000::/3")!

  /// https://www.iana.org/assignments/iana-ipv4-special-registry, and the additions at its end.
  package static let ipv4: [Row] = [
    Row("0.0.0.0/8", "\"This network\""),
    Row("0.0.0.0/32", "\"This host on this network\""),
    Row("10.0.0.0/8", "Private-Use"),
    Row("100.64.0.0/10", "Shared Address Space"),
    Row("127.0.0.0/8", "Loopback"),
    Row("169.254.0.0/16", "Link Local"),
    Row("172.16.0.0/12", "Private-Use"),
    Row("192.0.0.0/24", "IETF Protocol Assignments"),
    Row("192.0.0.0/29", "IPv4 Service Continuity Prefix"),
    Row("192.0.0.8/32", "IPv4 dummy address"),
    Row("192.0.0.9/32", "Port Control Protocol Anycast", reachable: true),
    Row("192.0.0.10/32", "Traversal Using Relays around NAT Anycast", reachable: true),
    Row("192.0.0.170/32", "NAT64/DNS64 Discovery"),
    Row("192.0.0.171/32", "NAT64/DNS64 Discovery"),
    Row("192.0.2.0/24", "Documentation (TEST-NET-1)"),
    Row("192.31.196.0/24", "AS112-v4", reachable: true),
    Row("192.52.193.0/24", "AMT", reachable: true),
    Row("192.88.99.0/24", "Deprecated (6to4 Relay Anycast)"),
    Row("192.88.99.2/32", "6a44-relay anycast address"),
    Row("192.168.0.0/16", "Private-Use"),
    Row("192.175.48.0/24", "Direct Delegation AS112 Service", reachable: true),
    Row("198.18.0.0/15", "Benchmarking"),
    Row("198.51.100.0/24", "Documentation (TEST-NET-2)"),
    Row("203.0.113.0/24", "Documentation (TEST-NET-3)"),
    Row("240.0.0.0/4", "Reserved"),
    Row("255.255.255.255/32", "Limited Broadcast"),
    // Additions: multicast (RFC 5771), and a public address that only answers inside the Azure cloud.
    Row("224.0.0.0/4", "Multicast"),
    Row("168.63.129.16/32", "Azure Platform"),
  ]

  /// https://www.iana.org/assignments/iana-ipv6-special-registry, and the additions at its end.
  package static let ipv6: [Row] = [
    Row("::1/128", "Loopback Address"),
    Row("::/128", "Unspecified Address"),
    Row("::ffff:0:0/96", "IPv4-mapped Address"),
    Row("64:ff9b::/96", "IPv4-IPv6 Translat.", reachable: true),
    Row("64:ff9b:1::/48", "IPv4-IPv6 Translat."),
    Row("100::/64", "Discard-Only Address Block"),
    Row("100:0:0:1::/64", "Dummy IPv6 Prefix"),
    Row("2001::/23", "IETF Protocol Assignments"),
    Row("2001::/32", "TEREDO"),
    Row("2001:1::1/128", "Port Control Protocol Anycast", reachable: true),
    Row("2001:1::2/128", "Traversal Using Relays around NAT Anycast", reachable: true),
    Row("2001:1::3/128", "DNS-SD Service Registration Protocol Anycast", reachable: true),
    Row("2001:2::/48", "Benchmarking"),
    Row("2001:3::/32", "AMT", reachable: true),
    Row("2001:4:112::/48", "AS112-v6", reachable: true),
    Row("2001:10::/28", "Deprecated (previously ORCHID)"),
    Row("2001:20::/28", "ORCHIDv2", reachable: true),
    Row(
      "2001:30::/28", "Drone Remote ID Protocol Entity Tags (DETs) Prefix", reachable: true),
    Row("2001:db8::/32", "Documentation"),
    Row("2002::/16", "6to4"),
    Row("2620:4f:8000::/48", "Direct Delegation AS112 Service", reachable: true),
    Row("3fff::/20", "Documentation"),
    Row("5f00::/16", "Segment Routing (SRv6) SIDs"),
    Row("fc00::/7", "Unique-Local"),
    Row("fe80::/10", "Link-Local Unicast"),
    // Additions: RFC 3879, RFC 4291 sections 2.5.5.1 and 2.7.
    Row("fec0::/10", "Site-Local Unicast"),
    Row("::/96", "IPv4-Compatible Address"),
    Row("ff00::/8", "Multicast"),
  ]
}
