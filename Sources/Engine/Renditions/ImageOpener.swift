internal import Jobs

/// Opens images' bytes: what is asked for often comes from memory.
struct ImageOpener: Sendable {
  let memory: ImageMemory
  let images: any ImageStore
  let threads: any ComputeThreads
  let losses: ImageLosses

  /// An image's bytes, whole and unharmed; nil when they are no longer kept.
  func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    if let bytes = memory.bytes(of: digest) { return StoredBytes(bytes) }
    guard let stored = try await images.open(digest) else { return await lost(digest) }
    guard stored.count <= memory.largest else { return stored }
    let bytes = await Task(executorPreference: threads.lane(at: .high)) {
      stored.read(at: 0, count: stored.count)
    }.value
    guard bytes.count == stored.count else { return await lost(digest) }
    memory.insert(bytes, as: digest)
    return StoredBytes(bytes)
  }

  private func lost(_ digest: ImageDigest) async -> StoredBytes? {
    await losses.note(digest)
    return nil
  }
}
