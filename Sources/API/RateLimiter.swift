internal import Glibc
internal import Jobs
internal import Synchronization

/// One client's allowance: a rule without a clock.
struct TokenBucket: Sendable {
  private var level: Double
  private var filledAt: ContinuousClock.Instant

  /// A full bucket.
  init(_ limit: RateLimit, at now: ContinuousClock.Instant) {
    level = limit.burst
    filledAt = now
  }

  /// Takes one request's worth, where there is one.
  mutating func take(_ limit: RateLimit, at now: ContinuousClock.Instant) -> Allowance {
    let passed = (now - filledAt).components
    let seconds = Double(passed.seconds) + Double(passed.attoseconds) * 1e-18
    level = min(limit.burst, level + max(0, seconds) * limit.requestsPerSecond)
    filledAt = now
    guard level >= 1 else {
      return Allowance(limit, level: level, wait: (1 - level) / limit.requestsPerSecond)
    }
    level -= 1
    return Allowance(limit, level: level, wait: nil)
  }
}

/// What a request found, and left, of its client's allowance.
struct Allowance: Sendable {
  private let limit: RateLimit
  private let level: Double
  /// Nil where the client may ask; else the seconds until it may.
  let wait: Double?

  init(_ limit: RateLimit, level: Double, wait: Double?) {
    (self.limit, self.level, self.wait) = (limit, level, wait)
  }

  /// `RateLimit-Policy`, in the form of draft-ietf-httpapi-ratelimit-headers-10: so many requests in so many seconds.
  var policy: String {
    "\"requests\";q=\(Int(limit.burst));w=\(Self.whole(limit.burst / limit.requestsPerSecond))"
  }

  /// `RateLimit`: so many are left, and in so many seconds all of them are there again.
  var state: String {
    let missing = (limit.burst - level) / limit.requestsPerSecond
    return "\"requests\";r=\(Int(level));t=\(Self.whole(missing))"
  }

  private static func whole(_ seconds: Double) -> Int { Int(min(seconds, 1e9).rounded(.up)) }
}

/// A bucket for each of the clients that asked last. Who is forgotten starts with a full one, as every new client does.
final class RateLimiter: Sendable {
  /// Whose allowance it is.
  enum Client: Hashable, Sendable {
    case owner(Owner)
    case address(String)
  }

  private let buckets: Mutex<LRUCache<Client, TokenBucket>>

  /// - Parameter capacity: clients remembered.
  init(capacity: Int = 20_000) { buckets = Mutex(LRUCache(capacity: capacity)) }

  func take(
    _ client: Client, _ limit: RateLimit, at now: ContinuousClock.Instant = .now
  ) -> Allowance {
    buckets.withLock { buckets in
      var bucket = buckets.peek(client) ?? TokenBucket(limit, at: now)
      let allowance = bucket.take(limit, at: now)
      buckets.set(bucket, for: client)
      return allowance
    }
  }

  /// How many clients are remembered.
  var count: Int { buckets.withLock { $0.count } }
}

extension RateLimiter.Client {
  /// The client behind an address. One holder of an IPv6 network has 2^64 addresses of it: a /64 counts as one.
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

  /// `::ffff:0:0/96`: IPv4 addresses in IPv6's form, each a client of its own.
  private static let mappedPrefix: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]
}
