internal import Jobs
internal import Logging

/// A rendition that was just made.
struct NewRendition: Sendable {
  /// Small, or in a file.
  let bytes: RenderedBytes
  /// The same bytes, for the image store to keep; nil where only `bytes` has them.
  let staged: (any StagedImage)?
}

/// The variants that were rendered before, kept as the cache's responses are: in memory and on disk, and the least
/// recently used of both kinds are evicted.
struct RenditionCache: Sendable {
  let cache: ResponseCache
  let store: any CacheStore & JobStore
  let spool: any ImageSpool
  let opener: ImageOpener
  let space: RenditionSpace
  let keeper: ImageKeeper
  let storage: StorageRoom
  /// Of all kept images, in bytes.
  let storeLimit: Int
  let ids: JobIDSequence
  let now: WallClock
  let log: Logger

  /// What is kept of it; nil when that is nothing, or harmed.
  func bytes(of rendition: Rendition) async -> RenderedBytes? {
    guard cache.isOn else { return nil }
    if let digest = cache.variants.digest(of: rendition.id),
      let bytes = opener.memory.bytes(of: digest)
    {
      cache.used(rendition.id, at: now())
      return RenderedBytes(.memory(bytes), entityTag: digest.entityTag)
    }
    do throws(StoreError) {
      guard let kept = try await store.variant(rendition.id) else { return nil }
      guard let bytes = try await opener.open(kept.digest) else {
        try await store.drop([kept.id])
        return nil
      }
      cache.used(kept.id, at: now())
      cache.variants.note(kept.digest, of: kept.id)
      return RenderedBytes(bytes, entityTag: kept.digest.entityTag)
    } catch {
      log.error("a variant can't be looked up", metadata: ["error": "\(error)"])
      return nil
    }
  }

  /// Whether something of so many bytes may be kept.
  func takes(_ bytes: Int) -> Bool { cache.isOn && bytes <= cache.limit }

  /// Puts bytes that were just rendered where they may wait for their receivers: into a file if they are more than
  /// ``StoredBytes/mostInMemory``. Call it on a thread that may wait for the disk.
  ///
  /// The file has no name once ``NewRendition/staged`` is released, unless it was kept. It takes ``space`` until nobody has
  /// the bytes.
  /// - Parameters:
  ///   - owner: whose share of the space it takes.
  ///   - isKept: whether ``keep(_:of:)`` is likely to follow.
  func stage(
    _ bytes: [UInt8], for owner: Owner, isKept: Bool
  ) async throws(StoreError) -> NewRendition {
    let isLarge = bytes.count > StoredBytes.mostInMemory
    guard isLarge || isKept && takes(bytes.count) else {
      return NewRendition(bytes: RenderedBytes(bytes), staged: nil)
    }
    let staged = try await spool.stage()
    try staged.write(bytes)
    let digest = staged.finish()
    let stored = isLarge ? try staged.bytes() : .memory(bytes)
    let share = isLarge ? space.hold(bytes.count, for: owner) : nil
    return NewRendition(
      bytes: RenderedBytes(stored, entityTag: digest.entityTag, share: share), staged: staged)
  }

  /// Keeps it, if there is room. What is not kept is rendered again.
  func keep(_ new: NewRendition, of rendition: Rendition) async {
    let count = new.bytes.bytes.count
    guard takes(count), !storage.isFull else { return }
    let holder = ids.next(at: now())
    do throws(StoreError) {
      let staged = try await staged(new)
      let kept = StoredVariant(
        id: rendition.id, name: rendition.variant.name, digest: staged.finish(), bytes: count)
      if case .memory(let bytes) = new.bytes.bytes { opener.memory.insert(bytes, as: kept.digest) }
      guard
        try await keeper.keep(staged, kept.digest, bytes: count, as: holder, limit: storeLimit)
      else { return }
      try await store.keep(
        kept, within: cache.limit, releasing: holder, lastUse: cache.lastUse)
      cache.variants.note(kept.digest, of: kept.id)
    } catch {
      log.error("a variant can't be kept", metadata: ["error": "\(error)"])
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
