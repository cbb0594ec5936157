internal import Jobs
internal import Logging
internal import Synchronization

/// Stores images and deletes images that nothing refers to. A reference to an image is stored before its bytes, so that
/// no other instance deletes them.
///
/// Input: staged images to store, and images that the store marked for deletion. Output: bytes in the image store, and
/// deletions reported back to the store. Runs on the caller's thread; ``Housekeeping`` calls ``retry(within:)`` once a
/// second.
final class ImageLifecycle: Sendable {
  private let store: any ImageReferences
  private let images: any ImageStore
  private let uploads: UploadQuota
  private let lease: Lease
  /// Images marked for deletion whose bytes are still to be removed.
  private let pendingDeletion = Mutex<[ImageName: Pending]>([:])
  /// The search for marks in the store. If both are needed, it is locked before `pendingDeletion`.
  private let markSearch = Mutex(MarkSearch())
  /// Holders whose reservations still have to be released.
  private let unreleased = Mutex<Set<JobID>>([])
  private let log: Logger
  private static let searchInterval = Duration.seconds(10)
  private static let searchSize = 256
  /// Maximum number of images that wait for ``retry(within:)``.
  static let maxPending = 10_000
  /// Images that are deleted before the next report to the store. An image that is stored again waits for at most this
  /// many deletions.
  static let portion = 64
  /// Deletions that run at the same time.
  private static let atOnce = 8

  private struct Pending {
    /// The instance that the image is marked for.
    let instance: Instance
    /// Whether a task is deleting the bytes.
    var isUnderWay = false
    /// Number of failed attempts.
    var failures = 0
    /// Whether the bytes are already deleted and only the store has to learn of it. A file with that digest may belong
    /// to a new copy, so it must not be deleted again.
    var areBytesGone = false
  }

  /// The search for images that the store marked for deletion, although the answer with their names was lost.
  private struct MarkSearch {
    /// Time of the next search.
    var next = ContinuousClock.now
    /// Images whose deletion is being reported to the store.
    var forgetting: Set<ImageName> = []
    /// Images whose deletion was reported since the search began; nil: no search is under way.
    var forgotten: Set<ImageName>?
    /// Images that the last search found. If a delayed answer names them again, they are ignored.
    var found: Set<ImageName> = []

    /// Whether the image may have been stored again since the search began.
    func wasForgotten(_ image: ImageName) -> Bool {
      forgetting.contains(image) || forgotten?.contains(image) ?? false
    }
  }

  init(
    store: any ImageReferences, images: any ImageStore, uploads: UploadQuota, lease: Lease,
    log: Logger
  ) {
    self.store = store
    self.images = images
    self.uploads = uploads
    self.lease = lease
    self.log = log
  }

  /// Bytes that stored images may use, in addition to uploads that are being received.
  var limit: Int { uploads.left }

  /// Stores a staged image durably and reserves it for its holder.
  ///
  /// - Parameter limit: for the bytes of all stored images. Images of the oldest finished jobs are evicted to make
  ///   room.
  /// - Returns: false if the task was cancelled; nothing is stored then.
  /// - Throws: `.full` if eviction does not make enough room.
  func save(
    _ staged: any StagedImage, _ digest: ImageDigest, bytes: Int, as holder: JobID,
    limit: Int
  ) async throws(StoreError) -> Bool {
    let name = try await reserve(digest, bytes: bytes, as: holder, limit: limit)
    guard let name else { return false }
    try await images.put(staged, as: name)
    return true
  }

  /// Reserves a stored image, so that it is not deleted.
  /// - Returns: false if its deletion is already pending.
  func reserveStored(_ digest: ImageDigest, bytes: Int, as holder: JobID) async throws(StoreError)
    -> Bool
  {
    switch try await requestReservation(digest, bytes: bytes, as: holder, limit: .max) {
    case .reserved: true
    case .pendingDeletion, .incomplete, .full: false
    }
  }

  /// Removes an image whose bytes are missing or corrupt.
  ///
  /// - Returns: the jobs that had it. Nil if the image is unknown, or something still needs it and its bytes may be
  ///   about to arrive.
  func removeLost(_ digest: ImageDigest) async -> [JobID]? {
    guard let lost = try? await store.markLost(digest, for: lease.instance) else { return nil }
    if let name = lost.name { await remove([name]) }
    return lost.jobs
  }

  /// - Returns: the name to store the bytes under; nil if the task was cancelled.
  private func reserve(
    _ digest: ImageDigest, bytes: Int, as holder: JobID, limit: Int
  ) async throws(StoreError) -> ImageName? {
    var pause = Duration.milliseconds(1)
    while true {
      switch try await requestReservation(digest, bytes: bytes, as: holder, limit: limit) {
      case .reserved(let name, let evicted):
        await remove(evicted)
        return name
      case .full: throw .full
      case .incomplete(let evicted): await remove(evicted)
      // The same bytes are about to be deleted. Delete them now, unless another task is doing it, then reserve again.
      case .pendingDeletion: _ = await deletePending([digest])
      }
      if Task.isCancelled { return nil }
      try? await Task.sleep(for: pause)
      pause = min(pause * 2, .milliseconds(100))
    }
  }

