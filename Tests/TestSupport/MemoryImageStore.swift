public import Jobs
import Synchronization

/// Keeps images in memory. Its digest is not SHA-256 but tells different bytes apart all the same.
public final class MemoryImageStore: ImageStore {
  private let images = Mutex<[ImageDigest: [UInt8]]>([:])

  public init() {}

  /// What is kept.
  public var digests: Set<ImageDigest> { images.withLock { Set($0.keys) } }

  public func stage() async throws(StoreError) -> any StagedImage { Staged(store: self) }

  public func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    images.withLock { $0[digest] }.map {
      StoredBytes($0)
    }
  }

  public func remove(_ digest: ImageDigest) async throws(StoreError) {
    images.withLock { $0[digest] = nil }
  }

  public func sweep(
    _ isWanted: @Sendable (ImageDigest) async throws(StoreError) -> Bool
  ) async throws(StoreError) -> Int {
    var removed = 0
    for digest in digests where try await !isWanted(digest) {
      try await remove(digest)
      removed += 1
    }
    return removed
  }

  /// The name of these bytes in this store.
  public static func digest(of bytes: [UInt8]) -> ImageDigest {
    var words: [UInt64] = [0xcbf2_9ce4_8422_2325, 1, 2, 3]
    for (index, byte) in bytes.enumerated() {
      words[index % 4] = (words[index % 4] ^ UInt64(byte)) &* 0x100_0000_01b3
    }
    words[0] ^= UInt64(bytes.count)
    return ImageDigest(
      bytes: words.flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> ($0 * 8)) } })!
  }

  private final class Staged: StagedImage {
    private let store: MemoryImageStore
    private let bytes = Mutex<[UInt8]>([])
    init(store: MemoryImageStore) { self.store = store }

    func write(_ bytes: [UInt8]) throws(StoreError) { self.bytes.withLock { $0 += bytes } }
    func finish() -> ImageDigest { MemoryImageStore.digest(of: bytes.withLock { $0 }) }
    func publish() async throws(StoreError) {
      let all = bytes.withLock { $0 }
      store.images.withLock { $0[MemoryImageStore.digest(of: all)] = all }
    }
  }
}
