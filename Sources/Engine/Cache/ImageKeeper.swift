internal import Jobs
internal import Logging
internal import Synchronization

/// Publishes images, each with a reference that is stored before its bytes are there, and removes images that nothing
/// refers to.
final class ImageKeeper: Sendable {
  private let store: any ImageReferences
  private let images: any ImageStore
  private let uploads: UploadQuota
  private let lease: Lease
  /// Images marked for deletion whose bytes are still to be removed.
  private let pendingDeletion = Mutex<[ImageName: Pending]>([:])
  /// At what the store has marked. Locked before the list where both are.
  private let look = Mutex(Look())
  /// Holders whose reservations have still to end.
  private let unreleased = Mutex<Set<JobID>>([])
  private let log: Logger
  private static let lookInterval = Duration.seconds(10)
  private static let lookSize = 256
  /// So many are left to ``retry(within:)``, and no more.
  static let mostLeft = 10_000
  /// So many are removed before the store is told of it: one that comes back waits for no more than these.
  static let portion = 64
  /// Of a portion.
  private static let atOnce = 8

  private struct Pending {
    /// For whom it was marked.
    let instance: Instance
    /// Whether a task is removing them.
    var isUnderWay = false
    /// How often they could not be removed.
    var failures = 0
    /// Whether they are removed already, and the store alone may not know: what a file of that digest has by now came
    /// back.
    var areBytesGone = false
  }

  /// What is known of marks when the store is asked for those whose answers were lost.
  private struct Look {
    /// When it is to be asked next.
    var next = ContinuousClock.now
    /// Names of which the store is being told that they are gone.
    var forgetting: Set<ImageName> = []
    /// Those of which it was told since it was asked; nil: it isn't being asked.
    var forgotten: Set<ImageName>?
    /// What it answered last: to hear of these by an answer that is only late is no news.
    var takenUp: Set<ImageName> = []

