/// The size of the cache, and its outcomes since the service started.
public struct CacheCounts: Sendable, Equatable {
  /// Stored responses and variants.
  public var entries = 0
  /// Bytes of their images on disk. Equal images are counted once.
  public var bytes = 0
  /// Bytes of images held in memory.
  public var memoryBytes = 0
  /// Jobs answered with a stored response that was fresh, or with a stale one that the job's cache mode or
  /// the origin permits.
  public var hits = 0
  /// Jobs answered with a stored response that the origin confirmed.
  public var revalidations = 0
  /// Jobs for which the cache had no usable response.
  public var misses = 0

  public init() {}
}
