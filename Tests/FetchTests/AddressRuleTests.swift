import Fetch
import Jobs
import Testing

@Suite("The address rule")
struct AddressRuleTests {
  @Test(
    "every row of the registries decides about its addresses",
    arguments: SpecialPurposeRegistry.ipv4 + SpecialPurposeRegistry.ipv6)
  func rows(row: SpecialPurposeRegistry.Row) {
    let address = row.network.network
    let name = SpecialPurposeRegistry.forbiddingName(of: address)
    if row.isGloballyReachable {
      #expect(name == nil, "\(row.network)")
    } else {
      // A more specific row may begin with the same address.
      #expect(name != nil, "\(row.network)")
    }
  }

  @Test(
    "a forbidden address names its network",
    arguments: [
      ("0.1.2.3", "\"This network\""), ("10.255.255.255", "Private-Use"),
      ("100.64.0.1", "Shared Address Space"), ("127.255.255.254", "Loopback"),
      ("169.254.169.254", "Link Local"), ("172.31.0.1", "Private-Use"),
      ("192.0.0.8", "IPv4 dummy address"), ("192.0.0.1", "IPv4 Service Continuity Prefix"),
      ("192.0.0.100", "IETF Protocol Assignments"),
      ("192.88.99.1", "Deprecated (6to4 Relay Anycast)"),
      ("192.168.1.1", "Private-Use"), ("198.19.255.255", "Benchmarking"),
      ("203.0.113.9", "Documentation (TEST-NET-3)"), ("224.0.0.1", "Multicast"),
      ("239.255.255.250", "Multicast"), ("250.1.1.1", "Reserved"),
      ("255.255.255.255", "Limited Broadcast"), ("168.63.129.16", "Azure Platform"),
      ("::", "Unspecified Address"), ("::1", "Loopback Address"), ("fe80::1", "Link-Local Unicast"),
      ("febf::1", "Link-Local Unicast"), ("fec0::1", "Site-Local Unicast"),
      ("fd00:ec2::254", "Unique-Local"), ("ff02::1", "Multicast"), ("2001:db8::1", "Documentation"),
      ("3fff::1", "Documentation"), ("5f00::1", "Segment Routing (SRv6) SIDs"),
      ("100::1", "Discard-Only Address Block"), ("100:0:0:1::1", "Dummy IPv6 Prefix"),
      ("2001:10::1", "Deprecated (previously ORCHID)"),
      ("2001:100::1", "IETF Protocol Assignments"),
      ("4000::1", "Not Global Unicast"), ("64:ff9b:1::1", "\"This host on this network\""),
      ("64:ff9b:1:808:8:800::", "IPv4-IPv6 Translat."),
    ])
  func forbidden(address: String, name: String) {
    #expect(objection(address) == name)
  }

  @Test(
    "an IPv4 address embedded in an IPv6 address is judged as IPv4",
    arguments: [
      ("::ffff:127.0.0.1", "Loopback"), ("::ffff:169.254.169.254", "Link Local"),
      ("::127.0.0.1", "Loopback"), ("::ffff:0:127.0.0.1", "Loopback"),
      ("64:ff9b::10.0.0.1", "Private-Use"), ("64:ff9b:1:7f00:0:100::", "Loopback"),
      ("2002:7f00:1::", "Loopback"), ("2002:a9fe:a9fe::1", "Link Local"),
      ("2001:0:7f00:1::", "Loopback"), ("2001:0:808:808::80ff:fffe", "Loopback"),
      ("2a00::5efe:127.0.0.1", "Loopback"), ("2a00::200:5efe:10.0.0.1", "Private-Use"),
      ("2002:808:808::1", "6to4"), ("2001:0:808:808::f7f7:f7f7", "TEREDO"),
      ("::8.8.8.8", "IPv4-Compatible Address"),
    ])
  func embedded(address: String, name: String) {
    #expect(objection(address) == name)
  }

  @Test(
    "public addresses are allowed",
    arguments: [
      "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
      "126.255.255.255", "128.0.0.0", "172.15.255.255", "172.32.0.0", "192.0.0.9", "192.0.0.10",
      "192.0.1.0", "192.31.196.1", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
      "223.255.255.255", "168.63.129.15", "2606:4700::1111", "2001:4860:4860::8888", "2001:1::1",
      "2001:20::1", "2001:4:112::1", "2620:4f:8000::1", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8",
      "2a00::5efe:8.8.8.8",
    ])
  func free(address: String) {
    #expect(objection(address) == nil)
  }

