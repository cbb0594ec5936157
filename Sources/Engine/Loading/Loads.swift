internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

// Loading: the path of a claimed job from the queue to its end.
//
// Input: a claimed job from the `Dispatcher`. Output: its end (an image, a failure or a retry), stored and then published
// to clients. Five files, in this order:
//
// 1. Here: `Worker`, an actor, joins the load of an equal request or starts one. This happens on the thread that
//    delivers the store's answer. `Coalescer` adds equal jobs from the queue. `Loads` is the set of all loads.
// 2. `Load` is one transfer with its waiting jobs.
// 3. `Loader` carries a load from its source to its end. `URLLoader` asks the cache and the origin, `PartialTransfers`
//    resumes an earlier transfer.
// 4. `ImageIngest` and `Decode` hash, write and decode each piece of the image as it arrives. `ImageStaging` stores the
//    image.
// 5. `JobCompleter` ends all jobs that want only the image, in one transaction. The others continue in `Finisher`.
//
// The worker and everything after it run on the decode threads.

/// One worker of the pool: carries a claimed job to its end, and then is idle again.
///
/// It runs on a lane of the decode threads, which has the priority of the load. The functions that it calls run there too,
/// so a load changes threads only when it waits for something.
actor Worker: QueueWorker {
  nonisolated let unownedExecutor: UnownedSerialExecutor
  private nonisolated let lane: any WorkerLane
  private nonisolated let loads: Loads
  private nonisolated let dispatcher: Dispatcher
  private let coalescer: Coalescer
  private let loader: Loader
  private nonisolated let finisher: Finisher

  init(
    on lane: any WorkerLane, dispatcher: Dispatcher, coalescer: Coalescer, loader: Loader
  ) {
    (loads, finisher) = (loader.loads, loader.finisher)
    self.lane = lane
    unownedExecutor = lane.asUnownedSerialExecutor()
    self.dispatcher = dispatcher
    self.coalescer = coalescer
    self.loader = loader
  }

  /// Adds the job to a load on the caller's thread, so that its phase is `loading` immediately.
  nonisolated func start(_ work: Dispatcher.Work) {
    let waiter = loads.waiter(work.job, work.claim)
    if work.job.pending != nil {
      guard finisher.begin([waiter]) else {
        Task.immediate { await refuse(work.claim) }
        return
      }
      return dispatcher.workerIsIdle(self)
    }
    switch loads.enter(waiter, on: lane) {
    case .joined(let load):
      loads.show(waiter, in: load)
      // Moving equal jobs together costs one transaction. Claimed one by one, each would cost a worker and a transaction.
      guard work.isShared, load.beginCoalescing() else { return dispatcher.workerIsIdle(self) }
      Task.immediate { await coalesce(into: load) }
    case .began(let load):
      // Before the load runs, because it may end immediately.
      let coalesces = work.isShared && load.beginCoalescing()
      loads.show(waiter, in: load)
      let (permits, refusal) = (OriginPermits(work.permit), work.refusal)
      load.run(as: Task.immediate { await carryOut(load, permits, refusal, coalesces) })
    case .refused:
      Task.immediate { await refuse(work.claim) }
    }
  }

  private func carryOut(
    _ load: Load, _ permits: OriginPermits, _ refusal: FetchError?, _ coalesces: Bool
  ) async {
    if coalesces {
      async let coalescing: Void = coalescer.coalesce(into: load)
      await loader.carryOut(load, permits, refusal: refusal)
      await coalescing
    } else {
      await loader.carryOut(load, permits, refusal: refusal)
    }
    dispatcher.workerIsIdle(self)
  }

  private func coalesce(into load: Load) async {
    await coalescer.coalesce(into: load)
    dispatcher.workerIsIdle(self)
  }

  private func refuse(_ claim: Claim) async {
    await loader.completer.requeue([claim])
    dispatcher.workerIsIdle(self)
  }
}

/// Moves queued jobs with the same request as a load into it, regardless of their position in the queue.
struct Coalescer: Sendable {
  let store: any JobQueue
  let lease: Lease
  let loads: Loads
  let completer: JobCompleter
  let gate: QueueGate
  let log: Logger

