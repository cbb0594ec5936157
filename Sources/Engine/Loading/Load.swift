internal import Jobs
internal import Synchronization
internal import Waiting

/// One transfer and decode, shared by all jobs with the same request. It is cancelled when the last waiting job is removed.
///
/// A lock guards its state: workers, the ``ProgressWatch`` and API calls use it from different threads.
final class Load: JobCarrier {
  typealias Instant = ContinuousClock.Instant

  /// A job that waits for the load.
  struct Waiter: Sendable {
    /// The job as it was claimed, or as it was last stored.
    let job: Job
    let claim: Claim
    let limits: JobLimits
    /// The moment at which the job's own timeout expires.
    var deadline: Instant
    /// The job's current priority. Clients may change it while the job waits.
    var priority: Priority

    /// Returns the same waiter with a newer version of the job.
    func with(_ job: Job) -> Waiter {
      Waiter(job: job, claim: claim, limits: limits, deadline: deadline, priority: priority)
    }
  }

  /// A job that fails before the load ends, for example because of its own timeout.
  struct EarlyEnd: Sendable {
    let waiter: Waiter
    let failure: JobFailure
  }

  private struct State {
    var waiters: [Claim: Waiter] = [:]
    /// The number of waiting jobs of each priority.
    var priorities = [Int](repeating: 0, count: Priority.allCases.count)
    // Lower bounds of the waiters' byte limits and deadlines. They avoid a scan of thousands of waiters for each piece
    // and each tick. They are not raised when a waiter is removed.
    var leastBytes = Int.max
    var firstDeadline: Instant?
    var earlyEnds: [EarlyEnd] = []
    /// Whether a task of the ``ProgressWatch`` is storing early ends.
    var storesEarlyEnds = false
    var header: ImageHeader?
    /// The number of tasks that move equal jobs from the queue into this load.
    var coalescers = 0
    /// No further task may start to move jobs from the queue.
    var isCoalesced = false
    /// No job may join: the end of the load is being stored.
    var isSealed = false
    var discardsBytes = false
    var task: Task<Void, Never>?
    var isCancelled = false
    var reserves = false
    var pausedSince: Instant?
    /// Set while a stale stored response can replace the origin's. At `deadline` the transfer is stopped, and the waiting
    /// jobs get the stored response. A job with an earlier deadline gets it earlier. Jobs with a timeout longer than
    /// `timeout` may not join, because the transfer would be stopped before their time has expired.
    var fallback: (deadline: Instant, timeout: Duration)?
    /// Bytes received by the transfers of this load.
    var transferred = 0
    /// An earlier load of the same request whose end is being stored.
    var predecessor: Load?
    /// The part of these bytes that was already counted for each owner.
    var charged: [Owner: Int] = [:]

    /// The highest priority of the waiting jobs; nil if none waits.
    var priority: Priority? {
      priorities.lastIndex { $0 > 0 }.flatMap(Priority.init)
    }

    mutating func add(_ waiter: Waiter) {
      waiters[waiter.claim] = waiter
      priorities[waiter.priority.rawValue] += 1
      leastBytes = min(leastBytes, waiter.limits.maxBytes)
      firstDeadline = min(firstDeadline ?? waiter.deadline, waiter.deadline)
    }

    /// Counts bytes for owners that were not yet counted for them.
    /// - Returns: the bytes to add for each owner.
    mutating func charge(_ owners: Set<Owner>) -> [Owner: Int] {
      var charges: [Owner: Int] = [:]
      for owner in owners {
        let charge = transferred - (charged[owner] ?? 0)
        if charge > 0 { (charges[owner], charged[owner]) = (charge, transferred) }
      }
      return charges
    }

    mutating func remove(_ claim: Claim) -> Waiter? {
      guard let waiter = waiters.removeValue(forKey: claim) else { return nil }
      priorities[waiter.priority.rawValue] -= 1
      return waiter
    }

    mutating func failEarly(_ waiter: Waiter, _ failure: JobFailure) {
      guard remove(waiter.claim) != nil else { return }
      earlyEnds.append(EarlyEnd(waiter: waiter, failure: failure))
    }

    /// Fails the jobs whose limits are exceeded by the received bytes or by the size in the header.
    mutating func failEarly(received: Int) {
      var least = Int.max
      for waiter in waiters.values {
        if let failure = waiter.limits.failure(bytes: received, header: header) {
          failEarly(waiter, failure)
        } else {
          least = min(least, waiter.limits.maxBytes)
        }
      }
      leastBytes = least
    }
  }

  /// The number of waiting jobs at which no more are moved from the queue. The stored image answers the others later.
  static let mostWaiters = 10_000

