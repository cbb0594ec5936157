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

/// Rules for redirects. The fetcher follows redirects itself, so that each target is checked like the first
/// URL.
enum Redirect {
  /// Whether a status redirects a GET (RFC 9110 section 15.4).
  static func isRedirect(_ status: Int) -> Bool { [301, 302, 303, 307, 308].contains(status) }

  /// Converts a `Location` field to text. Bytes beyond ASCII are percent-encoded unchanged, whatever their
  /// character set. In the host they are kept as UTF-8, for internationalised names.
  static func text(of location: [UInt8]) -> String {
    let start = hostEnd(of: location)
    var encoded = Array(location[..<start])
    for byte in location[start...] {
      if byte < 0x80 {
        encoded.append(byte)
      } else {
        encoded += "%".utf8
        encoded += [hexDigits[Int(byte >> 4)], hexDigits[Int(byte & 0xF)]]
      }
    }
    return String(decoding: encoded, as: UTF8.self)
  }

  private static let hexDigits = Array("0123456789ABCDEF".utf8)

  /// Returns the end of a reference's authority (RFC 3986 section 3), or 0 if it has none.
  private static func hostEnd(of reference: [UInt8]) -> Int {
    let slashes = Array("//".utf8)
    let end = reference.firstIndex { "/?#".utf8.contains($0) } ?? reference.endIndex
    let schemeEnd = reference[..<end].last == UInt8(ascii: ":") ? end : 0
    guard reference[schemeEnd...].starts(with: slashes) else { return 0 }
    let authority = reference[(schemeEnd + 2)...]
    return authority.firstIndex { "/?#".utf8.contains($0) } ?? reference.endIndex
  }

  /// Returns the URL that a redirect leads to.
  /// - Parameter base: The URL that returned the redirect, its host in ASCII.
  static func target(of head: ResponseHead, from base: String) throws(FetchError) -> SourceURL {
    let locations = Set(head.fields.filter { $0.name.lowercased() == "location" }.map(\.value))
    let unusable = FetchError.badRedirect(
      // Only the scheme, because the rest of the URL may be confidential.
      status: head.status, location: locations.first.map { scheme(of: $0).map { $0 + ":…" } ?? "…" }
    )
    guard locations.count == 1, let location = locations.first, !location.isEmpty,
      location.utf8.count <= SourceURL.maxLength,
      !location.utf8.contains(where: { $0 < 0x20 || $0 == 0x7F || $0 == UInt8(ascii: "\\") })
    else { throw unusable }
    if let scheme = scheme(of: location), scheme != "http", scheme != "https" {
      throw .blocked(target: "A redirect", .scheme(String(scheme.prefix(32))))
    }
    guard let text = absolute(location, from: base), let url = SourceURL(text) else {
      throw unusable
    }
    return url
  }

  /// Returns an absolute URL. A reference with a host is not resolved by libcurl but left to ``SourceURL``,
  /// which is stricter: `http:/x` and `http:///x` have no host.
  private static func absolute(_ reference: String, from base: String) -> String? {
    if scheme(of: reference) != nil { return reference }
    if reference.hasPrefix("//") { return scheme(of: base).map { "\($0):\(reference)" } }
    return CurlURL.resolve(reference.replacing(" ", with: "%20"), against: base)
  }

  /// Returns the scheme of an absolute reference (RFC 3986 section 3.1) in lower case. `javascript:` and
  /// `data:` references have one, too, although no "//" follows.
  private static func scheme(of reference: String) -> String? {
    let head = reference.utf8.prefix { $0 != UInt8(ascii: ":") }
    guard head.count < reference.utf8.count, let first = head.first, isLetter(first),
      head.allSatisfy({ isLetter($0) || 0x30...0x39 ~= $0 || "+-.".utf8.contains($0) })
    else { return nil }
    return Substring(head).lowercased()
  }

  private static func isLetter(_ byte: UInt8) -> Bool { 0x61...0x7A ~= byte | 0x20 }
}
