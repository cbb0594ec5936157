internal import Jobs
internal import Logging
internal import Synchronization

/// A rendition that was just made, not stored yet.
struct NewRendition: Sendable {
  /// In memory if small, otherwise in a file.
  let bytes: RenderedBytes
  /// The same bytes, ready to be moved to the image store; nil if there is no file yet.
  let staged: (any StagedImage)?
}

/// Stores rendered variants, in memory and on disk, as the cache stores responses. The least recently used of both are
/// evicted.
struct RenditionCache: Sendable {
  let cache: ResponseCache
  let store: any CacheStore & JobStore
  let spool: any ImageSpool
  let opener: ImageOpener
  let space: RenditionSpace
  let keeper: ImageLifecycle
  let storage: StorageState
  /// Limit for the bytes of all stored images.
  let storeLimit: Int
  let ids: JobIDSequence
  let now: WallClock
  let log: Logger

  /// Returns the stored bytes of a rendition; nil if there are none, or if they are corrupt.
  func bytes(of rendition: Rendition) async -> RenderedBytes? {
    guard cache.isOn else { return nil }
    if let digest = cache.variants.digest(of: rendition.id),
      let bytes = opener.memory.bytes(of: digest)
    {
      cache.recordUse(of: rendition.id, at: now())
      return RenderedBytes(.memory(bytes), entityTag: digest.entityTag)
    }
    do throws(StoreError) {
      guard let kept = try await store.variant(rendition.id) else { return nil }
      guard let bytes = try await opener.open(kept.digest) else {
        try await store.delete([kept.id])
        return nil
      }
      cache.recordUse(of: kept.id, at: now())
      cache.variants.set(kept.digest, of: kept.id)
      return RenderedBytes(bytes, entityTag: kept.digest.entityTag)
    } catch {
      log.error("failed to look up a variant", metadata: ["error": "\(error)"])
      return nil
    }
  }

  /// Whether something of this size may be stored.
  func mayStore(_ bytes: Int) -> Bool { cache.isOn && bytes <= cache.limit }

  /// Prepares rendered bytes for delivery to clients: in a file if there are more than ``StoredBytes/mostInMemory``.
  /// Call it on a thread that may block on the disk.
  ///
  /// The file is deleted when ``NewRendition/staged`` is released, unless it was stored; it can be read as long as it
  /// is open. It uses ``space`` until the bytes are released.
  /// - Parameters:
  ///   - owner: the owner whose share of the space is used.
  ///   - isKept: whether ``save(_:of:)`` is likely to follow.
  func stage(
    _ bytes: [UInt8], for owner: Owner, isKept: Bool
  ) async throws(StoreError) -> NewRendition {
    let isLarge = bytes.count > StoredBytes.mostInMemory
    guard isLarge || isKept && mayStore(bytes.count) else {
      return NewRendition(bytes: RenderedBytes(bytes), staged: nil)
    }
    let staged = try await spool.stage()
    try staged.write(bytes)
    let digest = staged.finish()
    let stored = isLarge ? try staged.bytes() : .memory(bytes)
    let share = isLarge ? space.reserve(bytes.count, for: owner) : nil
    return NewRendition(
      bytes: RenderedBytes(stored, entityTag: digest.entityTag, share: share), staged: staged)
  }

  /// Stores the rendition if there is space. Otherwise the next request renders it again.
  func save(_ new: NewRendition, of rendition: Rendition) async {
    let count = new.bytes.bytes.count
    guard mayStore(count), !storage.isFull else { return }
    let holder = ids.next(at: now())
    do throws(StoreError) {
      let staged = try await staged(new)
      let kept = StoredVariant(
        id: rendition.id, name: rendition.variant.name, digest: staged.finish(), bytes: count)
      if case .memory(let bytes) = new.bytes.bytes { opener.memory.insert(bytes, as: kept.digest) }
      guard
        try await keeper.save(staged, kept.digest, bytes: count, as: holder, limit: storeLimit)
      else { return }
      try await store.save(
        kept, within: cache.limit, releasing: holder, lastUse: cache.lastUse)
      cache.variants.set(kept.digest, of: kept.id)
    } catch {
      log.error("failed to store a variant", metadata: ["error": "\(error)"])
      await keeper.release(holder)
    }
  }