  /// Ends what ``Load/beginCoalescing()`` started. Jobs that the load refuses return to the queue, and end the move.
  ///
  /// - Parameter limit: the most jobs to move.
  func coalesce(into load: Load, atMost limit: Int = .max) async {
    defer { load.endCoalescing() }
    guard let request = load.request else { return }
    var left = limit
    do throws(StoreError) {
      while left > 0, !loads.isStopping, !load.isCancelled {
        let wanted = min(left, JobCompleter.batch, loads.capacity)
        guard wanted > 0 else { return }
        let claimed = try await lease.withLease { instance throws(StoreError) in
          try await store.claim(equalTo: request, count: wanted, for: instance)
        }
        gate.recordDepartures(claimed.lazy.map(\.job))
        let haveJoined = await join(claimed, load)
        guard haveJoined, claimed.count == wanted, load.waiterCount < Load.mostWaiters else {
          return
        }
        left -= wanted
      }
    } catch {
      log.error("failed to claim equal jobs", metadata: ["error": "\(error)"])
    }
  }

  private func join(_ jobs: [(job: Job, claim: Claim)], _ load: Load) async -> Bool {
    guard !jobs.isEmpty else { return false }
    let joined = loads.enter(jobs.map { loads.waiter($0.job, $0.claim) }, load)
    for waiter in joined { loads.show(waiter, in: load) }
    let refused = Set(jobs.map(\.claim)).subtracting(joined.map(\.claim))
    if !refused.isEmpty { await completer.requeue(Array(refused)) }
    return refused.isEmpty
  }
}

/// The work of this process: its loads, found by their request, and the groups of jobs in the stages after a load. Both
/// are also found by their jobs. A lock guards the state: workers, API calls and events use it from different threads.
final class Loads: ClaimHolder {
  /// The load that a claimed job entered.
  enum Entry: Sendable {
    /// The job joined a running load.
    case joined(Load)
    /// The job started a load, which the caller must carry out.
    case began(Load)
    /// The service stops, so no load starts.
    case refused
  }

  private struct State {
    var all: [ObjectIdentifier: Load] = [:]
    var finishing: [ObjectIdentifier: FinishingJobs] = [:]
    var byRequest: [Fingerprint: Load] = [:]
    /// The last load of each request whose end is being stored: no job can join it, and the cache has no response of it yet.
    var ending: [Fingerprint: Load] = [:]
    // A job can have two runs: its next one may start while its cancelled one is still ending.
    var byJob: [JobID: [Claim: (carrier: any JobCarrier, version: Int, part: WaitingMemory.Part)]] =
      [:]
    var memory = WaitingMemory()
    /// Running loads may end, but no more jobs move from the queue into them, and no background load starts.
    var isStopping = false
    var closedAt: ContinuousClock.Instant?

    /// Whether there is no load and no group of finishing jobs.
    var isEmpty: Bool { all.isEmpty && finishing.isEmpty }

    /// Removes a job's run.
    /// - Returns: the load or group that carried it; nil if the run was already removed.
    mutating func removeRun(of claim: Claim) -> (any JobCarrier)? {
      let run = byJob[claim.job]?.removeValue(forKey: claim)
      if byJob[claim.job]?.isEmpty == true { byJob[claim.job] = nil }
      if let run { memory.release(run.part) }
      return run?.carrier
    }

    /// Lets no further jobs join a load.
    mutating func close(_ load: Load) {
      if let request = load.request, byRequest[request] === load { byRequest[request] = nil }
    }
  }

  /// The time limit for storing the ends of cancelled loads. Later ones are repeated after the next start.
  static let grace = Duration.milliseconds(500)

  /// Sent when a load starts.
  let beginnings = Signal()
  /// Opens when the service stops and the last load has ended.
  let emptied = Latch()
  /// Opens when the service stops and has cancelled all loads.
  let closing = Latch()
  private let state = Mutex(State())
  private let factory: LoadFactory
  private let snapshots: JobSnapshots
  private let metrics: JobMetrics

  init(_ factory: LoadFactory, snapshots: JobSnapshots, metrics: JobMetrics) {
    (self.factory, self.snapshots, self.metrics) = (factory, snapshots, metrics)
  }

  /// The configured limits of each load.
  var rules: LoadRules { factory.rules }

  /// Returns the waiter for a job that enters a load now.
  func waiter(_ job: Job, _ claim: Claim) -> Load.Waiter { factory.waiter(job, claim) }

