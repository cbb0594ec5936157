/// The size of the cache, and its outcomes since the service started.
package struct CacheCounts: Sendable, Equatable {
  /// Stored responses and variants.
  package var entries = 0
  /// Bytes of their images on disk. Equal images are counted once.
  package var bytes = 0
  /// Bytes of images held in memory.
  package var memoryBytes = 0
  /// Jobs answered with a stored response that was fresh, or with a stale one that the job's cache mode or
  /// the origin permits.
  package var hits = 0
  /// Jobs answered with a stored response that the origin confirmed.
  package var revalidations = 0
  /// Jobs for which the cache had no usable response.
  package var misses = 0

  package init() {}
}
