internal import CCurl
internal import Jobs
internal import Logging

/// Resolves a URL's host to addresses and checks each of them against the policy.
struct Router: Sendable {
  private(set) var policy: AddressPolicy
  let lookups: LookupQueue
  let connectTimeout: Duration
  let proxy: ProxyAddress?
  private let log = Logger(label: "imagefetch.fetch")

  init(_ configuration: CurlFetcher.Configuration) throws(FetcherSetupError) {
    policy = Self.ascii(configuration.policy)
    connectTimeout = configuration.connectTimeout
    lookups = LookupQueue(
      resolver: configuration.resolver, threads: configuration.maxLookups,
      cacheTime: configuration.lookupCacheTime)
    guard let text = configuration.proxy else {
      proxy = nil
      return
    }
    guard let proxy = ProxyAddress(text) else { throw .unusableProxy }
    self.proxy = proxy
  }

  /// Returns the same router with another policy.
  func under(_ policy: AddressPolicy) -> Router {
    var router = self
    router.policy = Self.ascii(policy)
    return router
  }

  private static func ascii(_ policy: AddressPolicy) -> AddressPolicy {
    var policy = policy
    policy.allowHosts = policy.allowHosts.map(asciiPattern)
    policy.denyHosts = policy.denyHosts.map(asciiPattern)
    return policy
  }

  /// Resolves and checks a URL.
  /// - Parameter owner: The owner of the job that needs the name. Nil: the service itself.
  /// - Throws: `.blocked`, `.dnsFailure`, `.cancelled`; `.connectFailure` if the proxy has no address.
  func route(
    to url: SourceURL, for owner: Owner?, by deadline: ContinuousClock.Instant
  ) async throws(FetchError) -> TransferRoute {
    guard let host = HostName(url.host) else {
      throw .badHost(url.host)
    }
    if let reason = policy.objection(scheme: url.scheme, host: host.text, port: url.port) {
      throw .blocked(target: host.text, reason)
    }
    let start = ContinuousClock.now
    let addresses = try permitted(
      await addresses(of: host, for: owner, by: deadline), target: host.text)
    let nameTime = start.duration(to: .now)
    var proxyRoute: ProxyRoute?
    if let proxy {
      let peers = try await self.addresses(of: proxy, for: host, by: deadline)
      proxyRoute = ProxyRoute(
        url: proxy.url, host: proxy.host.text, port: proxy.port, addresses: peers)
    }
    return TransferRoute(
      url: "\(url.scheme)://\(host.inURL):\(url.port)\(url.pathAndQuery)", host: host.text,
      port: url.port, addresses: addresses, nameTime: nameTime, policy: policy,
      proxy: proxyRoute)
  }

  private func addresses(
    of host: HostName, for owner: Owner?, by deadline: ContinuousClock.Instant
  ) async throws(FetchError) -> [IPAddress] {
    switch host {
    case .address(let address): return [address]
    case .name(let name):
      let left = ContinuousClock.now.duration(to: deadline)
      return try await lookups.addresses(
        of: name, for: owner, within: min(left, connectTimeout))
    }
  }

  /// Returns the proxy's own addresses. Errors name only the target, because the proxy's name is
  /// confidential.
  private func addresses(
    of proxy: ProxyAddress, for target: HostName, by deadline: ContinuousClock.Instant
  ) async throws(FetchError) -> [IPAddress] {
    do throws(FetchError) {
      return try await addresses(of: proxy.host, for: nil, by: deadline)
    } catch {
      guard case .dnsFailure(let name, let detail) = error else { throw error }
      log.debug("failed to resolve the proxy", metadata: ["proxy": "\(name)", "why": "\(detail)"])
      throw .connectFailure(host: target.text, detail: ProxyRoute.unreachable)
    }
  }

  /// Returns the addresses that the policy allows. Forbidden ones are dropped. Throws `.blocked` if none
  /// remains.
  private func permitted(
    _ addresses: [IPAddress], target: String
  ) throws(FetchError) -> [IPAddress] {
    let permitted = addresses.filter { policy.objection(to: $0) == nil }
    if permitted.isEmpty, let reason = addresses.lazy.compactMap(policy.objection(to:)).first {
      throw .blocked(target: target, reason)
    }
    guard !permitted.isEmpty else { throw .dnsFailure(host: target, detail: "no address") }
    return permitted
  }

  /// Converts a host pattern to the form of the names it is compared with: ASCII, lower case, without a
  /// trailing dot.
  private static func asciiPattern(_ pattern: String) -> String {
    let lowercased = pattern.lowercased()
    guard lowercased.hasPrefix("*.") else { return HostName(lowercased)?.text ?? lowercased }
    let suffix = String(lowercased.dropFirst(2))
    return "*." + (HostName(suffix)?.text ?? suffix)
  }
}

/// The operator's proxy URL, split into its parts.
struct ProxyAddress: Sendable {
  let url: String
  let host: HostName
  let port: Int

  init?(_ text: String) {
    guard let parts = CurlURL.parts(text), ["http", "https"].contains(parts.scheme),
      let host = HostName(parts.host)
    else { return nil }
    self.host = host
    port = parts.port ?? 1_080
    // The URL uses the same spelling of the host as the pin in libcurl's name cache.
    let user = parts.userInfo.map { "\($0)@" } ?? ""
    url = "\(parts.scheme)://\(user)\(host.inURL):\(port)"
  }
}