  /// Adds a job to the load with the same request, or to a new load.
  /// - Parameter lane: the thread lane of a new load. Its priority follows that of the load's jobs.
  func enter(_ waiter: Load.Waiter, on lane: any ComputeLane) -> Entry {
    let request = waiter.job.request
    let moment = factory.now()
    let entry = state.withLock { state -> Entry in
      if state.closedAt != nil { return .refused }
      if let request, let load = state.byRequest[request] {
        if !join([waiter], load, at: moment, &state).isEmpty { return .joined(load) }
      }
      let load = factory.load(
        for: waiter.job, request: request, on: lane,
        following: request.flatMap { state.ending[$0] })
      _ = load.join([waiter])
      state.all[ObjectIdentifier(load)] = load
      if let request { state.byRequest[request] = load }
      register(waiter, in: load, state.memory.reserveUnchecked(waiter.job), &state)
      return .began(load)
    }
    switch entry {
    case .refused: break
    case .began: beginnings.send()
    case .joined: metrics.joined(1)
    }
    return entry
  }

  /// Adds jobs with the same request to a load.
  /// - Returns: the jobs that joined.
  func enter(_ waiters: [Load.Waiter], _ load: Load) -> [Load.Waiter] {
    let moment = factory.now()
    let joined = state.withLock { state -> [Load.Waiter] in
      if state.closedAt != nil { return [] }
      return join(waiters, load, at: moment, &state)
    }
    metrics.joined(joined.count)
    return joined
  }

  /// Adds jobs to a load as far as there is memory for them. If there is too little, the load accepts no further jobs:
  /// otherwise the queue would offer them again and again.
  /// - Returns: the jobs that joined.
  private func join(
    _ waiters: [Load.Waiter], _ load: Load, at moment: Timestamp, _ state: inout State
  ) -> [Load.Waiter] {
    var parts: [Claim: WaitingMemory.Part] = [:]
    for waiter in waiters {
      guard let part = state.memory.reserve(waiter.job, at: moment) else {
        state.close(load)
        load.refuseCoalescing()
        break
      }
      parts[waiter.claim] = part
    }
    let fitting = waiters.prefix(parts.count)
    let refused = load.join(Array(fitting))
    for waiter in refused {
      if let part = parts.removeValue(forKey: waiter.claim) { state.memory.release(part) }
    }
    let joined = fitting.filter { parts[$0.claim] != nil }
    for waiter in joined {
      if let part = parts[waiter.claim] { register(waiter, in: load, part, &state) }
    }
    return Array(joined)
  }

  /// The approximate number of further jobs that may join loads.
  var capacity: Int { state.withLock { $0.memory.remainingJobs } }

  /// Moves jobs that were removed from a load because their deadline has passed into a load of their own. That load does
  /// not ask the origin: the stored response answers the jobs.
  /// - Returns: nil if all the jobs were cancelled meanwhile.
  func split(_ late: [Load.Waiter], off load: Load, on lane: any ComputeLane) -> Load? {
    let own = factory.load(
      for: load.leader, request: nil, on: lane, after: load.tracker.progress)
    return state.withLock { state -> Load? in
      var waiters = late.filter { state.byJob[$0.job.id]?[$0.claim] != nil }
      guard !waiters.isEmpty else { return nil }
      // With deadlines equal to the fallback's, the jobs do not time out a second time.
      let moment = ContinuousClock.now
      for place in waiters.indices { waiters[place].deadline = moment }
      _ = own.join(waiters)
      own.beginFallback()
      for waiter in waiters { state.byJob[waiter.job.id]?[waiter.claim]?.carrier = own }
      state.all[ObjectIdentifier(own)] = own
      if state.closedAt != nil { own.cancel() }
      return own
    }
  }

  /// Registers jobs that end together with a load that other jobs can no longer join. Until ``unregister(_:)`` they are
  /// published, pinned and cancelled like jobs that waited for the load.
  func register(_ jobs: [ClaimedJob], with load: Load) -> [Load.Waiter] {
    let waiters = jobs.map { waiter($0.job, $0.claim) }
    guard !waiters.isEmpty else { return [] }
    state.withLock { state in
      for waiter in waiters {
        register(waiter, in: load, state.memory.reserveUnchecked(waiter.job), &state)
      }
    }
    metrics.joined(waiters.count)
    for waiter in waiters { show(waiter, in: load) }
    return waiters
  }

