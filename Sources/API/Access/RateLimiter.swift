internal import Glibc
internal import HTTP
internal import HTTPTypes
internal import Jobs
internal import Synchronization

/// The result of one request against a rate limit.
struct RateLimitState: Sendable {
  private let limit: RateLimit
  private let level: Double
  /// Nil if the request is allowed; otherwise the seconds until the next request is allowed.
  let wait: Double?

  init(_ limit: RateLimit, level: Double, wait: Double?) {
    (self.limit, self.level, self.wait) = (limit, level, wait)
  }

  /// The field `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10): the burst, and the seconds in which it
  /// refills.
  var policy: String {
    "\"requests\";q=\(Int(limit.burst));w=\(Self.whole(limit.burst / limit.requestsPerSecond))"
  }

  /// The field `RateLimit`: the requests left, and the seconds until the bucket is full.
  var state: String {
    let missing = (limit.burst - level) / limit.requestsPerSecond
    return "\"requests\";r=\(Int(level));t=\(Self.whole(missing))"
  }

  private static func whole(_ seconds: Double) -> Int { Int(min(seconds, 1e9).rounded(.up)) }
}

/// One bucket per client, for the most recent clients. A client that was evicted starts with a full bucket, like a new
/// one.
final class RateLimiter: Sendable {
  /// The client that a limit applies to.
  enum Client: Hashable, Sendable {
    case owner(Owner)
    case address(String)
  }

  private let buckets: Mutex<LRUCache<Client, TokenBucket>>

  /// - Parameter capacity: the maximum number of clients stored.
  init(capacity: Int = 20_000) { buckets = Mutex(LRUCache(capacity: capacity)) }

  func consume(
    _ client: Client, _ limit: RateLimit, at now: ContinuousClock.Instant = .now
  ) -> RateLimitState {
    buckets.withLock { buckets in
      var bucket = buckets.peek(client) ?? TokenBucket(limit.rate, at: now)
      let isAllowed = bucket.consume(at: now, limit.rate)
      buckets.set(bucket, for: client)
      return RateLimitState(
        limit, level: bucket.tokens(at: now, limit.rate),
        wait: isAllowed ? nil : bucket.wait(for: 1, at: now, limit.rate))
    }
  }

  /// The number of clients stored.
  var count: Int { buckets.withLock { $0.count } }
}

extension RateLimiter.Client {
  /// The client with this address. An IPv6 /64 network counts as one client, because its holder has 2^64 addresses.
  static func behind(_ address: String) -> RateLimiter.Client {
    guard address.utf8.contains(UInt8(ascii: ":")) else { return .address(address) }
    var bytes = in6_addr()
    let bare = address.prefix { $0 != "%" }
    guard inet_pton(AF_INET6, String(bare), &bytes) == 1 else { return .address(address) }
    let network = withUnsafeBytes(of: &bytes) { raw in
      raw.starts(with: Self.mappedPrefix) ? Array(raw) : Array(raw.prefix(8))
    }
    return .address(network.map { String($0, radix: 16) }.joined(separator: "."))
  }

  /// `::ffff:0:0/96`: IPv4 addresses in IPv6 notation. Each is a client of its own.
  private static let mappedPrefix: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]
}

/// Finds the client behind trusted proxies: the last address on the request's way that is not a trusted proxy.
struct TrustedProxies: Sendable {
  /// Whether an address belongs to a trusted proxy.
  let isTrusted: @Sendable (String) -> Bool

  /// The address of the client. If the connection comes from a trusted proxy, `Forwarded` (RFC 7239) or
  /// `X-Forwarded-For` name it.
  ///
  /// A proxy usually writes one of the two fields and passes on the other as the client sent it. So if the two name
  /// different clients, neither can be trusted, and the request counts as the proxy's own.
  func client(of request: Request) -> String {
    let proxy = request.remoteAddress
    guard isTrusted(proxy) else { return proxy }
    let told = [Self.forwarded(request.fields), Self.forwardedFor(request.fields)]
      .compactMap { hops in hops.map { client(behind: proxy, along: $0) } }
    guard let first = told.first, told.allSatisfy({ $0 == first }) else { return proxy }
    return first
  }

  private func client(behind proxy: String, along hops: [Substring]) -> String {
    var address = proxy
    for hop in hops.reversed() {
      // If the proxy hides the address or does not know it, the request counts as the proxy's own.
      guard isTrusted(address), let next = Self.address(hop) else { break }
      address = next
    }
    return address
  }

  /// The nodes of `Forwarded`, the client first; nil if the field is missing.
  private static func forwarded(_ fields: HTTPFields) -> [Substring]? {
    fields[.forwarded].map { field in
      split(field[...], at: ",").map { element in
        split(element, at: ";").lazy.map(trimmed).first { $0.prefix(4).lowercased() == "for=" }?
          .dropFirst(4) ?? ""
      }
    }
  }

  /// The nodes of `X-Forwarded-For`, the client first; nil if the field is missing.
  private static func forwardedFor(_ fields: HTTPFields) -> [Substring]? {
    fields[.xForwardedFor].map { $0.split(separator: ",").map(trimmed) }
  }

  /// Splits at a character that is not within a quoted string.
  private static func split(_ text: Substring, at separator: Character) -> [Substring] {
    var isQuoted = false
    return text.split(omittingEmptySubsequences: false) { character in
      if character == "\"" { isQuoted.toggle() }
      return character == separator && !isQuoted
    }
  }

  private static func trimmed(_ text: Substring) -> Substring {
    var text = text.drop { $0 == " " || $0 == "\t" }
    while text.last == " " || text.last == "\t" { text.removeLast() }
    return text
  }

  /// The address of a node without quotes and port; nil if it is not an address.
  private static func address(_ node: Substring) -> String? {
    var text = node
    if text.first == "\"", text.last == "\"", text.count > 1 { text = text.dropFirst().dropLast() }
    if text.first == "[" {
      text = text.dropFirst().prefix { $0 != "]" }
    } else if text.count(where: { $0 == ":" }) == 1 {
      text = text.prefix { $0 != ":" }
    }
    let address = String(text)
    var bytes = in6_addr()
    let isAddress =
      inet_pton(AF_INET, address, &bytes) == 1 || inet_pton(AF_INET6, address, &bytes) == 1
    return isAddress ? address : nil
  }
}
