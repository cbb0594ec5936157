/// What the cache holds and how it did since the service started.
public struct CacheCounts: Sendable, Equatable {
  /// Stored responses and variants.
  public var entries = 0
  /// Their images' bytes on disk, equal images counted once.
  public var bytes = 0
  /// Bytes of images held in memory.
  public var memoryBytes = 0
  /// Jobs answered with a fresh stored response, or with a stale one as their mode or the origin permits.
  public var hits = 0
  /// Jobs answered with a stored response that the origin confirmed.
  public var revalidations = 0
  /// Jobs that the cache had nothing for.
  public var misses = 0

  /// Nothing yet.
  public init() {}
}
