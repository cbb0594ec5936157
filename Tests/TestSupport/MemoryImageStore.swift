package import Jobs
import Synchronization

/// Stores images in memory. Its digest is not SHA-256, but differs for different bytes.
package final class MemoryImageStore: ImageStore {
  /// The spool, which is in memory too.
  package let spool = MemoryImageSpool()
  private let images = Mutex<[ImageDigest: [UInt8]]>([:])
  private let room = Mutex(true)
  private let isFailing = Mutex(false)
  private let stuck = Mutex<ImageDigest?>(nil)
  private let removals = Mutex(Removals())

  private struct Removals {
    var areHeld = false
    /// The image whose removal is not held.
    var spared: ImageDigest?
    var waiting = 0
  }

  package init() {}

  /// The stored images.
  package var digests: Set<ImageDigest> { images.withLock { Set($0.keys) } }

  package func put(_ staged: any StagedImage, as name: ImageName) async throws(StoreError) {
    let stored = try staged.bytes()
    let bytes = stored.read(at: 0, count: stored.count)
    images.withLock { $0[name.digest] = bytes }
  }

  package func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    images.withLock { images in
      guard let bytes = images[digest] else { return nil }
      guard Self.digest(of: bytes) == digest else {
        images[digest] = nil
        return nil
      }
      return .memory(bytes)
    }
  }

  package func verify(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> Bool {
    if isFailing.withLock({ $0 }) { throw .unavailable(detail: "requested by the test") }
    return images.withLock { images in
      guard let image = images[digest] else { return false }
      let isWhole = image.count == bytes && Self.digest(of: image) == digest
      if !isWhole { images[digest] = nil }
      return isWhole
    }
  }

  /// Stores an image that no job store refers to, as after a crash.
  /// - Returns: The image's name.
  package func leaveOrphan(_ bytes: [UInt8]) -> ImageDigest {
    let digest = Self.digest(of: bytes)
    images.withLock { $0[digest] = bytes }
    return digest
  }

  /// Sets whether the store fails to verify images.
  package func failVerifying(_ isFailing: Bool) { self.isFailing.withLock { $0 = isFailing } }

  /// Replaces an image's bytes, like a failing disk.
  package func harm(_ digest: ImageDigest, with bytes: [UInt8]) {
    images.withLock { $0[digest] = bytes }
  }

  /// Sets the image whose removal fails.
  package func stick(_ digest: ImageDigest?) { stuck.withLock { $0 = digest } }

  /// Sets whether removals wait, except that of the image `spared`.
  package func holdRemovals(_ areHeld: Bool = true, but spared: ImageDigest? = nil) {
    removals.withLock { ($0.areHeld, $0.spared) = (areHeld, spared) }
  }

  /// The number of removals that wait.
  package var heldRemovals: Int { removals.withLock { $0.waiting } }

  package func remove(_ name: ImageName) async throws(StoreError) {
    removals.withLock { $0.waiting += 1 }
    while removals.withLock({ $0.areHeld && $0.spared != name.digest }), !Task.isCancelled {
      try? await Task.sleep(for: .milliseconds(1))
    }
    removals.withLock { $0.waiting -= 1 }
    if stuck.withLock({ $0 }) == name.digest { throw .unavailable(detail: "requested by the test") }
    images.withLock { $0[name.digest] = nil }
  }

  package func hasRoom() async -> Bool { room.withLock { $0 } }

  /// Sets whether the store reports free space.
  package func setRoom(_ hasRoom: Bool) { room.withLock { $0 = hasRoom } }

  package func sweep(
    _ remove: @Sendable ([ImageName]) async -> Int
  ) async throws(StoreError) -> Int { await remove(digests.map { ImageName($0) }) }

  /// The name of these bytes in this store.
  package static func digest(of bytes: [UInt8]) -> ImageDigest {
    var words: [UInt64] = [0xcbf2_9ce4_8422_2325, 1, 2, 3]
    for (index, byte) in bytes.enumerated() {
      words[index % 4] = (words[index % 4] ^ UInt64(byte)) &* 0x100_0000_01b3
    }
    words[0] ^= UInt64(bytes.count)
    return ImageDigest(
      bytes: words.flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> ($0 * 8)) } })!
  }
}

/// Spools images in memory.
package final class MemoryImageSpool: ImageSpool {
  /// The first bytes of an image.
  private struct Partial {
    let response: PartialResponse
    let bytes: [UInt8]
  }

  private let partials = Mutex<[Fingerprint: Partial]>([:])

  package init() {}

  package func stage() async throws(StoreError) -> any StagedImage { Staged(spool: self) }

  package func removeUnfinished() async throws(StoreError) -> Int { 0 }

  package func takePartial(_ key: Fingerprint) async throws(StoreError) -> PartialTransfer? {
    guard let partial = partials.withLock({ $0.removeValue(forKey: key) }) else { return nil }
    return PartialTransfer(
      response: partial.response, count: partial.bytes.count, bytes: .memory(partial.bytes),
      staged: Staged(spool: self, bytes: partial.bytes, identity: (key, partial.response)))
  }

  package func deletePartial(_ key: Fingerprint) async throws(StoreError) {
    partials.withLock { $0[key] = nil }
  }

  package var partialBytes: Int {
    partials.withLock { $0.values.reduce(0) { $0 + $1.bytes.count } }
  }

  /// Stores the first bytes of an image unless some are stored, like an interrupted transfer.
  package func keep(_ bytes: [UInt8], of response: PartialResponse, for key: Fingerprint) {
    guard !bytes.isEmpty else { return }
    partials.withLock { $0[key] = Partial(response: response, bytes: bytes) }
  }

  private final class Staged: StagedImage {
    private struct State {
      var bytes: [UInt8]
      var identity: (key: Fingerprint, response: PartialResponse)?
    }

    private let spool: MemoryImageSpool
    private let state: Mutex<State>

    init(
      spool: MemoryImageSpool, bytes: [UInt8] = [],
      identity: sending (key: Fingerprint, response: PartialResponse)? = nil
    ) {
      self.spool = spool
      state = Mutex(State(bytes: bytes, identity: identity))
    }

    func write(_ bytes: [UInt8]) throws(StoreError) { state.withLock { $0.bytes += bytes } }

    func finish() -> ImageDigest { MemoryImageStore.digest(of: state.withLock { $0.bytes }) }

    var content: [UInt8]? { state.withLock { $0.bytes } }

    func bytes() throws(StoreError) -> StoredBytes { .memory(state.withLock { $0.bytes }) }

    func identify(_ key: Fingerprint, _ response: PartialResponse) {
      state.withLock { $0.identity = (key, response) }
    }

    func keepPartial() async throws(StoreError) {
      let (bytes, identity) = state.withLock { ($0.bytes, $0.identity) }
      guard let identity else { return }
      spool.keep(bytes, of: identity.response, for: identity.key)
    }
  }
}
