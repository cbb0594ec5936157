internal import Jobs
internal import Logging

/// Opens images' bytes: those that are asked for often come from memory. Reads files on the decode threads.
struct ImageOpener: Sendable {
  let memory: ImageMemory
  let images: any ImageStore
  let threads: any ComputeThreads
  let losses: ImageLosses

  /// An image's bytes, whole and unharmed; nil when they are no longer kept.
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
    await losses.note(digest)
    return nil
  }
}

/// What follows when an image's bytes turn out to be gone or harmed.
struct ImageLosses: Sendable {
  let keeper: ImageKeeper
  let cache: ResponseCache
  let snapshots: JobSnapshots
  let views: Views
  let log: Logger

  /// Its jobs lose it, and the cache forgets it and what was made of it: whoever asks again has it fetched anew.
  func note(_ image: ImageDigest) async {
    guard let jobs = await keeper.lose(image) else { return }
    log.warning(
      "an image's bytes are gone or harmed: it is kept no more",
      metadata: ["image": "\(image.hex)", "jobs": "\(jobs.count)"])
    cache.memory.remove(image)
    snapshots.lose(image, of: jobs)
    views.clear()
    await cache.forgetVariants(of: image)
  }
}