  private func requestReservation(
    _ digest: ImageDigest, bytes: Int, as holder: JobID, limit: Int
  ) async throws(StoreError) -> Reservation {
    try await lease.withLease { instance throws(StoreError) in
      try await store.reserve(digest, bytes: bytes, as: holder, of: instance, limit: limit)
    }
  }

  /// Releases a holder's reservations. If the store fails, ``retry(within:)`` tries again.
  func release(_ holder: JobID) async {
    do throws(StoreError) { try await store.release(holder) } catch {
      log.error("failed to release a reservation", metadata: ["error": "\(error)"])
      unreleased.withLock { _ = $0.insert(holder) }
    }
  }

  /// Deletes images that the store has marked for deletion. If a deletion fails, ``retry(within:)`` tries again, but
  /// only under the same lease. After the lease ends, another instance may delete the images or use them again.
  ///
  /// Other pending images are not touched: after an outage of the object store there can be many.
  func remove(_ images: [ImageName]) async {
    guard !images.isEmpty else { return }
    addPending(images)
    _ = await deletePending(Set(images.map(\.digest)))
  }

  /// Leaves the deletion of images to the next ``retry(within:)``, for callers that must not wait for an object store.
  /// Deletes them now if too many are waiting already, so that new images don't arrive faster than old ones are
  /// deleted.
  func removeLater(_ images: [ImageName]) async {
    guard !images.isEmpty else { return }
    addPending(images)
    if pendingDeletion.withLock({ $0.count }) > Self.maxPending { await remove(images) }
  }

  private func addPending(_ images: [ImageName]) {
    markSearch.withLock { look in
      addPending(images.filter { !look.found.contains($0) }, as: Pending(instance: lease.instance))
    }
  }

  private func addPending(_ images: [ImageName], as new: Pending) {
    pendingDeletion.withLock { pendingDeletion in
      for image in images { pendingDeletion[image] = pendingDeletion[image] ?? new }
    }
  }

  /// Deletes pending images and releases pending reservations.
  ///
  /// - Parameter time: no further portion is started after this time; the next call continues.
  /// - Returns: the error if something failed.
  func retry(within time: Duration = .seconds(1)) async -> StoreError? {
    let end = ContinuousClock.now + time
    await retryReleases()
    let failure = await findLostMarks()
    return await deletePending(until: end) ?? failure
  }

  /// Finds images that are marked for this instance although it never received their names, because the store's answer
  /// was lost.
  ///
  /// An image that another task has deleted since the search began may have been stored again under the same file name.
  /// It is skipped, so that the new copy is not deleted.
  private func findLostMarks() async -> StoreError? {
    let isDue = markSearch.withLock { look in
      guard look.forgotten == nil, look.next <= .now else { return false }
      look.next = .now + Self.searchInterval
      look.forgotten = []
      return true
    }
    guard isDue else { return nil }
    defer { markSearch.withLock { $0.forgotten = nil } }
    do throws(StoreError) {
      let instance = lease.instance
      let marked = try await store.imagesPendingDeletion(Self.searchSize, of: instance)
      markSearch.withLock { look in
        let left = marked.filter { !look.wasForgotten($0) }
        look.found = Set(left)
        addPending(left, as: Pending(instance: instance))
      }
      return nil
    } catch {
      return error
    }
  }

  private func retryReleases() async {
    let holders = unreleased.withLock { holders in
      defer { holders = [] }
      return holders
    }
    for holder in holders { await release(holder) }
  }

  /// Deletes pending images, one portion after the other.
  ///
  /// - Parameters:
  ///   - wanted: the images to delete; nil: all. Digests, because a caller that stores an image again does not know the
  ///     name of the copy to delete.
  ///   - end: time after which no further portion is started; nil: no limit.
  private func deletePending(
    _ wanted: Set<ImageDigest>? = nil, until end: ContinuousClock.Instant? = nil
  ) async -> StoreError? {
    let instance = lease.instance
    pendingDeletion.withLock { pendingDeletion in
      pendingDeletion = pendingDeletion.filter {
        $0.value.isUnderWay || $0.value.instance == instance
      }
    }
    while lease.instance == instance {
      let portion = nextPortion(of: wanted, markedFor: instance)
      guard !portion.isEmpty else { return nil }
      if let failure = await remove(portion, markedFor: instance) { return failure }
      if let end, end <= .now || Task.isCancelled { return nil }
    }
    return nil
  }