  /// The job that started the load. The request is read from it.
  let leader: Job
  /// The request that the waiting jobs have in common; nil if no other job may join.
  let request: Fingerprint?
  private let holder: JobID
  let since: Timestamp
  let tracker: ProgressTracker
  /// The times of the stages, for traces; nil if tracing is off.
  let stages: LoadStages?
  private let lane: any ComputeLane
  /// Whether the load refreshes the cache. It then continues although no job waits.
  let isBackground: Bool
  /// Opens when the load has ended, and all jobs that waited for it have ended too.
  let end = Latch()
  private let allCoalesced = Latch()
  private let state: Mutex<State>

  init(
    for leader: Job, request: Fingerprint?, holder: JobID, since: Timestamp,
    lane: any ComputeLane, isBackground: Bool, predecessor: Load?, progress: LoadProgress,
    stages: LoadStages?
  ) {
    self.stages = stages
    self.leader = leader
    self.request = request
    self.holder = holder
    self.since = since
    self.lane = lane
    self.isBackground = isBackground
    tracker = ProgressTracker(progress)
    state = Mutex(State(predecessor: predecessor))
  }

  /// Sets the task that carries out the load. Cancels the task if the load was already cancelled.
  func run(as task: Task<Void, Never>) {
    let isCancelled = state.withLock { state in
      state.task = task
      return state.isCancelled
    }
    if isCancelled { task.cancel() }
  }

  /// Waits, at most 2 s, until the load before this one has ended: the cache can then answer with its response.
  func awaitPredecessor() async {
    let predecessor = state.withLock { $0.predecessor.take() }
    await predecessor?.end.wait(until: .now + .seconds(2))
  }

  /// Adds jobs to the load.
  /// - Returns: the jobs that were refused: the load is ending, or their timeout is longer than that of the fallback.
  func join(_ waiters: [Waiter]) -> [Waiter] {
    state.withLock { state in
      guard !state.isSealed, !state.isCancelled else { return waiters }
      let longest = state.fallback?.timeout ?? .seconds(Int64.max)
      let received = tracker.received
      for waiter in waiters where waiter.limits.timeout <= longest {
        state.add(waiter)
        if let failure = waiter.limits.failure(bytes: received, header: state.header) {
          state.failEarly(waiter, failure)
        }
      }
      lane.move(to: state.priority ?? leader.priority)
      let refused = waiters.filter { $0.limits.timeout > longest }
      // The queue would offer the refused jobs again and again.
      if !refused.isEmpty { state.isCoalesced = true }
      return refused
    }
  }

  /// Returns the ID under which the load reserves images. From now on ``reservation`` must be released.
  func reserving() -> JobID {
    state.withLock { $0.reserves = true }
    return holder
  }

  /// The ID under which the load may have reserved images, which the caller must release; nil if it reserved none.
  var reservation: JobID? { state.withLock { $0.reserves } ? holder : nil }

  /// Whether its jobs store only variants, not the image itself (`"original": "drop"`).
  var dropsOriginal: Bool { leader.submission.dropsOriginal }

  /// The variants that the decode makes: the leader's, without duplicates.
  var wantedVariants: [VariantRequest] {
    var known: Set<VariantRequest> = []
    return leader.submission.recipes.filter { known.insert($0).inserted }
  }

  /// Whether the leader's variants are enough for all jobs, so that the image itself need not be stored.
  var needsLeaderVariantsOnly: Bool {
    guard dropsOriginal, leader.submission.deliveries.allSatisfy({ $0.variant != nil }) else {
      return false
    }
    return waiters.allSatisfy { waiter in
      waiter.job.submission.recipes == leader.submission.recipes
        && waiter.job.submission.deliveries.allSatisfy { $0.variant != nil }
    }
  }

  // MARK: Bytes per owner

  /// Counts the bytes of a transfer that has ended.
  /// - Returns: the bytes to add for each owner: the leader's owner and the owners of the waiting jobs.
  func charge(transferred bytes: Int) -> [Owner: Int] {
    state.withLock { state in
      state.transferred += bytes
      return state.charge(Set(state.waiters.values.map(\.job.owner)).union([leader.owner]))
    }
  }

  /// Counts the transfers of this load for the owners of jobs that end now.
  /// - Returns: the bytes to add for each owner, without those that were already counted.
  func charge(_ waiters: [Waiter]) -> [Owner: Int] {
    state.withLock { state in
      guard state.transferred > 0 else { return [:] }
      return state.charge(Set(waiters.map(\.job.owner)))
    }
  }

  // MARK: Jobs from the queue

  /// Registers a task that moves equal jobs from the queue into this load. The load does not end before
  /// ``endCoalescing()``, so that all these jobs share its result.
  /// - Returns: false if the load accepts no more jobs.
  func beginCoalescing() -> Bool {
    state.withLock { state in
      guard !state.isCoalesced, !state.isSealed, !state.isCancelled else { return false }
      state.coalescers += 1
      return true
    }
  }

