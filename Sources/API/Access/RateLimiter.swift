internal import Glibc
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
