internal import Jobs
internal import Logging
internal import Synchronization

/// Publishes images so that each is referred to before its bytes are there, and removes none that is.
final class ImageKeeper: Sendable {
  private let store: any ImageReferences
  private let images: any ImageStore
  private let lease: Lease
  /// Images marked as leaving whose bytes are still to be removed, and whether somebody is at it.
  private let pendingDeletion = Mutex<[ImageDigest: Bool]>([:])
  /// Holders whose reservations have still to end.
  private let unreleased = Mutex<Set<JobID>>([])
  private let log: Logger

  init(store: any ImageReferences, images: any ImageStore, lease: Lease, log: Logger) {
    self.store = store
    self.images = images
    self.lease = lease
    self.log = log
  }

  /// Makes a staged image durable for its holder.
  ///
  /// - Parameter limit: of all kept images' bytes; the oldest finished jobs' give way to this one.
  /// - Returns: false when the task was cancelled: nothing is kept then.
  /// - Throws: `.full` when there is no room even so.
  func keep(
    _ staged: any StagedImage, _ digest: ImageDigest, bytes: Int, as holder: JobID,
    limit: Int
  ) async throws(StoreError) -> Bool {
    guard try await reserve(digest, bytes: bytes, as: holder, limit: limit) else { return false }
    try await staged.publish()
    return true
  }

  /// Sees to it that an image which is kept already stays.
  /// - Returns: false when it is just leaving.
  func hold(_ digest: ImageDigest, bytes: Int, as holder: JobID) async throws(StoreError) -> Bool {
    switch try await ask(digest, bytes: bytes, as: holder, limit: .max) {
    case .reserved: true
    case .pendingDeletion, .full: false
    }
  }

  /// Lets an image go whose bytes are gone or harmed.
  ///
  /// - Returns: the jobs that had it; nil where it was known to be gone, or something needs it still: its bytes may be
  ///   on their way just now.
  func lose(_ digest: ImageDigest) async -> [JobID]? {
    guard let jobs = try? await store.lose(digest, for: lease.instance) else { return nil }
    await remove([digest])
    return jobs
  }

  private func reserve(
    _ digest: ImageDigest, bytes: Int, as holder: JobID, limit: Int
  ) async throws(StoreError) -> Bool {
    var pause = Duration.milliseconds(1)
    while true {
      switch try await ask(digest, bytes: bytes, as: holder, limit: limit) {
      case .reserved(let evicted):
        await remove(evicted)
        return true
      case .full: throw .full
      case .pendingDeletion:
        // Equal bytes are being removed at this moment; that takes as long as an unlink.
        if Task.isCancelled { return false }
        try? await Task.sleep(for: pause)
        pause = min(pause * 2, .milliseconds(100))
      }
    }
  }

  private func ask(
    _ digest: ImageDigest, bytes: Int, as holder: JobID, limit: Int
  ) async throws(StoreError) -> Reservation {
    try await lease.holding { instance throws(StoreError) in
      try await store.reserve(digest, bytes: bytes, as: holder, of: instance, limit: limit)
    }
  }

  /// Ends a holder's reservations; where the store can't do that now, ``retry()`` does.
  func release(_ holder: JobID) async {
    do throws(StoreError) { try await store.release(holder) } catch {
      log.error("a reservation can't be ended", metadata: ["error": "\(error)"])
      unreleased.withLock { _ = $0.insert(holder) }
    }
  }

  /// Removes images that the store has marked as leaving. What can't be removed now is tried again by ``retry()``.
  func remove(_ images: [ImageDigest]) async {
    guard !images.isEmpty else { return }
    pendingDeletion.withLock { pendingDeletion in
      for image in images { pendingDeletion[image] = false }
    }
    _ = await removeAgain()
  }

  /// Removes what is left to remove, and ends what is left to end.
  /// - Returns: why something could not be, if so.
  func retry() async -> StoreError? {
    await releaseAgain()
    return await removeAgain()
  }

  private func releaseAgain() async {
    let holders = unreleased.withLock { holders in
      defer { holders = [] }
      return holders
    }
    for holder in holders { await release(holder) }
  }

  private func removeAgain() async -> StoreError? {
    // Only one may be at an image: once forgotten it may come back, and another must not remove it then.
    let mine = pendingDeletion.withLock { pendingDeletion in
      let free = pendingDeletion.filter { !$0.value }.map(\.key)
      for image in free { pendingDeletion[image] = true }
      return free
    }
    guard !mine.isEmpty else { return nil }
    var removed: [ImageDigest] = []
    var failure: StoreError?
    do throws(StoreError) {
      for image in mine {
        try await images.remove(image)
        removed.append(image)
      }
    } catch {
      failure = error
    }
    // Out of the list before the store lets them come back.
    let done = Set(removed)
    pendingDeletion.withLock { pendingDeletion in
      for image in mine { pendingDeletion[image] = done.contains(image) ? nil : false }
    }
    do throws(StoreError) { try await store.forget(removed) } catch {
      failure = error
      pendingDeletion.withLock { pendingDeletion in
        for image in done { pendingDeletion[image] = false }
      }
    }
    return failure
  }
}