  private func register(
    _ waiter: Load.Waiter, in carrier: any JobCarrier, _ part: WaitingMemory.Part,
    _ state: inout State
  ) {
    state.byJob[waiter.job.id, default: [:]][waiter.claim] = (carrier, waiter.job.version, part)
    // Under the lock, so that the matching unpin cannot happen before this.
    snapshots.pin(waiter.job.id)
  }

  /// Registers jobs with a pending result that enter the stages after their load.
  /// - Parameter isFromLoad: whether a load carried them before. Jobs that were cancelled since are skipped.
  /// - Returns: false if no job is left, or the service stops. The caller then requeues jobs that came from the queue.
  func enter(_ jobs: FinishingJobs, isFromLoad: Bool) -> Bool {
    let waiters = jobs.waiters
    var gone: [Load.Waiter] = []
    let begins = state.withLock { state in
      if state.closedAt != nil, !isFromLoad { return false }
      for waiter in waiters {
        if !isFromLoad {
          register(waiter, in: jobs, state.memory.reserveUnchecked(waiter.job), &state)
        } else if state.byJob[waiter.job.id]?[waiter.claim] != nil {
          state.byJob[waiter.job.id]?[waiter.claim]?.carrier = jobs
        } else {
          gone.append(waiter)
        }
      }
      guard gone.count < waiters.count else { return false }
      state.finishing[ObjectIdentifier(jobs)] = jobs
      if state.closedAt != nil { jobs.cancel() }
      return true
    }
    guard begins else { return false }
    for waiter in gone { jobs.remove(waiter.claim, discardingBytes: false) }
    if !isFromLoad {
      for waiter in waiters
      where snapshots.publish(waiter.job, .claimedHere)?.job.phase != .loading {
        _ = stopWork(under: waiter.claim)
      }
    }
    beginnings.send()
    return true
  }

  /// Removes a group whose jobs have all ended or were removed.
  func end(_ jobs: FinishingJobs) {
    let wasLast = state.withLock { state in
      state.finishing[ObjectIdentifier(jobs)] = nil
      return state.isStopping && state.isEmpty
    }
    if wasLast { emptied.open() }
  }

  /// Starts a load that refreshes the cache, for which no job waits.
  /// - Returns: nil if the service stops.
  func beginInBackground(for job: Job, on lane: any ComputeLane) -> Load? {
    let load = factory.load(for: job, request: nil, on: lane, isBackground: true)
    let begins = state.withLock { state in
      if state.isStopping { return false }
      state.all[ObjectIdentifier(load)] = load
      return true
    }
    guard begins else { return nil }
    beginnings.send()
    return load
  }

  /// The load that a job with this request can join; nil if there is none.
  func load(for request: Fingerprint) -> Load? { state.withLock { $0.byRequest[request] } }

  /// Lets no job join the load from now on. The caller ends the jobs that waited, and calls ``unregister(_:)`` for each.
  func seal(_ load: Load) -> [Load.Waiter] {
    state.withLock { state in
      state.close(load)
      if let request = load.request { state.ending[request] = load }
      return load.seal()
    }
  }

  /// Removes a job that has ended.
  func unregister(_ waiter: Load.Waiter) {
    if state.withLock({ $0.removeRun(of: waiter.claim) }) != nil { snapshots.unpin(waiter.job.id) }
  }

  /// Removes a job from a load because its claim was lost.
  func remove(_ waiter: Load.Waiter, from load: Load) {
    load.remove(waiter.claim, discardingBytes: false)
    unregister(waiter)
  }

  /// Removes the run of a claim that was lost.
  /// - Returns: false if the run had already ended here.
  func stopWork(under claim: Claim) -> Bool {
    guard let carrier = state.withLock({ $0.removeRun(of: claim) }) else { return false }
    carrier.remove(claim, discardingBytes: false)
    snapshots.unpin(claim.job)
    return true
  }

  /// The claims of all jobs that this process works on.
  var claims: Set<Claim> { state.withLock { Set($0.byJob.values.flatMap(\.keys)) } }

  /// Removes a load that has ended, together with all jobs that waited for it.
  func end(_ load: Load) {
    let wasLast = state.withLock { state in
      state.all[ObjectIdentifier(load)] = nil
      if let request = load.request, state.ending[request] === load { state.ending[request] = nil }
      return state.isStopping && state.isEmpty
    }
    load.end.open()
    if wasLast { emptied.open() }
  }

