/// What the operator says of the cache.
public struct CacheConfiguration: Sendable, Equatable {
  /// Whether anything is cached.
  public var isEnabled = true
  /// Bytes of images held in memory.
  public var memory = 100_000_000
  /// Bytes of images kept on disk.
  public var disk = 1_000_000_000
  /// Whether one owner may be answered from what another one fetched.
  public var isShared = true
  /// Freshness of a response that says nothing of its own; zero leaves it to the heuristics of RFC 9111 section 4.2.2.
  public var defaultTTL: Duration = .seconds(86_400)

  /// The defaults.
  public init() {}
}