    /// Whether the image may be back, although the answer has it.
    func hasForgotten(_ image: ImageName) -> Bool {
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

  /// Bytes that images may take which are kept, beside those being received.
  var limit: Int { uploads.left }

  /// Makes a staged image durable for its holder.
  ///
  /// - Parameter limit: of all kept images' bytes; the oldest finished jobs' are evicted for this one.
  /// - Returns: false when the task was cancelled: nothing is kept then.
  /// - Throws: `.full` when there is no room even so.
  func keep(
    _ staged: any StagedImage, _ digest: ImageDigest, bytes: Int, as holder: JobID,
    limit: Int
  ) async throws(StoreError) -> Bool {
    let name = try await reserve(digest, bytes: bytes, as: holder, limit: limit)
    guard let name else { return false }
    try await images.put(staged, as: name)
    return true
  }

  /// Sees to it that an image which is kept already stays.
  /// - Returns: false when its deletion is pending.
  func hold(_ digest: ImageDigest, bytes: Int, as holder: JobID) async throws(StoreError) -> Bool {
    switch try await ask(digest, bytes: bytes, as: holder, limit: .max) {
    case .reserved: true
    case .pendingDeletion, .noRoomYet, .full: false
    }
  }

  /// Lets an image go whose bytes are gone or harmed.
  ///
  /// - Returns: the jobs that had it; nil where it was known to be gone, or something needs it still: its bytes may be
  ///   on their way just now.
  func lose(_ digest: ImageDigest) async -> [JobID]? {
    guard let lost = try? await store.lose(digest, for: lease.instance) else { return nil }
    if let name = lost.name { await remove([name]) }
    return lost.jobs
  }

  /// - Returns: what the bytes are to be kept under; nil when the task was cancelled.
  private func reserve(
    _ digest: ImageDigest, bytes: Int, as holder: JobID, limit: Int
  ) async throws(StoreError) -> ImageName? {
    var pause = Duration.milliseconds(1)
    while true {
      switch try await ask(digest, bytes: bytes, as: holder, limit: limit) {
      case .reserved(let name, let evicted):
        await remove(evicted)
        return name
      case .full: throw .full
      case .noRoomYet(let evicted): await remove(evicted)
      // Equal bytes are to be removed, unless they are at this moment; that takes as long as an unlink.
      case .pendingDeletion: _ = await removeAgain([digest])
      }
      if Task.isCancelled { return nil }
      try? await Task.sleep(for: pause)
      pause = min(pause * 2, .milliseconds(100))
    }
  }

  private func ask(
    _ digest: ImageDigest, bytes: Int, as holder: JobID, limit: Int
  ) async throws(StoreError) -> Reservation {
    try await lease.holding { instance throws(StoreError) in
      try await store.reserve(digest, bytes: bytes, as: holder, of: instance, limit: limit)
    }
  }

  /// Ends a holder's reservations; where the store can't do that now, ``retry(within:)`` does.
  func release(_ holder: JobID) async {
    do throws(StoreError) { try await store.release(holder) } catch {
      log.error("a reservation can't be ended", metadata: ["error": "\(error)"])
      unreleased.withLock { _ = $0.insert(holder) }
    }
  }

  /// Removes images that the store has marked for deletion. What can't be removed now is tried again by
  /// ``retry(within:)``, for as long as the lease lasts under which they were marked: after that they are anybody's to
  /// remove, or in use again.
  ///
  /// It is at these alone: what an object store that stood still has left is many.
  func remove(_ images: [ImageName]) async {
    guard !images.isEmpty else { return }
    note(images)
    _ = await removeAgain(Set(images.map(\.digest)))
  }

  /// Leaves that to the next ``retry(within:)``, for who must not wait for an object store; not where too many are left
  /// already, as new images must not come faster than the others go.
  func removeLater(_ images: [ImageName]) async {
    guard !images.isEmpty else { return }
    note(images)
    if pendingDeletion.withLock({ $0.count }) > Self.mostLeft { await remove(images) }
  }

  private func note(_ images: [ImageName]) {
    look.withLock { look in
      list(images.filter { !look.takenUp.contains($0) }, as: Pending(instance: lease.instance))
    }
  }

  private func list(_ images: [ImageName], as new: Pending) {
    pendingDeletion.withLock { pendingDeletion in
      for image in images { pendingDeletion[image] = pendingDeletion[image] ?? new }
    }
  }

  /// Removes what is left to remove, and ends what is left to end.
  ///
  /// - Parameter time: no further portion is begun with after that: the next call goes on.
  /// - Returns: why something could not be, if so.
  func retry(within time: Duration = .seconds(1)) async -> StoreError? {
    let end = ContinuousClock.now + time
    await releaseAgain()
    let failure = await lookForLostMarks()
    return await removeAgain(until: end) ?? failure
  }

  /// Takes up what is marked for this instance and it has never heard of: the store did as it was asked, and could not
  /// say so. What another task has removed since may be back, and a file has its digest alone for a name: to remove it
  /// twice would take what somebody has.
  private func lookForLostMarks() async -> StoreError? {
    let isDue = look.withLock { look in
      guard look.forgotten == nil, look.next <= .now else { return false }
      look.next = .now + Self.lookInterval
      look.forgotten = []
      return true
    }
    guard isDue else { return nil }
    defer { look.withLock { $0.forgotten = nil } }
    do throws(StoreError) {
      let instance = lease.instance
      let marked = try await store.leavingImages(Self.lookSize, of: instance)
      look.withLock { look in
        let left = marked.filter { !look.hasForgotten($0) }
        look.takenUp = Set(left)
        list(left, as: Pending(instance: instance))
      }
      return nil
    } catch {
      return error
    }
  }

  private func releaseAgain() async {
    let holders = unreleased.withLock { holders in
      defer { holders = [] }
      return holders
    }
    for holder in holders { await release(holder) }
  }

  /// Removes a portion after the other.
  ///
  /// - Parameters:
  ///   - wanted: nil: all that is left. Whoever wants an image again does not know under which name it leaves.
  ///   - end: nil: however long that takes.
  private func removeAgain(
    _ wanted: Set<ImageDigest>? = nil, until end: ContinuousClock.Instant? = nil
  ) async -> StoreError? {
    let instance = lease.instance
    pendingDeletion.withLock { pendingDeletion in
      pendingDeletion = pendingDeletion.filter {
        $0.value.isUnderWay || $0.value.instance == instance
      }
    }
    while lease.instance == instance {
      let portion = takePortion(of: wanted, markedFor: instance)
      guard !portion.isEmpty else { return nil }
      if let failure = await remove(portion, markedFor: instance) { return failure }
      if let end, end <= .now || Task.isCancelled { return nil }
    }
    return nil
  }

  /// Only one may be at an image: once forgotten it may come back, and another must not remove it then. One that can't be
  /// removed comes behind all others.
  private func takePortion(
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

  /// Removes images that nobody else is at, and has the store forget them.
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
    tell(removed)
    let gone = before + removed
    look.withLock { $0.forgetting.formUnion(gone) }
    // Out of the list before the store lets them come back.
    pendingDeletion.withLock { pendingDeletion in
      for image in portion { pendingDeletion[image]?.isUnderWay = false }
      for image in gone { pendingDeletion[image] = nil }
      for outcome in outcomes where outcome.failure != nil {
        pendingDeletion[outcome.image]?.failures += 1
      }
    }
    guard !gone.isEmpty else { return failure }
    do throws(StoreError) { try await store.forget(gone) } catch {
      failure = error
      list(gone, as: Pending(instance: instance, areBytesGone: true))
    }
    look.withLock { look in
      look.forgetting.subtract(gone)
      look.forgotten?.formUnion(gone)
    }
    return failure
  }

  private typealias Outcome = (image: ImageName, failure: StoreError?)

  /// Some at once, as each may be a request to an object store; none any more once one fails.
  /// - Returns: what became of those that it came to.
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

extension ImageKeeper {
  /// Has the others drop their copies.
  private func tell(_ removed: [ImageName]) {
    guard !lease.membership.isAlone else { return }
    // As many as a notification of PostgreSQL has room for.
    for start in stride(from: 0, to: removed.count, by: 100) {
      let some = removed[start..<min(removed.count, start + 100)]
      lease.membership.tell(.imagesGone(some.map(\.digest)))
    }
  }
}

/// The bytes of images that clients are sending: each counts in what may be kept, and in its owner's share of that.
final class UploadQuota: Sendable {
  private let capacity: Int
  private let now: WallClock
  private let shares = Mutex(SharedCapacity<Owner>())

  init(_ capacity: Int, now: @escaping WallClock) {
    (self.capacity, self.now) = (capacity, now)
  }

  /// What is left for images that are kept.
  var left: Int { max(0, capacity - shares.withLock { $0.held }) }

  /// - Throws: `.full` where there is no room for so much more.
  func take(_ bytes: Int, for owner: Owner) throws(StoreError) {
    let isTaken = shares.withLock { $0.take(bytes, for: owner, within: capacity, at: now()) }
    guard isTaken else { throw .full }
  }

  func release(_ bytes: Int, of owner: Owner) {
    shares.withLock { $0.release(bytes, of: owner) }
  }
}
