/// Publishes images so that each is referred to before its bytes are there, and removes none that is.
struct ImageKeeper: Sendable {
  let store: any JobStore
  let images: any ImageStore

  /// Makes a staged image durable for its holder.
  ///
  /// - Parameter limit: of all kept images' bytes; the oldest finished jobs' give way to this one.
  /// - Returns: false when the holder's claim is lost or the task was cancelled: nothing is kept then.
  /// - Throws: `.full` when there is no room even so.
  func keep(
    _ staged: any StagedImage, _ digest: ImageDigest, bytes: Int, for holder: ImageHolder,
    limit: Int
  ) async throws(StoreError) -> Bool {
    var pause = Duration.milliseconds(1)
    while !Task.isCancelled {
      switch try await store.reserve(digest, bytes: bytes, for: holder, limit: limit) {
      case .reserved(let gaveWay):
        try await remove(gaveWay)
        try await staged.publish()
        return true
      case .full: throw .full
      case .claimLost: return false
      case .leaving:
        // Equal bytes are being removed at this moment; that takes as long as an unlink.
        try? await Task.sleep(for: pause)
        pause = min(pause * 2, .milliseconds(100))
      }
    }
    return false
  }

  /// Removes images that the store has marked as leaving.
  func remove(_ leaving: [ImageDigest]) async throws(StoreError) {
    guard !leaving.isEmpty else { return }
    for image in leaving { try await images.remove(image) }
    try await store.forget(leaving)
  }
}