  func endCoalescing() {
    let isLast = state.withLock { state in
      state.coalescers -= 1
      return state.coalescers == 0 && state.isCoalesced
    }
    if isLast { allCoalesced.open() }
  }

  /// Lets no further task start to move jobs from the queue.
  func refuseCoalescing() { state.withLock { $0.isCoalesced = true } }

  /// Waits for the tasks that move jobs from the queue, and lets no other task start. Does not wait if the load is
  /// cancelled.
  func coalesced() async {
    let isDone = state.withLock { state in
      state.isCoalesced = true
      return state.coalescers == 0
    }
    if !isDone { await allCoalesced.wait() }
  }

  // MARK: Ends of waits

  /// Removes a job that was cancelled or whose claim was lost.
  /// - Parameter discardingBytes: whether the received bytes are deleted if no job is left.
  func remove(_ claim: Claim, discardingBytes: Bool) {
    change { state in
      guard state.remove(claim) != nil else { return }
      state.discardsBytes = discardingBytes
    }
  }

  /// Changes the priority of a waiting job.
  func prioritize(_ claim: Claim, _ priority: Priority) {
    change { state in
      guard let waiter = state.waiters[claim] else { return }
      state.priorities[waiter.priority.rawValue] -= 1
      state.priorities[priority.rawValue] += 1
      state.waiters[claim]?.priority = priority
    }
  }

  /// Fails the jobs whose limit is lower than the number of bytes received or announced.
  func received(bytes: Int) {
    change { state in
      if bytes > state.leastBytes { state.failEarly(received: bytes) }
    }
  }

  /// Fails the jobs whose limits the image's header exceeds.
  func received(_ header: ImageHeader) {
    change { state in
      state.header = header
      state.failEarly(received: 0)
    }
  }

  /// Fails the jobs whose deadline has passed. Deadlines do not pass while the load waits for memory.
  /// - Returns: jobs that were removed instead and get the stored response. The transfer continues for the others.
  func timeOut(_ now: Instant) -> [Waiter] {
    var late: [Waiter] = []
    change { state in
      guard state.pausedSince == nil, let first = state.firstDeadline, first <= now else { return }
      var next: Instant?
      for waiter in state.waiters.values {
        if let fallback = state.fallback, waiter.deadline >= fallback.deadline { continue }
        if waiter.deadline > now {
          next = min(next ?? waiter.deadline, waiter.deadline)
        } else if state.fallback != nil {
          _ = state.remove(waiter.claim)
          late.append(waiter)
        } else {
          let failure = FetchError.timeout(seconds: waiter.limits.timeout.inSeconds)
          state.failEarly(waiter, .fetch(failure))
        }
      }
      // Jobs that wait for the fallback are checked again at its deadline.
      state.firstDeadline = state.fallback.map { min(next ?? $0.deadline, $0.deadline) } ?? next
    }
    return late
  }

  /// Allows a stored response to replace the origin's. If the transfer has not finished at the latest deadline of the
  /// waiting jobs, it is stopped, and the jobs get the stored response instead of a timeout.
  func beginFallback() {
    state.withLock { state in
      let last = state.waiters.values.max { $0.deadline < $1.deadline }
      state.fallback = last.map { ($0.deadline, $0.limits.timeout) }
    }
  }

  /// The stored response is not needed, or it cannot be used.
  func endFallback() { state.withLock { $0.fallback = nil } }

  /// A job with less time left than this gets the stored response too. Otherwise a sequence of late jobs could restart
  /// the transfer forever.
  private static let slack = Duration.seconds(1)

  /// Seals the load after its transfer was stopped for the fallback, and removes the jobs that still have time. The
  /// caller must requeue them.
  /// - Returns: nil if there is no fallback.
  func removeJobsWithTimeLeft() -> [Waiter]? {
    state.withLock { state -> [Waiter]? in
      guard let fallback = state.fallback else { return nil }
      state.isSealed = true
      let patient = state.waiters.values.filter { $0.deadline > fallback.deadline + Self.slack }
      for waiter in patient { _ = state.remove(waiter.claim) }
      return patient
    }
  }

  /// The time left for a transfer; nil if it may continue as long as a job waits.
  var timeLeft: Duration? {
    state.withLock { $0.fallback }.map {
      max(.milliseconds(1), Instant.now.duration(to: $0.deadline))
    }
  }

  /// Stops the clocks of the waiting jobs until ``resume()``.
  func pause() { state.withLock { $0.pausedSince = .now } }

  func resume() {
    state.withLock { state in
      guard let since = state.pausedSince.take() else { return }
      let pause = since.duration(to: .now)
      for claim in state.waiters.keys { state.waiters[claim]?.deadline += pause }
      state.firstDeadline? += pause
      state.fallback?.deadline += pause
    }
  }

