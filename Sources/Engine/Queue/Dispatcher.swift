internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// A worker: carries out one claimed job at a time.
protocol QueueWorker: AnyObject, Sendable {
  /// Starts the job at once, without blocking. Calls ``Dispatcher/workerIsIdle(_:)`` when the job has ended.
  func start(_ work: Dispatcher.Work)
}

/// Claims queued jobs for idle workers.
///
/// Input: idle workers, origins with room for a request, and the signal that jobs were queued. Output: one claimed job
/// for each idle worker. The queue itself is in the store, so a waiting job uses no memory here. No method blocks.
///
/// Owners share the workers (``OwnerCapacity``). A worker counts for the owner of its job until it is idle again.
///
/// The dispatcher asks the store only when there may be a job to claim. That is after jobs were queued, when an origin
/// or the disk has room again after it had none, when a due time is reached, or when a worker becomes idle. If the store
/// can lose answers, it also asks after ``maxEmptyTime``, because a lost answer may hide queued jobs. The caller's thread
/// runs the first step of a claim, up to the switch to the store's thread.
final class Dispatcher: Sendable {
  /// A claimed job for a worker.
  struct Work: Sendable {
    let job: Job
    let claim: Claim
    /// The permit for its origin. Nil if the job needs no origin, the origin is paused, or it has no room left.
    let permit: OriginPermit?
    /// The error if the origin is paused.
    let refusal: FetchError?
    /// Whether other queued jobs have the same request.
    let isShared: Bool
  }

  private struct State {
    /// Idle workers, without those that a claim is under way for.
    var idle: [any QueueWorker] = []
    /// Number of all workers.
    var workers = 0
    /// The owner of each busy worker's job.
    var owners: [ObjectIdentifier: Owner] = [:]
    var shares = FairShare<Owner>()
    /// Whether the queue is empty, as far as this instance knows. Then neither free origins nor idle workers start a
    /// claim.
    var isEmpty = false
    /// Whether a claim is under way.
    var isClaiming = false
    var claimTask: Task<Void, Never>?
    /// Number of claims started so far.
    var claimCount = 0
    /// Something changed since the current claim started, so claim again.
    var claimsAgain = false
    /// Whether jobs may have been left by the last claim because an origin or the disk had no room.
    var mayWaitForRoom = false
    /// Whether an origin or the disk got room since the current claim started.
    var hasRoom = false
    var alarm: Task<Void, Never>?
    var isStopped = false

    /// Whether no worker is busy and none will be.
    var isOver: Bool { isStopped && !isClaiming && idle.count == workers }

    /// How many workers each owner may have.
    func ownerCapacity(at moment: Timestamp) -> OwnerCapacity {
      OwnerCapacity(shares, of: workers, at: moment)
    }

    mutating func begin(_ worker: any QueueWorker, for owner: Owner) {
      owners[ObjectIdentifier(worker)] = owner
      shares.acquireUnchecked(1, for: owner)
    }

    mutating func finish(_ worker: any QueueWorker, at moment: Timestamp) {
      idle.append(worker)
      guard let owner = owners.removeValue(forKey: ObjectIdentifier(worker)) else { return }
      shares.release(1, of: owner, at: moment)
    }
  }

  private let store: any JobQueue
  private let lease: Lease
  private let origins: OriginLimits
  private let positions: QueuePositions
  private let gate: QueueGate
  private let storage: StorageState
  private let capacitySignal: CapacitySignal
  /// How long the queue counts as empty without asking the store; nil: until it is signaled.
  private let maxEmptyTime: Duration?
  private let now: WallClock
  private let log: Logger
  private let state = Mutex(State())
  private let over = Latch()

  init(
    store: any JobQueue, lease: Lease, origins: OriginLimits, positions: QueuePositions,
    gate: QueueGate, storage: StorageState, room: CapacitySignal, patience: Duration? = nil,
    now: @escaping WallClock, log: Logger
  ) {
    self.store = store
    self.lease = lease
    self.origins = origins
    self.positions = positions
    self.gate = gate
    self.storage = storage
    capacitySignal = room
    self.maxEmptyTime = patience
    self.now = now
    self.log = log
  }

  /// Claims jobs for these workers until ``stop()``. Returns once all workers are idle.
  func run(_ workers: [any QueueWorker]) async {
    state.withLock { state in
      state.idle = workers
      state.workers = workers.count
    }
    capacitySignal.listen { self.roomWasFreed() }
    defer { capacitySignal.endListening() }
    wake()
    await over.wait()
    state.withLock { state in
      state.idle = []
      state.workers = 0
    }
  }