  /// Removes a job from the loads that it joined at a lower version than this.
  /// - Parameter discardingBytes: whether the received bytes are deleted if no other job wants them.
  func remove(_ id: JobID, before version: Int, discardingBytes: Bool = false) {
    let left = state.withLock { state -> [(Claim, any JobCarrier)] in
      let claims = (state.byJob[id] ?? [:]).filter { $0.value.version < version }.keys
      return claims.compactMap { claim in state.removeRun(of: claim).map { (claim, $0) } }
    }
    for (claim, carrier) in left {
      carrier.remove(claim, discardingBytes: discardingBytes)
      snapshots.unpin(id)
    }
  }

  /// Changes the job's priority in its loads.
  func prioritize(_ id: JobID, _ priority: Priority) {
    let runs = state.withLock { $0.byJob[id] ?? [:] }
    for (claim, run) in runs { run.carrier.prioritize(claim, priority) }
  }

  /// Cancels the background loads. Loads that jobs wait for continue.
  func stop() {
    let (background, isEmpty) = state.withLock { state in
      state.isStopping = true
      return (state.all.values.filter(\.isBackground), state.isEmpty)
    }
    for load in background { load.cancel() }
    if isEmpty { emptied.open() }
  }

  /// Cancels all loads, and lets no other load start.
  func close() {
    let (loads, finishing) = state.withLock { state in
      state.isStopping = true
      state.closedAt = state.closedAt ?? .now
      return (Array(state.all.values), Array(state.finishing.values))
    }
    for load in loads { load.cancel() }
    for jobs in finishing { jobs.cancel() }
    closing.open()
  }

  var isStopping: Bool { state.withLock { $0.isStopping } }

  /// Whether the time limit for storing ends has passed. Jobs whose ends are not stored run again after the next start.
  var isOver: Bool {
    state.withLock { $0.closedAt.map { $0 + Self.grace <= .now } ?? false }
  }

  /// Waits, at most 2 s, for cancelled loads of the same bytes that are still storing their partial transfer.
  func awaitEnds(of partial: Fingerprint, before load: Load) async {
    let deadline = ContinuousClock.now + .seconds(2)
    for other in all where other !== load && other.isCancelled && other.leader.partial == partial {
      await other.end.wait(until: deadline)
    }
  }

  /// The loads that a job waits for.
  func loads(of id: JobID) -> [Load] {
    state.withLock { $0.byJob[id]?.values.compactMap { $0.carrier as? Load } ?? [] }
  }

  /// All jobs in loads and in the stages after them.
  var waiters: [Load.Waiter] {
    let (loads, finishing) = state.withLock { (Array($0.all.values), Array($0.finishing.values)) }
    return loads.flatMap(\.waiters) + finishing.flatMap(\.waiters)
  }

  /// The groups of jobs in the stages after their load.
  var finishing: [FinishingJobs] { state.withLock { Array($0.finishing.values) } }
  var isEmpty: Bool { state.withLock { $0.isEmpty } }
  var all: [Load] { state.withLock { Array($0.all.values) } }
  var count: Int { state.withLock { $0.all.count } }

  /// The start of the oldest load; nil if there is none.
  var oldest: Timestamp? { state.withLock { $0.all.values.map(\.since).min() } }
}

/// Publishing of jobs and their progress while they are loaded.
extension Loads {
  /// Publishes that a job is loading, and its progress. Removes the job if it was cancelled or purged meanwhile.
  func show(_ waiter: Load.Waiter, in load: Load) {
    guard snapshots.publish(waiter.job, .claimedHere)?.job.phase == .loading else {
      return remove(waiter, from: load)
    }
    let progress = load.tracker.progress
    if progress != LoadProgress() {
      snapshots.report(waiter.job.id, ProgressReport(of: waiter.job, progress))
    }
  }

  /// Publishes the progress of a load if it changed since the last call.
  func showProgress(of load: Load) {
    guard let progress = load.tracker.takeUnpublished() else { return }
    for waiter in load.waiters {
      snapshots.report(waiter.job.id, ProgressReport(of: waiter.job, progress))
    }
  }

  /// Publishes the progress of a job's loads, so that it precedes the next event of the job.
  func showProgress(of id: JobID) { for load in loads(of: id) { showProgress(of: load) } }
}
