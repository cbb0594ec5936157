internal import Logging

/// Forgets what has expired, and removes the bytes that nothing refers to any more.
struct Housekeeping: Sendable {
  let store: any JobStore
  let keeper: ImageKeeper
  let board: JobBoard
  let cache: ResponseCache
  let now: WallClock
  let log: Logger
  private static let batch = 256

  /// Tidies once a second until cancelled.
  func run() async {
    while !Task.isCancelled {
      await tidy()
      try? await Task.sleep(for: .seconds(1))
    }
  }

  /// One round: as many batches as there is work for.
  func tidy() async {
    do throws(StoreError) {
      var expired: [JobID]
      repeat {
        expired = try await store.expire(at: now(), count: Self.batch)
        if !expired.isEmpty { board.remove(expired) }
      } while expired.count == Self.batch && !Task.isCancelled
      try await removeAbandonedImages()
      if let failure = await keeper.retry() { throw failure }
      await cache.noteUses()
    } catch {
      log.error("housekeeping failed", metadata: ["error": "\(error)"])
    }
  }

  private func removeAbandonedImages() async throws(StoreError) {
    var abandoned: [ImageDigest]
    repeat {
      abandoned = try await store.abandonedImages(Self.batch)
      await keeper.remove(abandoned)
    } while abandoned.count == Self.batch && !Task.isCancelled
  }
}