  /// Stops claiming jobs.
  func stop() {
    let (look, alarm) = state.withLock { state in
      state.isStopped = true
      return (state.claimTask, state.alarm.take())
    }
    // The store searches a long queue until the task is cancelled.
    look?.cancel()
    alarm?.cancel()
    endIfOver()
  }

  /// Signals that jobs were queued, or that waiting jobs may now be claimed.
  func wake() {
    startClaim { state in
      state.isEmpty = false
      return true
    }
  }

  /// Signals that this process queued jobs, also to the other instances.
  /// - Parameter owner: the owner of the jobs, if all have the same. If that owner already has all the workers it may
  ///   have, the store is not asked.
  func jobsWereQueued(by owner: Owner? = nil) {
    let moment = now()
    startClaim { state in
      state.isEmpty = false
      return owner.map { state.ownerCapacity(at: moment).hasCapacity(for: $0) } ?? true
    }
    lease.membership.publish(.queued)
  }

  /// Signals that a worker has finished its job.
  func workerIsIdle(_ worker: some QueueWorker) {
    let moment = now()
    startClaim { state in
      state.finish(worker, at: moment)
      return true
    }
    endIfOver()
  }

  /// Signals that an origin has room for a further transfer, or the disk for images.
  private func roomWasFreed() {
    let isClaiming = state.withLock { state in
      state.hasRoom = true
      return state.isClaiming
    }
    if !isClaiming { startClaim { $0.mayWaitForRoom } }
  }

  private func endIfOver() { if state.withLock({ $0.isOver }) { over.open() } }

  // MARK: Claiming

  /// Starts a claim if one can succeed. If a claim is under way, it runs again afterwards.
  /// - Parameter note: updates the state; returns whether there may be a job to claim.
  private func startClaim(_ note: (inout State) -> Bool) {
    let number = state.withLock { state -> Int? in
      let mayClaim = note(&state)
      if state.isClaiming {
        state.claimsAgain = true
        return nil
      }
      guard mayClaim, !state.isStopped, !state.isEmpty, !state.idle.isEmpty else { return nil }
      state.isClaiming = true
      state.claimCount += 1
      return state.claimCount
    }
    guard let number else { return }
    let task = Task.immediate { await claimRepeatedly() }
    let isLate = state.withLock { state in
      // The claim may already be over, and the next one under way.
      if state.isClaiming, state.claimCount == number { state.claimTask = task }
      return state.isStopped
    }
    if isLate { task.cancel() }
  }

  private func claimRepeatedly() async {
    repeat {
      state.withLock { ($0.claimsAgain, $0.hasRoom, $0.mayWaitForRoom) = (false, false, false) }
      await claim()
    } while !finishClaim()
    endIfOver()
  }

  private func finishClaim() -> Bool {
    state.withLock { state in
      let isChanged = state.claimsAgain || state.hasRoom && state.mayWaitForRoom
      if isChanged, !state.isStopped, !state.isEmpty, !state.idle.isEmpty { return false }
      state.isClaiming = false
      state.claimTask = nil
      return true
    }
  }

  /// Claims jobs until no worker is idle or no job can be claimed. Claims nothing while the disk is full, because there
  /// is no space for the images; ``StorageState`` signals when there is.
  private func claim() async {
    guard !storage.isFull else { return state.withLock { $0.mayWaitForRoom = true } }
    do throws(StoreError) {
      var nextDue: Timestamp?
      // The room at origins and the next alarm are computed for the time before the store was asked. Otherwise a change
      // during that call would be missed.
      var moment = origins.now
      while let workers = removeIdle(leaving: 0) {
        moment = origins.now
        let claimed = try await claim(for: workers, room(at: moment, isSpare: false))
        nextDue = claimed.nextDue
        if claimed.isHeldBack {
          let soon = now() + origins.recheckInterval
          nextDue = nextDue.map { min($0, soon) } ?? soon
        }
        positions.removeClaimed(claimed.jobs.lazy.map(\.job).filter { $0.batch == nil })
        await assign(claimed, to: workers)
        guard claimed.jobs.count < workers.count else { continue }
        if !isSharing { positions.clear() }
        break
      }
      // Workers that no other job needs may try origins that are likely to be slow or to fail.
      if !isEmpty, origins.hasSpareRoom(at: moment),
        let workers = removeIdle(leaving: reservedWorkers)
      {
        let room = room(at: moment, isSpare: true)
        await assign(try await claim(for: workers, room), to: workers)
      }
      setAlarm(at: [nextDue, nextShare].compactMap(\.self).min(), since: moment)
    } catch {
      state.withLock { $0.mayWaitForRoom = true }
      log.error("failed to claim jobs", metadata: ["error": "\(error)"])
      storage.recordFailure(error)
      setAlarm(after: .seconds(1))
    }
  }

