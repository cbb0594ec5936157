internal import Jobs
internal import Synchronization
internal import Waiting

/// What this process works on: its loads, by the request that they answer, and the stages after them; each by its jobs.
final class Loads: ClaimedJobs {
  /// Which load a claimed job got into.
  enum Entry: Sendable {
    /// Into a load that is under way.
    case joined(Load)
    /// Into a new one, to be carried out.
    case began(Load)
    /// None: the service stops.
    case refused
  }

  private struct State {
    var all: [ObjectIdentifier: Load] = [:]
    var finishing: [ObjectIdentifier: FinishingJobs] = [:]
    var byRequest: [Fingerprint: Load] = [:]
    // A job's next run can begin while its cancelled one is still ending.
    var byJob: [JobID: [Claim: (carrier: any JobCarrier, version: Int, part: WaitingMemory.Part)]] =
      [:]
    var memory = WaitingMemory()
    /// Running loads may end, but take no more jobs from the queue, and none begins in the background.
    var isStopping = false
    var closedAt: ContinuousClock.Instant?

    /// Whether nothing is under way.
    var isEmpty: Bool { all.isEmpty && finishing.isEmpty }

    /// Takes a job's run away from what carries it.
    /// - Returns: nil where it was out.
    mutating func take(_ claim: Claim) -> (any JobCarrier)? {
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

  /// How long it may take to store the ends of cancelled loads, before the rest is left to the next start.
  static let grace = Duration.milliseconds(500)

  /// Yields when a load begins.
  let beginnings: AsyncStream<Void>
  /// Opens when the service stops and the last load has ended.
  let emptied = Latch()
  /// Opens when all loads are cancelled because the service stops.
  let closing = Latch()
  private let signal: AsyncStream<Void>.Continuation
  private let state = Mutex(State())
  private let factory: LoadFactory
  private let snapshots: JobSnapshots
  private let metrics: JobMetrics

  init(_ factory: LoadFactory, snapshots: JobSnapshots, metrics: JobMetrics) {
    (self.factory, self.snapshots, self.metrics) = (factory, snapshots, metrics)
    (beginnings, signal) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
  }

  /// What the operator allows each load.
  var rules: LoadRules { factory.rules }

  /// A job's part in a load that it enters now.
  func waiter(_ job: Job, _ claim: Claim) -> Load.Waiter { factory.waiter(job, claim) }

  /// Puts a job into the load of its request; a new one where there is none.
  /// - Parameter lane: whose priority a new one's jobs decide.
  func enter(_ waiter: Load.Waiter, on lane: any ComputeLane) -> Entry {
    let request = waiter.job.request
    let moment = factory.now()
    let entry = state.withLock { state -> Entry in
      if state.closedAt != nil { return .refused }
      if let request, let load = state.byRequest[request] {
        if !join([waiter], load, at: moment, &state).isEmpty { return .joined(load) }
      }
      let load = factory.load(for: waiter.job, request: request, on: lane)
      _ = load.join([waiter])
      state.all[ObjectIdentifier(load)] = load
      if let request { state.byRequest[request] = load }
      note(waiter, in: load, state.memory.hold(waiter.job), &state)
      return .began(load)
    }
    switch entry {
    case .refused: break
    case .began: signal.yield()
    case .joined: metrics.joined(1)
    }
    return entry
  }

  /// Puts jobs that ask the same into a load.
  /// - Returns: those that it takes.
  func enter(_ waiters: [Load.Waiter], _ load: Load) -> [Load.Waiter] {
    let moment = factory.now()
    let joined = state.withLock { state -> [Load.Waiter] in
      if state.closedAt != nil { return [] }
      return join(waiters, load, at: moment, &state)
    }
    metrics.joined(joined.count)
    return joined
  }

  /// Lets jobs join a load as far as there is memory for them. Where there is too little, no further jobs join it: they would
  /// be brought from the queue again and again.
  /// - Returns: those that joined.
  private func join(
    _ waiters: [Load.Waiter], _ load: Load, at moment: Timestamp, _ state: inout State
  ) -> [Load.Waiter] {
    var parts: [Claim: WaitingMemory.Part] = [:]
    for waiter in waiters {
      guard let part = state.memory.take(waiter.job, at: moment) else {
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
      if let part = parts[waiter.claim] { note(waiter, in: load, part, &state) }
    }
    return Array(joined)
  }

  /// About how many further jobs may join loads.
  var places: Int { state.withLock { $0.memory.places } }

  /// Puts jobs that have left a load, as their time was over, into one of their own: its origin is asked nothing more, and
  /// what is stored answers them.
  /// - Returns: nil where nobody waits for them any more.
  func split(_ late: [Load.Waiter], off load: Load, on lane: any ComputeLane) -> Load? {
    let own = factory.load(
      for: load.leader, request: nil, on: lane, after: load.tracker.progress)
    return state.withLock { state -> Load? in
      var waiters = late.filter { state.byJob[$0.job.id]?[$0.claim] != nil }
      guard !waiters.isEmpty else { return nil }
      // Nobody's is sooner than the fallback's: their time is not over once more.
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

  /// Notes jobs that end with a load which takes no more, so that they are shown, kept and cancelled like those that
  /// waited for it. ``forget(_:)`` ends that.
  func bring(_ jobs: [ClaimedJob], to load: Load) -> [Load.Waiter] {
    let waiters = jobs.map { waiter($0.job, $0.claim) }
    guard !waiters.isEmpty else { return [] }
    state.withLock { state in
      for waiter in waiters { note(waiter, in: load, state.memory.hold(waiter.job), &state) }
    }
    metrics.joined(waiters.count)
    for waiter in waiters { show(waiter, in: load) }
    return waiters
  }

  private func note(
    _ waiter: Load.Waiter, in carrier: any JobCarrier, _ part: WaitingMemory.Part,
    _ state: inout State
  ) {
    state.byJob[waiter.job.id, default: [:]][waiter.claim] = (carrier, waiter.job.version, part)
    // Under the lock, so that whoever takes it out again unpins it after this.
    snapshots.pin(waiter.job.id)
  }

  /// Has jobs with a pending result be carried by the stages after their load.
  /// - Parameter isFromLoad: whether a load carried them before; jobs that have left it since are left out.
  /// - Returns: false where none is left, or the service stops: jobs from the queue are to go back then.
  func enter(_ jobs: FinishingJobs, isFromLoad: Bool) -> Bool {
    let waiters = jobs.waiters
    var gone: [Load.Waiter] = []
    let begins = state.withLock { state in
      if state.closedAt != nil, !isFromLoad { return false }
      for waiter in waiters {
        if !isFromLoad {
          note(waiter, in: jobs, state.memory.hold(waiter.job), &state)
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
    for waiter in gone { jobs.leave(waiter.claim, forgetting: false) }
    if !isFromLoad {
      for waiter in waiters where snapshots.publish(waiter.job)?.job.phase != .loading {
        _ = leave(waiter.claim)
      }
    }
    signal.yield()
    return true
  }

  /// The jobs have ended, or left.
  func end(_ jobs: FinishingJobs) {
    let wasLast = state.withLock { state in
      state.finishing[ObjectIdentifier(jobs)] = nil
      return state.isStopping && state.isEmpty
    }
    if wasLast { emptied.open() }
  }

  /// Begins a load that freshens the cache, for which no job waits.
  /// - Returns: nil when the service stops.
  func beginInBackground(for job: Job, on lane: any ComputeLane) -> Load? {
    let load = factory.load(for: job, request: nil, on: lane, isBackground: true)
    let begins = state.withLock { state in
      if state.isStopping { return false }
      state.all[ObjectIdentifier(load)] = load
      return true
    }
    guard begins else { return nil }
    signal.yield()
    return load
  }

  /// The load that a job which asks this could join.
  func load(for request: Fingerprint) -> Load? { state.withLock { $0.byRequest[request] } }

  /// Lets no job join from now on; the caller ends those that waited, and calls ``forget(_:)`` for each.
  func seal(_ load: Load) -> [Load.Waiter] {
    state.withLock { state in
      state.close(load)
      return load.seal()
    }
  }

  /// A job's wait has ended.
  func forget(_ waiter: Load.Waiter) {
    if state.withLock({ $0.take(waiter.claim) }) != nil { snapshots.unpin(waiter.job.id) }
  }

  /// A job's claim turned out to be lost.
  func leave(_ waiter: Load.Waiter, _ load: Load) {
    load.leave(waiter.claim, forgetting: false)
    forget(waiter)
  }

  /// A job turned out to be no longer ours.
  /// - Returns: false when it had ended here.
  func leave(_ claim: Claim) -> Bool {
    guard let carrier = state.withLock({ $0.take(claim) }) else { return false }
    carrier.leave(claim, forgetting: false)
    snapshots.unpin(claim.job)
    return true
  }

  /// What is held of all jobs.
  var claims: Set<Claim> { state.withLock { Set($0.byJob.values.flatMap(\.keys)) } }

  /// The load has ended, and with it all who waited.
  func end(_ load: Load) {
    let wasLast = state.withLock { state in
      state.all[ObjectIdentifier(load)] = nil
      return state.isStopping && state.isEmpty
    }
    load.end.open()
    if wasLast { emptied.open() }
  }

  /// Takes a job out of the loads that it joined at a lower version.
  /// - Parameter forgetting: whether the bytes so far are not to be kept, unless others want them.
  func leave(_ id: JobID, before version: Int, forgetting: Bool = false) {
    let left = state.withLock { state -> [(Claim, any JobCarrier)] in
      let claims = (state.byJob[id] ?? [:]).filter { $0.value.version < version }.keys
      return claims.compactMap { claim in state.take(claim).map { (claim, $0) } }
    }
    for (claim, carrier) in left {
      carrier.leave(claim, forgetting: forgetting)
      snapshots.unpin(id)
    }
  }

  /// Gives the job's loads its new priority.
  func prioritize(_ id: JobID, _ priority: Priority) {
    let runs = state.withLock { $0.byJob[id] ?? [:] }
    for (claim, run) in runs { run.carrier.prioritize(claim, priority) }
  }

  /// Cancels the background loads; those that jobs wait for go on to their end.
  func stop() {
    let (background, isEmpty) = state.withLock { state in
      state.isStopping = true
      return (state.all.values.filter(\.isBackground), state.isEmpty)
    }
    for load in background { load.cancel() }
    if isEmpty { emptied.open() }
  }

  /// Cancels all loads, and lets none begin any more.
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

  /// Whether ends that are not stored by now are left to the next start, which runs those jobs again.
  var isOver: Bool {
    state.withLock { $0.closedAt.map { $0 + Self.grace <= .now } ?? false }
  }

  /// Waits for loads that were cancelled and are still setting aside what came of the same bytes.
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

  /// The jobs that something is done for.
  var waiters: [Load.Waiter] {
    let (loads, finishing) = state.withLock { (Array($0.all.values), Array($0.finishing.values)) }
    return loads.flatMap(\.waiters) + finishing.flatMap(\.waiters)
  }

  /// Jobs in the stages after their load.
  var finishing: [FinishingJobs] { state.withLock { Array($0.finishing.values) } }
  var isEmpty: Bool { state.withLock { $0.isEmpty } }
  var all: [Load] { state.withLock { Array($0.all.values) } }
  var count: Int { state.withLock { $0.all.count } }

  /// When the one that runs longest began.
  var oldest: Timestamp? { state.withLock { $0.all.values.map(\.since).min() } }
}

/// What owners see of their jobs while they are loaded.
extension Loads {
  /// Shows that a job is loading, and how far that is. One that was cancelled or purged meanwhile leaves the load.
  func show(_ waiter: Load.Waiter, in load: Load) {
    guard snapshots.publish(waiter.job)?.job.phase == .loading else { return leave(waiter, load) }
    let progress = load.tracker.progress
    if progress != LoadProgress() {
      snapshots.report(waiter.job.id, ProgressReport(of: waiter.job, progress))
    }
  }

  /// Shows how far a load has come since this was last done.
  func showProgress(of load: Load) {
    guard let progress = load.tracker.takeUnshown() else { return }
    for waiter in load.waiters {
      snapshots.report(waiter.job.id, ProgressReport(of: waiter.job, progress))
    }
  }

  /// Shows how far a job's load has come, before something else happens to the job.
  func showProgress(of id: JobID) { for load in loads(of: id) { showProgress(of: load) } }
}

/// Makes loads, and jobs' parts in them, by the operator's rules.
struct LoadFactory: Sendable {
  let rules: LoadRules
  let ids: JobIDSequence
  let now: WallClock

  /// A job's part in a load that it enters now.
  func waiter(_ job: Job, _ claim: Claim) -> Load.Waiter {
    let job = rules.sharing(job)
    let limits = JobLimits(of: job, within: rules)
    return Load.Waiter(
      job: job, claim: claim, limits: limits, deadline: .now + limits.timeout,
      priority: job.priority)
  }

  /// A new load for a job.
  /// - Parameters:
  ///   - request: what others that may join ask; nil: none may.
  ///   - progress: of a load that its jobs waited for before.
  func load(
    for job: Job, request: Fingerprint?, on lane: any ComputeLane, isBackground: Bool = false,
    after progress: LoadProgress = LoadProgress()
  ) -> Load {
    let moment = now()
    return Load(
      for: rules.sharing(job), request: request, holder: ids.next(at: moment), since: moment,
      lane: lane, isBackground: isBackground, progress: progress,
      stages: rules.isTraced ? LoadStages() : nil)
  }
}

/// What the operator allows each load.
struct LoadRules: Sendable {
  /// For a whole transfer.
  var timeout: Duration
  /// Of one image.
  var maxBytes: Int
  /// Of one image.
  var maxPixels: Int
  /// Whether jobs of different owners share loads and the cache.
  var isShared: Bool
  /// Whether somebody wants to know when their stages began and ended.
  var isTraced = false

  /// The job as it shares by the present configuration, which may have changed since it was submitted.
  func sharing(_ job: Job) -> Job {
    var job = job
    job.isApart = !isShared
    return job
  }
}
