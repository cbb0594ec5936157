internal import Jobs
internal import Synchronization

/// Bytes of images in memory, least recently used evicted first: the cache in front of the disk.
final class ImageMemory: Sendable {
  private let images: Mutex<LRUCache<ImageDigest, [UInt8]>>
  /// Bytes of the largest image that is cached here, so that one image does not evict all others. Larger ones are sent
  /// from their files by the kernel.
  let largest: Int

  /// - Parameter capacity: in bytes.
  init(capacity: Int) {
    largest = min(capacity / 8, StoredBytes.mostInMemory)
    images = Mutex(LRUCache(capacity: capacity))
  }

  var bytes: Int { images.withLock { $0.cost } }

  func contains(_ digest: ImageDigest) -> Bool { images.withLock { $0.peek(digest) != nil } }

  func bytes(of digest: ImageDigest) -> [UInt8]? { images.withLock { $0.value(for: digest) } }

  func insert(_ bytes: [UInt8], as digest: ImageDigest) {
    guard bytes.count <= largest else { return }
    // The evicted bytes are freed after the lock is released.
    _ = images.withLock { $0.set(bytes, for: digest, cost: max(1, bytes.count)) }
  }

  func remove(_ digest: ImageDigest) { _ = images.withLock { $0.remove(digest) } }

  func clear() { images.withLock { $0.removeAll() } }
}
