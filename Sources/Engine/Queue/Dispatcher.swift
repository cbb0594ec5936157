internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// Takes one claimed job at a time to its end.
protocol QueueWorker: AnyObject, Sendable {
  /// Begins with the job at once, without blocking, and calls ``Dispatcher/isIdle(_:)`` when it has ended.
  func take(_ work: Dispatcher.Work)
}

/// Claims queued jobs for idle workers.
///
/// In come idle workers, room at origins and the signal that there may be jobs; out goes one claimed job for each
/// worker. The queue itself is the store's: a job that waits, for a worker or for its origin, costs no memory here. Nothing
/// here blocks.
///
/// Owners share the workers (``OwnerRoom``): a worker counts for the owner of the job that it was given, until it is idle.
///
/// It asks the store when there may be something to claim: jobs were queued, an origin has room again, time has passed,
/// or a worker has become idle while jobs are queued. Where the answer to a call can be lost that queued some, of which
/// nobody tells then, it also asks every half a minute. The caller goes on at once: its thread runs the first step of a
/// claim, up to the store's thread.
final class Dispatcher: Sendable {
  /// A job to be worked on.
  struct Work: Sendable {
    let job: Job
    let claim: Claim
    /// The right to ask its origin; nil where none is asked, may not be at the moment, or has no room left.
    let permit: OriginPermit?
    /// Why its origin may not be asked.
    let refusal: FetchError?
    /// Whether other queued jobs ask the same.
    let isShared: Bool
  }

  private struct State {
    /// Workers without a job, but those for whom the store is being asked.
    var idle: [any QueueWorker] = []
    /// How many there are in all.
    var workers = 0
    /// For whom those work that are not idle.
    var owners: [ObjectIdentifier: Owner] = [:]
    var shares = SharedCapacity<Owner>()
    /// Nothing is queued, as far as this service knows: neither room nor an idle worker changes what there is.
    var isEmpty = false
    /// Whether jobs are being claimed.
    var isLooking = false
    var look: Task<Void, Never>?
    /// How many were begun.
    var looks = 0
    /// Something changed since that began.
    var looksAgain = false
    var alarm: Task<Void, Never>?
    var isStopped = false

    /// Nobody works, and nobody will.
    var isOver: Bool { isStopped && !isLooking && idle.count == workers }

    /// What each owner may have of the workers.
    func ownerRoom(at moment: Timestamp) -> OwnerRoom<Owner> {
      OwnerRoom(shares, of: workers, at: moment)
    }

    mutating func begin(_ worker: any QueueWorker, for owner: Owner) {
      owners[ObjectIdentifier(worker)] = owner
      shares.hold(1, for: owner)
    }

    mutating func end(_ worker: any QueueWorker, at moment: Timestamp) {
      idle.append(worker)
      guard let owner = owners.removeValue(forKey: ObjectIdentifier(worker)) else { return }
      shares.release(1, of: owner)
      shares.note(owner, at: moment)
    }
  }

  private let store: any JobQueue
  private let lease: Lease
  private let origins: OriginLimits
  private let positions: QueuePositions
  private let gate: QueueGate
  private let storage: StorageRoom
  /// How long the queue is taken for empty at the most; nil: until somebody says otherwise.
  private let patience: Duration?
  private let now: WallClock
  private let log: Logger
  private let state = Mutex(State())
  private let over = Latch()

  init(
    store: any JobQueue, lease: Lease, origins: OriginLimits, positions: QueuePositions,
    gate: QueueGate, storage: StorageRoom, signal: DispatcherSignal, patience: Duration? = nil,
    now: @escaping WallClock, log: Logger
  ) {
    self.store = store
    self.lease = lease
    self.origins = origins
    self.positions = positions
    self.gate = gate
    self.storage = storage
    self.patience = patience
    self.now = now
    self.log = log
    signal.connect(self)
  }

  /// Claims jobs for these workers until stopped; returns when all are idle.
  func run(_ workers: [any QueueWorker]) async {
    state.withLock { state in
      state.idle = workers
      state.workers = workers.count
    }
    wake()
    await over.wait()
    state.withLock { state in
      state.idle = []
      state.workers = 0
    }
  }