  private func staged(_ new: NewRendition) async throws(StoreError) -> any StagedImage {
    if let staged = new.staged { return staged }
    let staged = try await spool.stage()
    let bytes = new.bytes.bytes
    try staged.write(bytes.read(at: 0, count: bytes.count))
    return staged
  }
}

/// The disk space of renditions that are being sent to clients, shared among owners. It is limited because a slow
/// client can hold a rendition for long.
final class RenditionSpace: Sendable {
  private let bounds: ShareBounds
  private let now: WallClock
  private let shares = Mutex(FairShare<Owner>())

  /// - Parameter capacity: in bytes. Renditions that are being made when it is reached may exceed it.
  init(_ capacity: Int, now: @escaping WallClock) {
    (bounds, self.now) = (ShareBounds(max(1, capacity)), now)
  }

  /// Whether a rendition may be made for this owner.
  func hasRoom(for owner: Owner) -> Bool {
    shares.withLock { $0.hasCapacity(for: 1, of: owner, within: bounds, at: now()) }
  }

  /// Reserves space for rendered bytes, even if that exceeds the limit.
  /// - Returns: the reservation, which ends when it is released.
  func reserve(_ bytes: Int, for owner: Owner) -> SpaceReservation {
    shares.withLock { $0.acquireUnchecked(bytes, for: owner) }
    return SpaceReservation(of: self, bytes, owner)
  }

  final class SpaceReservation: Sendable {
    private let space: RenditionSpace
    private let bytes: Int
    private let owner: Owner

    fileprivate init(of space: RenditionSpace, _ bytes: Int, _ owner: Owner) {
      (self.space, self.bytes, self.owner) = (space, bytes, owner)
    }

    deinit { space.shares.withLock { $0.release(bytes, of: owner) } }
  }
}

/// Opens the bytes of images. Images that are often read come from memory. Files are read on the decode threads.
struct ImageOpener: Sendable {
  let memory: ImageMemory
  let images: any ImageStore
  let threads: any ComputeThreads
  let losses: ImageLosses

  /// Returns the bytes of an image, complete and verified; nil if they are no longer stored.
  func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    if let bytes = memory.bytes(of: digest) { return .memory(bytes) }
    guard let stored = try await images.open(digest) else { return await lost(digest) }
    guard stored.count <= memory.largest else { return stored }
    let bytes = await Task(executorPreference: threads.lane(at: .high)) {
      stored.read(at: 0, count: stored.count)
    }.value
    guard bytes.count == stored.count else { return await lost(digest) }
    memory.insert(bytes, as: digest)
    return .memory(bytes)
  }

  private func lost(_ digest: ImageDigest) async -> StoredBytes? {
    await losses.handleLoss(of: digest)
    return nil
  }
}

/// Handles images whose bytes turn out to be missing or corrupt.
struct ImageLosses: Sendable {
  let keeper: ImageLifecycle
  let cache: ResponseCache
  let snapshots: JobSnapshots
  let views: ViewJobs
  let log: Logger

  /// Removes the image from its jobs and from the cache, with its variants. The next request fetches it again.
  func handleLoss(of image: ImageDigest) async {
    guard let jobs = await keeper.removeLost(image) else { return }
    log.warning(
      "stored image is missing or corrupt, removed it from its jobs",
      metadata: ["image": "\(image.hex)", "jobs": "\(jobs.count)"])
    cache.memory.remove(image)
    snapshots.markLost(image, of: jobs)
    views.clear()
    await cache.deleteVariants(of: image)
  }
}
