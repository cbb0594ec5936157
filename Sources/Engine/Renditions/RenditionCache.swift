internal import Jobs
internal import Logging

/// The variants that were rendered before, kept as the cache's responses are: in memory and on disk, and the least
/// recently used of both kinds are evicted.
struct RenditionCache: Sendable {
  let cache: ResponseCache
  let store: any CacheStore & JobStore
  let spool: any ImageSpool
  let opener: ImageOpener
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

  /// Keeps it, if there is room. What is not kept is rendered again.
  func keep(_ bytes: [UInt8], of rendition: Rendition) async {
    guard takes(bytes.count), !storage.isFull else { return }
    let holder = ids.next(at: now())
    do throws(StoreError) {
      let staged = try await spool.stage()
      try staged.write(bytes)
      let kept = StoredVariant(
        id: rendition.id, name: rendition.variant.name, digest: staged.finish(),
        bytes: bytes.count)
      opener.memory.insert(bytes, as: kept.digest)
      guard
        try await keeper.keep(
          staged, kept.digest, bytes: bytes.count, as: holder, limit: storeLimit)
      else { return }
      try await store.keep(
        kept, within: cache.limit, releasing: holder, lastUse: cache.lastUse)
      cache.variants.note(kept.digest, of: kept.id)
    } catch {
      log.error("a variant can't be kept", metadata: ["error": "\(error)"])
      await keeper.release(holder)
    }
  }
}
