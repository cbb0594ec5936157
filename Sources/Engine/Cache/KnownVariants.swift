internal import Jobs
internal import Synchronization

/// Which bytes kept variants are, of those that were asked for lately: what pages show again and again needn't be looked
/// up in the store. The bytes themselves are the image memory's, and what is gone from there is looked up.
///
/// A variant's name says all that it was made of, so an entry is never wrong: at the most its variant is kept no more.
final class KnownVariants: Sendable {
  private let digests = Mutex(LRUCache<CacheEntry.ID, ImageDigest>(capacity: 16_384))

  func digest(of id: CacheEntry.ID) -> ImageDigest? { digests.withLock { $0.value(for: id) } }

  func note(_ digest: ImageDigest, of id: CacheEntry.ID) {
    _ = digests.withLock { $0.set(digest, for: id) }
  }

  func clear() { digests.withLock { $0.removeAll() } }
}