  /// Returns the images to delete next. Only one task may delete an image: after the store has forgotten it, a job may
  /// store it again, and a second task would delete the new copy. Images that failed before come last.
  private func nextPortion(
    of wanted: Set<ImageDigest>?, markedFor instance: Instance
  ) -> [ImageName] {
    pendingDeletion.withLock { pendingDeletion in
      var portion: [ImageName] = []
      var failed: [(image: ImageName, failures: Int)] = []
      for (image, pending) in pendingDeletion
      where !pending.isUnderWay && pending.instance == instance
        && (wanted?.contains(image.digest) ?? true)
      {
        guard pending.failures == 0 else {
          failed.append((image, pending.failures))
          continue
        }
        portion.append(image)
        if portion.count == Self.portion { break }
      }
      if portion.isEmpty {
        failed.sort { $0.failures < $1.failures }
        portion = failed.prefix(Self.portion).map(\.image)
      }
      for image in portion { pendingDeletion[image]?.isUnderWay = true }
      return portion
    }
  }

  /// Deletes images that no other task is deleting, and reports that to the store.
  private func remove(
    _ portion: [ImageName], markedFor instance: Instance
  ) async -> StoreError? {
    let before = pendingDeletion.withLock { pendingDeletion in
      portion.filter { pendingDeletion[$0]?.areBytesGone ?? false }
    }
    let outcomes = await removeBytes(
      of: portion.filter { !before.contains($0) }, markedFor: instance)
    let removed = outcomes.filter { $0.failure == nil }.map(\.image)
    var failure = outcomes.lazy.compactMap(\.failure).first
    publishDeletion(of: removed)
    let gone = before + removed
    markSearch.withLock { $0.forgetting.formUnion(gone) }
    // Remove them before the store allows storing them again.
    pendingDeletion.withLock { pendingDeletion in
      for image in portion { pendingDeletion[image]?.isUnderWay = false }
      for image in gone { pendingDeletion[image] = nil }
      for outcome in outcomes where outcome.failure != nil {
        pendingDeletion[outcome.image]?.failures += 1
      }
    }
    guard !gone.isEmpty else { return failure }
    do throws(StoreError) { try await store.confirmDeletion(gone) } catch {
      failure = error
      addPending(gone, as: Pending(instance: instance, areBytesGone: true))
    }
    markSearch.withLock { look in
      look.forgetting.subtract(gone)
      look.forgotten?.formUnion(gone)
    }
    return failure
  }

  private typealias Outcome = (image: ImageName, failure: StoreError?)

  /// Deletes several images at a time, because each may be a request to an object store. Starts no further deletion
  /// after one has failed.
  /// - Returns: the results of the deletions that were started.
  private func removeBytes(
    of portion: [ImageName], markedFor instance: Instance
  ) async -> [Outcome] {
    await withTaskGroup(of: Outcome.self) { group in
      var outcomes: [Outcome] = []
      for (index, image) in portion.enumerated() {
        if index >= Self.atOnce, let outcome = await group.next() { outcomes.append(outcome) }
        guard lease.instance == instance, outcomes.last?.failure == nil else { break }
        group.addTask { [images] () -> Outcome in
          do throws(StoreError) { try await images.remove(image) } catch { return (image, error) }
          return (image, nil)
        }
      }
      for await outcome in group { outcomes.append(outcome) }
      return outcomes
    }
  }
}

extension ImageLifecycle {
  /// Has the other instances delete their copies.
  private func publishDeletion(of removed: [ImageName]) {
    guard !lease.membership.isAlone else { return }
    // The limit of a PostgreSQL notification.
    for start in stride(from: 0, to: removed.count, by: 100) {
      let some = removed[start..<min(removed.count, start + 100)]
      lease.membership.publish(.imagesDeleted(some.map(\.digest)))
    }
  }
}

/// The bytes of images that clients are uploading. They count toward the bytes of all stored images, and toward the
/// owner's share of them.
final class UploadQuota: Sendable {
  private let capacity: Int
  private let now: WallClock
  private let shares = Mutex(FairShare<Owner>())

  init(_ capacity: Int, now: @escaping WallClock) {
    (self.capacity, self.now) = (capacity, now)
  }

  /// Bytes that are left for stored images.
  var left: Int { max(0, capacity - shares.withLock { $0.held }) }

  /// - Throws: `.full` if there is not enough room.
  func reserve(_ bytes: Int, for owner: Owner) throws(StoreError) {
    let bounds = ShareBounds(capacity)
    let isTaken = shares.withLock { $0.acquire(bytes, for: owner, within: bounds, at: now()) }
    guard isTaken else { throw .full }
  }

  func release(_ bytes: Int, of owner: Owner) {
    shares.withLock { $0.release(bytes, of: owner) }
  }
}
