/// The operator's settings of the cache.
package struct CacheConfiguration: Sendable, Equatable {
  /// Whether responses are cached.
  package var isEnabled = true
  /// Bytes of images cached in memory.
  package var memory = 100_000_000
  /// Bytes of cached images on disk.
  package var disk = 1_000_000_000
  /// Whether a job may be answered with a response that another owner's job fetched.
  package var isShared = true
  /// Freshness of responses that state none; zero: use the heuristics of RFC 9111 section 4.2.2.
  package var defaultTTL: Duration = .seconds(86_400)

  package init() {}
}