  /// Removes and returns the jobs that failed early. The caller must store their ends.
  func removeEarlyEnds() -> [EarlyEnd] {
    state.withLock { state in
      defer { state.earlyEnds = [] }
      return state.earlyEnds
    }
  }

  /// Registers a task that stores early ends while the load continues, until ``endStoringEarlyEnds()``.
  /// - Returns: false if there are no early ends, or if another task stores them.
  func beginStoringEarlyEnds() -> Bool {
    state.withLock { state in
      guard !state.earlyEnds.isEmpty, !state.storesEarlyEnds else { return false }
      state.storesEarlyEnds = true
      return true
    }
  }

  func endStoringEarlyEnds() { state.withLock { $0.storesEarlyEnds = false } }

  /// Lets no job join from now on.
  /// - Returns: the waiting jobs, which the caller must end.
  func seal() -> [Waiter] {
    state.withLock { state in
      state.isSealed = true
      defer { state.waiters = [:] }
      return Array(state.waiters.values)
    }
  }

  /// Cancels the load, even if jobs wait for it.
  func cancel() { change { $0.isCancelled = true } }

  var isCancelled: Bool { state.withLock { $0.isCancelled } }
  var waiters: [Waiter] { state.withLock { Array($0.waiters.values) } }
  var waiterCount: Int { state.withLock { $0.waiters.count } }
  var discardsBytes: Bool { state.withLock { $0.discardsBytes } }

  /// Changes the waiting jobs, and cancels the load if none is left.
  private func change(_ body: (inout State) -> Void) {
    let task = state.withLock { state -> Task<Void, Never>? in
      body(&state)
      if let priority = state.priority { lane.move(to: priority) }
      if state.waiters.isEmpty, !isBackground, !state.isSealed { state.isCancelled = true }
      return state.isCancelled ? state.task : nil
    }
    task?.cancel()
  }
}

/// The limits of one job: its own options, at most those of the configuration.
struct JobLimits: Sendable {
  let timeout: Duration
  let maxBytes: Int
  let maxPixels: Int

  init(of job: Job, within rules: LoadRules) {
    let asked = job.submission
    timeout = min(asked.timeout ?? rules.timeout, rules.timeout)
    maxBytes = min(asked.maxBytes ?? rules.maxBytes, rules.maxBytes)
    maxPixels = min(asked.maxPixels ?? rules.maxPixels, rules.maxPixels)
  }

  /// Returns the failure of this job for an image of that size; nil if the size is within its limits.
  func failure(bytes: Int, header: ImageHeader?) -> JobFailure? {
    if bytes > maxBytes { return .fetch(.tooLarge(limit: maxBytes)) }
    guard let header, header.width * header.height > maxPixels else { return nil }
    return .codec(
      .tooManyPixels(width: header.width, height: header.height, limit: maxPixels))
  }
}

/// Makes loads and waiters with the configured limits.
struct LoadFactory: Sendable {
  let rules: LoadRules
  let ids: JobIDSequence
  let now: WallClock

  /// Returns the waiter for a job that enters a load now.
  func waiter(_ job: Job, _ claim: Claim) -> Load.Waiter {
    let job = rules.sharing(job)
    let limits = JobLimits(of: job, within: rules)
    return Load.Waiter(
      job: job, claim: claim, limits: limits, deadline: .now + limits.timeout,
      priority: job.priority)
  }

  /// Makes a load for a job.
  /// - Parameters:
  ///   - request: the request that joining jobs must have; nil: no job joins.
  ///   - predecessor: the load of the same request whose end is being stored.
  ///   - progress: the progress of an earlier load of the same jobs.
  func load(
    for job: Job, request: Fingerprint?, on lane: any ComputeLane, isBackground: Bool = false,
    following predecessor: Load? = nil, after progress: LoadProgress = LoadProgress()
  ) -> Load {
    let moment = now()
    return Load(
      for: rules.sharing(job), request: request, holder: ids.next(at: moment), since: moment,
      lane: lane, isBackground: isBackground, predecessor: predecessor, progress: progress,
      stages: rules.isTraced ? LoadStages() : nil)
  }
}

/// The configured limits of each load.
struct LoadRules: Sendable {
  /// The timeout of a whole transfer.
  var timeout: Duration
  /// Bytes of one image.
  var maxBytes: Int
  /// Pixels of one image.
  var maxPixels: Int
  /// Whether jobs of different owners share loads and the cache.
  var isShared: Bool
  /// Whether traces record the times of the stages.
  var isTraced = false

  /// Applies the present setting of `cache.shared`, which may have changed since the job was submitted.
  func sharing(_ job: Job) -> Job {
    var job = job
    job.isApart = !isShared
    return job
  }
}