  private func room(at moment: OriginLimits.Instant, isSpare: Bool) -> OriginCapacity {
    origins.room(at: moment, isSpare: isSpare, isShared: !lease.membership.isAlone)
  }

  /// Whether the queue is empty, as far as this instance knows.
  var isEmpty: Bool { state.withLock { $0.isEmpty } }

  /// Workers reserved for origins that are known to answer: a quarter, in addition to those reserved for other owners.
  /// None if there is only one worker.
  private var reservedWorkers: Int {
    let workers = state.withLock { $0.workers }
    return workers > 1 ? max(1, workers / 4) + ShareBounds.keepingQuarter(of: workers).reserved : 0
  }

  private var ownerCapacity: OwnerCapacity {
    let moment = now()
    return state.withLock { $0.ownerCapacity(at: moment) }
  }

  /// Whether jobs may be queued for an owner that has all the workers it may have.
  private var isSharing: Bool { !ownerCapacity.full.isEmpty }

  /// Time when an owner may get more workers because other owners no longer use theirs; nil if no owner waits for that.
  private var nextShare: Timestamp? {
    let moment = now()
    return isSharing ? state.withLock { $0.shares.nextChange(at: moment) } : nil
  }

  /// Takes all idle workers except `count` for a claim; nil if there are none.
  private func removeIdle(leaving count: Int) -> [any QueueWorker]? {
    state.withLock { state in
      guard !state.isStopped, state.idle.count > count else { return nil }
      let workers = Array(state.idle.dropFirst(count))
      state.idle.removeLast(workers.count)
      return workers
    }
  }

  private func claim(
    for workers: [any QueueWorker], _ room: OriginCapacity
  ) async throws(StoreError) -> Claimed {
    let owners = ownerCapacity
    do throws(StoreError) {
      let claimed = try await lease.withFreshLease { [store] instance throws(StoreError) in
        try await store.claim(workers.count, for: instance, room: room, owners: owners)
      }
      gate.recordDepartures(claimed.jobs.lazy.map(\.job))
      for request in claimed.loadingElsewhere { lease.membership.publish(.equalQueued(request)) }
      var left = room
      for taken in claimed.jobs { left.countTransfer(to: taken.job.origin) }
      let mayWaitForRoom =
        claimed.isHeldBack || left.usual <= 0 || left.exceptions.values.contains { $0 <= 0 }
      state.withLock { state in
        if mayWaitForRoom { state.mayWaitForRoom = true }
        // If jobs were queued during the call, another claim has been requested, so the queue is not empty.
        if claimed.isQueueEmpty, !state.claimsAgain { state.isEmpty = true }
      }
      return claimed
    } catch {
      state.withLock { $0.idle += workers }
      throw error
    }
  }

  private func assign(_ claimed: Claimed, to workers: [any QueueWorker]) async {
    let isStopped = state.withLock { state in
      state.idle += workers.dropFirst(state.isStopped ? 0 : claimed.jobs.count)
      guard !state.isStopped else { return true }
      for (claimed, worker) in zip(claimed.jobs, workers) {
        state.begin(worker, for: claimed.job.owner)
      }
      return false
    }
    guard !isStopped else { return await requeue(claimed.jobs.map(\.claim)) }
    for ((job, claim), worker) in zip(claimed.jobs, workers) {
      let isShared = !claimed.shared.isEmpty && job.request.map(claimed.shared.contains) ?? false
      worker.start(work(job, claim, isShared: isShared))
    }
  }

  /// Requeues jobs that were claimed while the service was stopping: no worker carries them out.
  private func requeue(_ claims: [Claim]) async {
    guard !claims.isEmpty else { return }
    do throws(StoreError) {
      _ = try await store.complete(
        Completion(claims) { job in
          job.requeue()
          return true
        })
      lease.membership.publish(.queued)
    } catch {
      log.error(
        "failed to requeue jobs while stopping, the next start requeues them",
        metadata: ["jobs": "\(claims.count)", "error": "\(error)"])
    }
  }

