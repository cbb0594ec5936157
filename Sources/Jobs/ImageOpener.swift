/// Opens images' bytes: what is asked for often comes from memory.
struct ImageOpener: Sendable {
  let memory: ImageMemory
  let images: any ImageStore
  let threads: any ComputeThreads

  /// An image's bytes; nil when they are no longer kept.
  func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    if let bytes = memory.bytes(of: digest) { return StoredBytes(bytes) }
    let stored = try await images.open(digest)
    guard let stored, stored.count <= memory.largest else { return stored }
    return await Task(executorPreference: threads.lane(at: .high)) {
      let bytes = stored.read(at: 0, count: stored.count)
      guard bytes.count == stored.count else { return stored }
      memory.insert(bytes, as: digest)
      return StoredBytes(bytes)
    }.value
  }

  /// The same, nil also where they are harmed.
  func openWhole(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> StoredBytes? {
    if let bytes = memory.bytes(of: digest) { return StoredBytes(bytes) }
    guard try await images.verify(digest, bytes: bytes) else { return nil }
    return try await open(digest)
  }
}
