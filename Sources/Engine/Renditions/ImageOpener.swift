internal import Jobs
internal import Logging

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
