package import Settings

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

extension CacheConfiguration {
  /// The configuration keys of these settings.
  package static let settings: [Setting<CacheConfiguration>] = [
    Setting(
      "cache.enabled", \.isEnabled, .boolean,
      "Whether responses are cached; otherwise every job asks its origin."),
    Setting(
      "cache.memory", \.memory, .size(0...(1 << 40)),
      "Maximum bytes of cached images in memory."),
    Setting(
      "cache.disk", \.disk, .size(0 ... .petabyte),
      "Maximum bytes of cached images on disk."),
    Setting(
      "cache.shared", \.isShared, .boolean,
      "Whether owners share cached responses."),
    Setting(
      "cache.default_ttl", \.defaultTTL, .duration(.zero ... .days(3650)),
      "How long a response without freshness information is fresh; 0 for the heuristic of RFC 9111."
    ),
  ]
}