  private func work(_ job: Job, _ claim: Claim, isShared: Bool) -> Work {
    func work(_ permit: OriginPermit?, _ refusal: FetchError?) -> Work {
      Work(job: job, claim: claim, permit: permit, refusal: refusal, isShared: isShared)
    }
    guard let origin = job.origin else { return work(nil, nil) }
    do throws(FetchError) { return work(try origins.enter(origin, for: job.owner), nil) } catch {
      return work(nil, error)
    }
  }

  // MARK: Time

  /// - Parameter moment: time at which the origins were checked for room.
  private func setAlarm(at due: Timestamp?, since moment: OriginLimits.Instant) {
    var delays = [maxEmptyTime]
    if !isEmpty {
      delays.append(due.map { $0 - now() })
      delays.append(origins.nextChange(after: moment).map { origins.now.duration(to: $0) })
    }
    if let delay = delays.compactMap(\.self).min() { setAlarm(after: delay) }
  }

  private func setAlarm(after delay: Duration) {
    let alarm = Task.immediate { [weak self] in
      // At least 1 ms, because a due time may be rounded down; at most 60 s, so that a changed clock has little effect.
      try? await Task.sleep(for: min(max(delay, .milliseconds(1)), .seconds(60)))
      if !Task.isCancelled { self?.timeHasPassed() }
    }
    let former = state.withLock { state in
      if state.isStopped { return alarm as Task? }
      defer { state.alarm = alarm }
      return state.alarm
    }
    former?.cancel()
  }

  private func timeHasPassed() {
    if maxEmptyTime == nil { startClaim { _ in true } } else { wake() }
  }
}

/// Wakes the dispatcher when jobs that it could not claim may have become claimable: an origin has capacity again, or the
/// disk has free space. The dispatcher listens while it runs.
final class CapacitySignal: Sendable {
  // A struct around the closure: one stored directly in a generic type would be wrapped again at each access.
  private struct Listener { let receive: @Sendable () -> Void }

  private let listener = Mutex<Listener?>(nil)

  /// Calls the listener on this thread. Does nothing while none listens.
  func send() { listener.withLock { $0 }?.receive() }

  fileprivate func listen(_ receive: @escaping @Sendable () -> Void) {
    listener.withLock { $0 = Listener(receive: receive) }
  }

  fileprivate func endListening() { listener.withLock { $0 = nil } }
}

/// Decides for an owner's finished jobs whether they are queued again.
///
/// Two reasons to refuse a job are known before the transaction: the owner's limit of bytes and its limit of
/// undelivered messages. They apply only to jobs that would otherwise be queued, which is known only inside the
/// transaction.
final class RequeueCheck: Sendable {
  private let moment: Timestamp
  private let network: NetworkState
  private let bytesSpent: JobsError?
  private let messagesFull: JobsError?
  private let allHaveWebhook: Bool
  private let refused = Mutex<[JobID: JobsError]>([:])

  /// - Parameters:
  ///   - bytesSpent: the error if the owner may fetch no more bytes today; nil otherwise.
  ///   - messagesFull: the error if the owner's limit of undelivered messages is reached; nil otherwise.
  ///   - allHaveWebhook: whether every job has a webhook, because its batch has one.
  init(
    at moment: Timestamp, from network: NetworkState, bytesSpent: JobsError?,
    messagesFull: JobsError?,
    allHaveWebhook: Bool
  ) {
    (self.moment, self.network) = (moment, network)
    (self.bytesSpent, self.messagesFull, self.allHaveWebhook) = (
      bytesSpent, messagesFull, allHaveWebhook
    )
  }

  /// The error of a job that was refused although it could have been queued; nil if there is none.
  var refusal: JobsError? { refused.withLock { $0.values.first } }

  /// Queues a finished job again. The store may call this more than once for a job.
  /// - Returns: false if the job stays as it is.
  func requeue(_ job: inout Job) -> Bool {
    var queued = job
    let first = network.firstCandidate(of: job.submission)
    let isWanted = queued.fetchAgain(at: moment, from: first)
    let reason = isWanted ? self.reason(against: job) : nil
    refused.withLock { [id = job.id] in $0[id] = reason }
    guard isWanted, reason == nil else { return false }
    job = queued
    return true
  }

  private func reason(against job: Job) -> JobsError? {
    if let bytesSpent, case .url = job.submission.source { return bytesSpent }
    return allHaveWebhook || job.submission.webhook != nil ? messagesFull : nil
  }
}