  /// Claims no job after this.
  func stop() {
    let (look, alarm) = state.withLock { state in
      state.isStopped = true
      return (state.look, state.alarm.take())
    }
    // The store looks through a long queue until its task is cancelled.
    look?.cancel()
    alarm?.cancel()
    endIfOver()
  }

  /// Signals that jobs were queued, or may be claimed that could not before.
  func wake() {
    look { state in
      state.isEmpty = false
      return true
    }
  }

  /// Signals that this process queued jobs, here and to the other instances.
  /// - Parameter owner: whose they are, if all are one owner's. The store is not asked for jobs of an owner that has all
  ///   the workers that it may have.
  func jobsWereQueued(by owner: Owner? = nil) {
    let moment = now()
    look { state in
      state.isEmpty = false
      return owner.map { state.ownerRoom(at: moment).has(for: $0) } ?? true
    }
    lease.membership.tell(.queued)
  }

  /// Signals that an origin may have room that had none.
  func originHasRoom() {
    look { _ in true }
  }

  /// Signals that a worker has finished its job.
  func isIdle(_ worker: some QueueWorker) {
    let moment = now()
    look { state in
      state.end(worker, at: moment)
      return true
    }
    endIfOver()
  }

  private func endIfOver() { if state.withLock({ $0.isOver }) { over.open() } }

  // MARK: Looking

  /// Looks for jobs unless that is pointless; a look that is under way goes round once more.
  /// - Parameter note: returns whether there may be something to claim.
  private func look(_ note: (inout State) -> Bool) {
    let number = state.withLock { state -> Int? in
      let mayClaim = note(&state)
      if state.isLooking {
        state.looksAgain = true
        return nil
      }
      guard mayClaim, !state.isStopped, !state.isEmpty, !state.idle.isEmpty else { return nil }
      state.isLooking = true
      state.looks += 1
      return state.looks
    }
    guard let number else { return }
    let task = Task.immediate { await lookAround() }
    let isLate = state.withLock { state in
      // It may be over by now, and the next one under way.
      if state.isLooking, state.looks == number { state.look = task }
      return state.isStopped
    }
    if isLate { task.cancel() }
  }

  private func lookAround() async {
    repeat {
      state.withLock { $0.looksAgain = false }
      await claim()
    } while !endsLooking()
    endIfOver()
  }

  private func endsLooking() -> Bool {
    state.withLock { state in
      if state.looksAgain, !state.isStopped, !state.isEmpty, !state.idle.isEmpty { return false }
      state.isLooking = false
      state.look = nil
      return true
    }
  }

  /// Claims jobs for idle workers until there are no more of the one or the other.
  ///
  /// None while the disk is full: their images would find no room. Room signals that there may be some to claim.
  private func claim() async {
    guard !storage.isFull else { return }
    do throws(StoreError) {
      var nextDue: Timestamp?
      // What time brings is judged by one moment: what came while the store was asked would else be missed.
      var moment = origins.now
      while let workers = takeIdle(leaving: 0) {
        moment = origins.now
        let claimed = try await claim(for: workers, room(at: moment, isSpare: false))
        nextDue = claimed.nextDue
        if claimed.isHeldBack {
          let soon = now() + origins.patience
          nextDue = nextDue.map { min($0, soon) } ?? soon
        }
        positions.take(claimed.jobs.lazy.map(\.job).filter { $0.batch == nil })
        await hand(over: claimed, to: workers)
        guard claimed.jobs.count < workers.count else { continue }
        if !isSharing { positions.clear() }
        break
      }
      // Workers that nobody else wants may try what is likely to take them long, or to fail.
      if !isEmpty, origins.hasSpareRoom(at: moment), let workers = takeIdle(leaving: kept) {
        let room = room(at: moment, isSpare: true)
        await hand(over: try await claim(for: workers, room), to: workers)
      }
      setAlarm(at: [nextDue, nextShare].compactMap(\.self).min(), since: moment)
    } catch {
      log.error("failed to claim jobs", metadata: ["error": "\(error)"])
      storage.note(error)
      setAlarm(after: .seconds(1))
    }
  }

