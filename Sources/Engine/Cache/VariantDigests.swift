internal import Jobs
internal import Synchronization

/// Digests of stored variants that were requested lately, so that variants on popular pages need no lookup in the
/// store. The bytes are in ``ImageMemory``; if they were evicted, the store is asked again.
///
/// A variant's id is derived from all its inputs, so a digest never becomes wrong. At worst its variant is no longer
/// stored.
final class VariantDigests: Sendable {
  private let digests = Mutex(LRUCache<CacheEntry.ID, ImageDigest>(capacity: 16_384))

  func digest(of id: CacheEntry.ID) -> ImageDigest? { digests.withLock { $0.value(for: id) } }

  func set(_ digest: ImageDigest, of id: CacheEntry.ID) {
    _ = digests.withLock { $0.set(digest, for: id) }
  }

  func clear() { digests.withLock { $0.removeAll() } }
}
