internal import Jobs
internal import Logging

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
