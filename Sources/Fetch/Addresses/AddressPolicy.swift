package import Jobs
package import Settings

/// Decides which URLs and addresses the fetcher may use. Pure rules over scheme, host name, port and address.
///
/// A deny rule wins over every allow rule. Addresses are judged independently of names: allowing a host does
/// not allow the private network that its name may resolve to.
package struct AddressPolicy: Sendable {
  /// The URL schemes that may be fetched. An empty set means http and https.
  package var allowSchemes: Set<String> = ["http", "https"]
  /// Networks exempt from the built-in block list.
  ///
  /// An IPv4 network also covers the IPv6 addresses that embed its addresses. An IPv6 network covers embedded
  /// IPv4 addresses only if its prefix is long enough to determine how they are embedded.
  package var allowNetworks: [CIDR] = []
  /// Networks that are never fetched from.
  package var denyNetworks: [CIDR] = []
  /// Exact host names, or `*.example.org` for every name below `example.org`. Empty: all names are allowed.
  package var allowHosts: [String] = []
  /// Like `allowHosts`, but these names are never fetched from.
  package var denyHosts: [String] = []
  /// The ports that may be connected to. Empty: all.
  package var allowPorts: Set<Int> = [80, 443]

  /// The configuration's defaults: the public internet on ports 80 and 443.
  package init() {}

  /// Returns why a URL's scheme, port or host is refused, or nil if it is allowed.
  /// - Parameter host: In its ASCII form, lower case, without a trailing dot.
  package func objection(scheme: String, host: String, port: Int) -> BlockReason? {
    if !allowSchemes.isEmpty, !allowSchemes.contains(scheme) { return .scheme(scheme) }
    if !allowPorts.isEmpty, !allowPorts.contains(port) { return .port(port) }
    if denyHosts.contains(where: { Self.matches(host, $0) }) { return .host }
    if !allowHosts.isEmpty, !allowHosts.contains(where: { Self.matches(host, $0) }) {
      return .host
    }
    return nil
  }

  /// Returns why an address is refused, or nil if it is allowed.
  package func objection(to address: IPAddress) -> BlockReason? {
    forbiddingName(of: address).map { .address(address.description, name: $0) }
  }

  private func forbiddingName(of address: IPAddress) -> String? {
    let outer = address.unmapped
    let inner = outer.embedded
    let forms = [address, outer] + inner
    if forms.contains(where: { form in denyNetworks.contains { $0.contains(form) } }) {
      return "deny_networks"
    }
    // Every embedded address must be allowed: a Teredo address embeds two, and packets go to only one of
    // them.
    if allows(address) || allows(outer) || !inner.isEmpty && inner.allSatisfy(allows) {
      return nil
    }
    return inner.lazy.filter { !allows($0) }.compactMap(SpecialPurposeRegistry.forbiddingName).first
      ?? (isWithinAllowed(outer) ? nil : SpecialPurposeRegistry.forbiddingName(of: outer))
  }

  /// Whether an allowed network contains the address and also determines the IPv4 address embedded in it.
  ///
  /// `::/0`, for example, does not allow `::ffff:127.0.0.1`: the kernel connects to that address over IPv4.
  /// Nor does it allow addresses that a translator or tunnel maps to IPv4.
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

extension AddressPolicy {
  /// The configuration keys of the policy for origins.
  static let settings: [Setting<AddressPolicy>] = [
    Setting(
      "fetch.allow_schemes", \.allowSchemes, .schemes,
      "Allowed URL schemes."),
    Setting(
      "fetch.allow_networks", \.allowNetworks, .list(.network),
      "Networks exempt from the built-in block list (loopback, private, link-local and the rest of IANA's special-purpose tables). Every client that may submit jobs can reach them."
    ),
    Setting(
      "fetch.deny_networks", \.denyNetworks, .list(.network),
      "Networks that are blocked in addition to the built-in block list."),
    Setting(
      "fetch.allow_hosts", \.allowHosts, .list(.hostPattern),
      "Allowed hosts; empty for all. The address rules still apply."),
    Setting(
      "fetch.deny_hosts", \.denyHosts, .list(.hostPattern),
      "Hosts that are never connected to."),
    Setting(
      "fetch.allow_ports", \.allowPorts, .ports,
      "Allowed ports; empty for all."),
  ]
}

/// A URL scheme that can be fetched.
private enum Scheme: String, CaseIterable {
  case https
  case http
}

extension ValueFormat<Set<String>> {
  fileprivate static let schemes = ValueFormat<Set<Scheme>>.choices(minimum: 1)
    .converted(to: { Set($0.map(\.rawValue)) }) { Set($0.compactMap(Scheme.init)) }
}

extension ValueFormat<Set<Int>> {
  /// Ports; empty for all.
  package static let ports = ValueFormat<[Int]>.list(.integer(1...65_535))
    .converted(to: { Set($0) }) { $0.sorted() }
}

extension ValueFormat<CIDR> {
  /// A network.
  package static let network = ValueFormat<String>.network
    .converted(to: { CIDR($0) }, from: \.description)
}

extension FetchRequest {
  /// Waits until the request may go to another origin. The wait counts toward the fetch's timeout.
  ///
  /// - Throws: The errors that ``admission`` throws, and `.timeout` at the deadline.
  func awaitAdmission(
    to origin: String, by deadline: ContinuousClock.Instant
  ) async throws(FetchError) {
    guard let admission else { return }
    let timeout = timeout
    let result = await withTaskGroup(of: Result<Void, FetchError>.self) { group in
      group.addTask {
        do throws(FetchError) { return .success(try await admission(origin)) } catch {
          return .failure(error)
        }
      }
      group.addTask {
        await Self.sleep(until: deadline)
        return .failure(Task.isCancelled ? .cancelled : .timeout(seconds: timeout.roundedSeconds))
      }
      let first = await group.next() ?? .failure(.cancelled)
      group.cancelAll()
      return first
    }
    try result.get()
  }

  /// Sleeps until the deadline or a cancellation, at most an hour at a time: the system's timers overflow on
  /// very distant deadlines.
  private static func sleep(until deadline: ContinuousClock.Instant) async {
    while !Task.isCancelled {
      let left = ContinuousClock.now.duration(to: deadline)
      guard left > .zero else { return }
      try? await Task.sleep(for: min(left, .seconds(3_600)))
    }
  }
}
