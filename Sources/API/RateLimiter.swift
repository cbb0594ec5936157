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

  /// Takes one request's worth.
  /// - Returns: nil when there was one, else the seconds until there will be.
  mutating func take(_ limit: RateLimit, at now: ContinuousClock.Instant) -> Double? {
    let passed = (now - filledAt).components
    let seconds = Double(passed.seconds) + Double(passed.attoseconds) * 1e-18
    level = min(limit.burst, level + max(0, seconds) * limit.requestsPerSecond)
    filledAt = now
    guard level >= 1 else { return (1 - level) / limit.requestsPerSecond }
    level -= 1
    return nil
  }
}

/// A bucket for each of the clients that asked last. Who is forgotten starts with a full one, as every new client does.
final class RateLimiter: Sendable {
  /// Whose allowance it is.
  enum Client: Hashable, Sendable {
    case token(Int)
    case address(String)
  }

  private let limit: RateLimit
  private let buckets: Mutex<LRUCache<Client, TokenBucket>>

  /// - Parameter capacity: clients remembered.
  init(_ limit: RateLimit, capacity: Int = 20_000) {
    self.limit = limit
    buckets = Mutex(LRUCache(capacity: capacity))
  }

  /// - Returns: nil when the client may ask, else the seconds until it may.
  func take(_ client: Client, at now: ContinuousClock.Instant = .now) -> Double? {
    buckets.withLock { buckets in
      var bucket = buckets.peek(client) ?? TokenBucket(limit, at: now)
      let wait = bucket.take(limit, at: now)
      buckets.set(bucket, for: client)
      return wait
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