  private func room(at moment: OriginLimits.Instant, isSpare: Bool) -> OriginRoom {
    origins.room(at: moment, isSpare: isSpare, isShared: !lease.membership.isAlone)
  }

  /// Whether nothing is queued, as far as is known here.
  var isEmpty: Bool { state.withLock { $0.isEmpty } }

  /// Workers that are left for jobs of origins which answer, where there is more than one worker: a quarter, besides what is
  /// left for other owners.
  private var kept: Int {
    let workers = state.withLock { $0.workers }
    return workers > 1 ? max(1, workers / 4) + OwnerRoom<Owner>.kept(of: workers) : 0
  }

  private var ownerRoom: OwnerRoom<Owner> {
    let moment = now()
    return state.withLock { $0.ownerRoom(at: moment) }
  }

  /// Whether jobs may be queued of an owner that has all that it may.
  private var isSharing: Bool { !ownerRoom.full.isEmpty }

  /// When an owner may have more because others ask no longer; nil: no owner waits for that.
  private var nextShare: Timestamp? {
    let moment = now()
    return isSharing ? state.withLock { $0.shares.nextChange(at: moment) } : nil
  }

  /// Idle workers, all but so many, for jobs that the store is about to be asked for; nil where there are none.
  private func takeIdle(leaving count: Int) -> [any QueueWorker]? {
    state.withLock { state in
      guard !state.isStopped, state.idle.count > count else { return nil }
      let workers = Array(state.idle.dropFirst(count))
      state.idle.removeLast(workers.count)
      return workers
    }
  }

  private func claim(
    for workers: [any QueueWorker], _ room: OriginRoom
  ) async throws(StoreError) -> Claimed {
    let owners = ownerRoom
    do throws(StoreError) {
      let claimed = try await lease.beginning { [store] instance throws(StoreError) in
        try await store.claim(workers.count, for: instance, room: room, owners: owners)
      }
      gate.left(claimed.jobs.lazy.map(\.job))
      for request in claimed.awaited { lease.membership.tell(.awaited(request)) }
      // Whatever was queued since has asked for another look.
      state.withLock { if claimed.isQueueEmpty, !$0.looksAgain { $0.isEmpty = true } }
      return claimed
    } catch {
      state.withLock { $0.idle += workers }
      throw error
    }
  }

  private func hand(over claimed: Claimed, to workers: [any QueueWorker]) async {
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
      worker.take(work(job, claim, isShared: isShared))
    }
  }

  /// Jobs that were claimed while the service stopped: no worker will take them.
  private func requeue(_ claims: [Claim]) async {
    guard !claims.isEmpty else { return }
    do throws(StoreError) {
      _ = try await store.complete(
        Completion(claims) { job in
          job.requeue()
          return true
        })
      lease.membership.tell(.queued)
    } catch {
      log.error(
        "jobs stay claimed until the next start",
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

  /// - Parameter moment: when it was looked at what origins have room.
  private func setAlarm(at due: Timestamp?, since moment: OriginLimits.Instant) {
    var delays = [patience]
    if !isEmpty {
      delays.append(due.map { $0 - now() })
      delays.append(origins.nextChange(after: moment).map { origins.now.duration(to: $0) })
    }
    if let delay = delays.compactMap(\.self).min() { setAlarm(after: delay) }
  }

  private func setAlarm(after delay: Duration) {
    let alarm = Task.immediate { [weak self] in
      // Neither sooner than a due moment that was rounded down, nor so late that a changed clock matters.
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
    if patience == nil { look { _ in true } } else { wake() }
  }
}

/// Signals to the dispatcher that an origin has room: it is made after the origins.
final class DispatcherSignal: Sendable {
  // A type of its own, as a closure that lies in a generic type bare is wrapped anew whenever it is looked at.
  private struct Target { weak var dispatcher: Dispatcher? }

  private let target = Mutex(Target())

  /// - Parameter dispatcher: whom to tell from now on.
  func connect(_ dispatcher: Dispatcher) { target.withLock { $0.dispatcher = dispatcher } }

  func wake() { target.withLock { $0.dispatcher }?.originHasRoom() }
}