  @Test("an allowed network is open, also for embedded addresses, and its neighbors are not")
  func allowed() {
    var policy = AddressPolicy()
    policy.allowNetworks = [CIDR("127.0.0.1/32")!, CIDR("fd00::/8")!]
    for address in ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "fd00::1"] {
      #expect(objection(address, policy) == nil, "\(address)")
    }
    for address in ["127.0.0.2", "::1", "::ffff:127.0.0.2", "fc00::1", "2001:0:7f00:1::"] {
      #expect(objection(address, policy) != nil, "\(address)")
    }
  }

  @Test(
    "an allowed IPv6 network allows embedded IPv4 addresses only if it determines their form",
    arguments: [
      ("::ffff:127.0.0.1", "Loopback", "::ffff:0:0/96"),
      ("::ffff:169.254.169.254", "Link Local", "::ffff:a9fe:0/112"),
      ("64:ff9b::10.0.0.1", "Private-Use", "64:ff9b::/96"),
      ("64:ff9b:1:7f00:0:100::", "Loopback", "64:ff9b:1::/48"),
      ("2002:7f00:1::", "Loopback", "2002::/16"), ("::127.0.0.1", "Loopback", "::/96"),
      ("::ffff:0:127.0.0.1", "Loopback", "::ffff:0:0:0/96"),
      ("2001:0:7f00:1::f7f7:f7f7", "Loopback", "2001::/32"),
      ("2001:0:808:808::80ff:fffe", "Loopback", "2001::/32"),
      ("2a00::5efe:127.0.0.1", "Loopback", "2a00::5efe:0:0/96"),
      ("fe80::5efe:10.0.0.1", "Private-Use", "fe80::5efe:a00:0/104"),
    ])
  func embeddedInAllowed(address: String, name: String, network: String) throws {
    var policy = AddressPolicy()
    for wide in ["::/0", "::/1", "::/15", "2000::/3", "fe80::/10"] {
      policy.allowNetworks.append(try #require(CIDR(wide)))
    }
    #expect(objection(address, policy) == name)
    policy.allowNetworks = [try #require(CIDR(network))]
    #expect(objection(address, policy) == nil)
    policy.denyNetworks = [try #require(CIDR("::/0"))]
    #expect(objection(address, policy) == "deny_networks")
  }

  @Test(
    "an allowed IPv6 network allows its special addresses and embedded public ones")
  func allowedSix() throws {
    var policy = AddressPolicy()
    policy.allowNetworks = [try #require(CIDR("::/0"))]
    for address in [
      "::1", "fd00::1", "fe80::1", "2001:db8::1", "2002:808:808::1", "::8.8.8.8",
      "64:ff9b::8.8.8.8",
      "::ffff:8.8.8.8", "2001:0:808:808::f7f7:f7f7",
    ] {
      #expect(objection(address, policy) == nil, "\(address)")
    }
    #expect(objection("127.0.0.1", policy) == "Loopback")
    policy.allowNetworks.append(try #require(CIDR("127.0.0.0/8")))
    for address in ["::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::"] {
      #expect(objection(address, policy) == nil, "\(address)")
    }
  }

  @Test("denied networks win over allowed ones, also for embedded addresses")
  func denied() {
    var policy = AddressPolicy()
    policy.allowNetworks = [CIDR("10.0.0.0/8")!]
    policy.denyNetworks = [CIDR("10.1.0.0/16")!, CIDR("8.8.8.0/24")!]
    #expect(objection("10.2.0.1", policy) == nil)
    for address in ["10.1.0.1", "::ffff:10.1.0.1", "8.8.8.8", "64:ff9b::8.8.8.8"] {
      #expect(objection(address, policy) == "deny_networks", "\(address)")
    }
  }

  @Test("hosts, ports and schemes are allowed by name")
  func names() {
    var policy = AddressPolicy()
    policy.allowHosts = ["example.org", "*.cdn.example"]
    policy.denyHosts = ["bad.cdn.example", "*.evil.cdn.example"]
    policy.allowSchemes = ["https"]
    func judge(_ host: String, _ scheme: String = "https", _ port: Int = 443) -> BlockReason? {
      policy.objection(scheme: scheme, host: host, port: port)
    }
    for host in ["example.org", "a.cdn.example", "a.b.cdn.example"] { #expect(judge(host) == nil) }
    for host in [
      "www.example.org", "cdn.example", "xcdn.example", "bad.cdn.example", "x.evil.cdn.example",
      "example.com", "",
    ] {
      #expect(judge(host) == .host, "\(host)")
    }
    #expect(judge("example.org", "http", 80) == .scheme("http"))
    #expect(judge("example.org", "https", 8443) == .port(8443))
    policy.allowPorts = []
    #expect(judge("example.org", "https", 8443) == nil)
  }

  @Test(
    "malformed networks are refused",
    arguments: [
      "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0/8", "fc00::/129", "x/8", "",
      "10.0.0.0/8/8", "010.0.0.0/8", "fe80::1%eth0/64", "10.0.0.0/+8",
    ])
  func badNetworks(text: String) {
    #expect(CIDR(text) == nil)
  }

  @Test("a network without a length is one address, and /0 is its whole family")
  func networkEdges() throws {
    #expect(try #require(CIDR("10.0.0.1")).description == "10.0.0.1/32")
    #expect(try #require(CIDR("0.0.0.0/0")).contains(#require(IPAddress("8.8.8.8"))))
    #expect(try #require(CIDR("::/0")).contains(#require(IPAddress("2001:db8::1"))))
    #expect(try !#require(CIDR("::/0")).contains(#require(IPAddress("8.8.8.8"))))
  }

  private func objection(_ text: String, _ policy: AddressPolicy = AddressPolicy()) -> String? {
    guard let address = IPAddress(text) else { return "no address" }
    guard case .address(address.description, let name) = policy.objection(to: address) else {
      return nil
    }
    return name
  }
}
