internal import Jobs
internal import Synchronization
internal import Waiting

/// One transfer and decode, for all the jobs that ask the same and wait for it. It stops when the last of them leaves.
final class Load: JobCarrier {
  typealias Instant = ContinuousClock.Instant

  /// A job that waits for the load.
  struct Waiter: Sendable {
    /// As it was taken, or last written.
    let job: Job
    let claim: Claim
    let limits: JobLimits
    /// When its own timeout is over.
    var deadline: Instant
    /// Its job's, which may be changed meanwhile.
    var priority: Priority

    /// The same with the job as it is by now.
    func carrying(_ job: Job) -> Waiter {
      Waiter(job: job, claim: claim, limits: limits, deadline: deadline, priority: priority)
    }
  }

  /// A job that ends before the others.
  struct EarlyEnd: Sendable {
    let waiter: Waiter
    let failure: JobFailure
  }

  private struct State {
    var waiters: [Claim: Waiter] = [:]
    /// How many jobs of each priority wait.
    var priorities = [Int](repeating: 0, count: Priority.allCases.count)
    // Bounds, so that thousands of waiters aren't looked through for each piece and each tick: no waiter's limit of
    // bytes is lower, no waiter's deadline is sooner. They stay as they are when a waiter leaves.
    var leastBytes = Int.max
    var firstDeadline: Instant?
    var earlyEnds: [EarlyEnd] = []
    /// Whether somebody is storing such ends for who watches the time.
    var isEndingEarly = false
    var header: ImageHeader?
    /// How many are bringing jobs from the queue.
    var coalescers = 0
    /// Nobody begins any more to bring jobs from the queue.
    var isCoalesced = false
    /// No job may join any more: its end is being stored.
    var isSealed = false
    var forgetsBytes = false
    var task: Task<Void, Never>?
    var isCancelled = false
    var reserves = false
    var pausedSince: Instant?
    /// When a stored response takes the place of the origin's, for all who wait then; who has less time leaves before, for
    /// the same response. And how much time who joins may have at the most, as the transfer is cut then: else jobs with
    /// little time could cut those of others for ever.
    var fallback: (deadline: Instant, timeout: Duration)?
    /// Bytes that its transfers have brought.
    var transferred = 0
    /// How many of these were counted for each owner.
    var charged: [Owner: Int] = [:]

    /// The highest of those who wait.
    var priority: Priority? {
      priorities.lastIndex { $0 > 0 }.flatMap(Priority.init)
    }

    mutating func add(_ waiter: Waiter) {
      waiters[waiter.claim] = waiter
      priorities[waiter.priority.rawValue] += 1
      leastBytes = min(leastBytes, waiter.limits.maxBytes)
      firstDeadline = min(firstDeadline ?? waiter.deadline, waiter.deadline)
    }

    /// Charges what was not charged before.
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

    mutating func endEarly(_ waiter: Waiter, _ failure: JobFailure) {
      guard remove(waiter.claim) != nil else { return }
      earlyEnds.append(EarlyEnd(waiter: waiter, failure: failure))
    }

    /// Ends the jobs whose limits so many bytes, or the header's size, exceed.
    mutating func endEarly(received: Int) {
      var least = Int.max
      for waiter in waiters.values {
        if let failure = waiter.limits.objection(bytes: received, header: header) {
          endEarly(waiter, failure)
        } else {
          least = min(least, waiter.limits.maxBytes)
        }
      }
      leastBytes = least
    }
  }

  /// Beyond so many jobs no more are brought from the queue: the stored image answers those that are left.
  static let mostWaiters = 10_000

  /// The job that it was begun for: what all who wait ask is read from here.
  let leader: Job
  /// What all who wait have in common; nil: it is the leader's alone.
  let request: Fingerprint?
  private let holder: JobID
  let since: Timestamp
  let tracker: ProgressTracker
  /// Nil where nobody traces.
  let stages: LoadStages?
  private let lane: any ComputeLane
  /// Whether it goes on though no job waits: it freshens the cache.
  let isBackground: Bool
  /// Opens when it has ended, and with it all who waited.
  let end = Latch()
  private let allCoalesced = Latch()
  private let state = Mutex(State())

  init(
    for leader: Job, request: Fingerprint?, holder: JobID, since: Timestamp,
    lane: any ComputeLane, isBackground: Bool = false, progress: LoadProgress = LoadProgress(),
    stages: LoadStages? = nil
  ) {
    self.stages = stages
    self.leader = leader
    self.request = request
    self.holder = holder
    self.since = since
    self.lane = lane
    self.isBackground = isBackground
    tracker = ProgressTracker(progress)
  }

  /// Names the task that carries the load out, so that it can be cancelled; at once where the load was.
  func run(as task: Task<Void, Never>) {
    let isCancelled = state.withLock { state in
      state.task = task
      return state.isCancelled
    }
    if isCancelled { task.cancel() }
  }

  /// - Returns: the jobs that come too late, or with too much time for its fallback.
  func join(_ waiters: [Waiter]) -> [Waiter] {
    state.withLock { state in
      guard !state.isSealed, !state.isCancelled else { return waiters }
      let longest = state.fallback?.timeout ?? .seconds(Int64.max)
      let received = tracker.received
      for waiter in waiters where waiter.limits.timeout <= longest {
        state.add(waiter)
        if let failure = waiter.limits.objection(bytes: received, header: state.header) {
          state.endEarly(waiter, failure)
        }
      }
      lane.move(to: state.priority ?? leader.priority)
      let refused = waiters.filter { $0.limits.timeout > longest }
      // They would be brought from the queue again and again.
      if !refused.isEmpty { state.isCoalesced = true }
      return refused
    }
  }

  /// The name under which it reserves an image from now on.
  func reserving() -> JobID {
    state.withLock { $0.reserves = true }
    return holder
  }

  /// The name under which it may have reserved images: a reservation to be ended. Nil where it reserved none.
  var reservation: JobID? { state.withLock { $0.reserves } ? holder : nil }

  /// Whether none of its jobs keeps the image's own bytes.
  var dropsOriginal: Bool { leader.submission.dropsOriginal }

  /// The variants that its decode makes on its way: the leader's, each once.
  var wantedVariants: [VariantRequest] {
    var known: Set<VariantRequest> = []
    return leader.submission.recipes.filter { known.insert($0).inserted }
  }

  /// Whether its jobs need nothing but the leader's variants: not the image's own bytes.
  var needsLeaderVariantsOnly: Bool {
    guard dropsOriginal, leader.submission.deliveries.allSatisfy({ $0.variant != nil }) else {
      return false
    }
    return waiters.allSatisfy { waiter in
      waiter.job.submission.recipes == leader.submission.recipes
        && waiter.job.submission.deliveries.allSatisfy { $0.variant != nil }
    }
  }

  // MARK: Whose transfers they were

  /// A transfer has ended, after so many bytes.
  /// - Returns: the bytes to count for each owner: that of the leader, and those whose jobs wait.
  func charge(transferred bytes: Int) -> [Owner: Int] {
    state.withLock { state in
      state.transferred += bytes
      return state.charge(Set(state.waiters.values.map(\.job.owner)).union([leader.owner]))
    }
  }

  /// Jobs end by what the transfers brought.
  /// - Returns: the bytes to count for their owners, as far as they were not counted before.
  func charge(_ waiters: [Waiter]) -> [Owner: Int] {
    state.withLock { state in
      guard state.transferred > 0 else { return [:] }
      return state.charge(Set(waiters.map(\.job.owner)))
    }
  }

  // MARK: Jobs from the queue

  /// Somebody begins to bring jobs that ask the same: the load doesn't end before ``endCoalescing()``, so that all of
  /// those share its end.
  /// - Returns: false when it is too late.
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

  /// Lets nobody begin any more to bring jobs.
  func refuseCoalescing() { state.withLock { $0.isCoalesced = true } }

  /// Waits for those who are bringing jobs, and lets nobody else begin to. A cancelled load waits for nobody.
  func coalesced() async {
    let isDone = state.withLock { state in
      state.isCoalesced = true
      return state.coalescers == 0
    }
    if !isDone { await allCoalesced.wait() }
  }

  // MARK: What ends a wait

  /// A job was cancelled, or its claim was lost.
  /// - Parameter forgetting: whether the bytes so far are not to be kept if it was the last.
  func leave(_ claim: Claim, forgetting: Bool) {
    change { state in
      guard state.remove(claim) != nil else { return }
      state.forgetsBytes = forgetting
    }
  }

  /// A job has another priority from now on.
  func prioritize(_ claim: Claim, _ priority: Priority) {
    change { state in
      guard let waiter = state.waiters[claim] else { return }
      state.priorities[waiter.priority.rawValue] -= 1
      state.priorities[priority.rawValue] += 1
      state.waiters[claim]?.priority = priority
    }
  }

  /// So many bytes are there or announced: jobs whose limit is lower end.
  func received(bytes: Int) {
    change { state in
      if bytes > state.leastBytes { state.endEarly(received: bytes) }
    }
  }

  /// The image's header was read.
  func received(_ header: ImageHeader) {
    change { state in
      state.header = header
      state.endEarly(received: 0)
    }
  }

  /// Ends the jobs whose deadline has come. While the load waits for memory, no time passes for them.
  /// - Returns: those that have left it and are to be given the stored response, while the transfer goes on for others.
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
          state.endEarly(waiter, .fetch(failure))
        }
      }
      // What a fallback holds back is looked at again, whatever becomes of that.
      state.firstDeadline = state.fallback.map { min(next ?? $0.deadline, $0.deadline) } ?? next
    }
    return late
  }

  /// A stored response may take the place of the origin's where that is not there when the time of the most patient job is
  /// over: the transfer ends then, and its wait does not.
  func beginFallback() {
    state.withLock { state in
      let last = state.waiters.values.max { $0.deadline < $1.deadline }
      state.fallback = last.map { ($0.deadline, $0.limits.timeout) }
    }
  }

  /// The stored response is not wanted, or of no use.
  func endFallback() { state.withLock { $0.fallback = nil } }

  /// Whoever has no more time left than this stays: jobs that came one behind the other would else go on for ever.
  private static let slack = Duration.seconds(1)

  /// The transfer was cut for the fallback: no job joins from now on, and those leave that have time left. The caller has
  /// to queue them again.
  /// - Returns: nil where there was none.
  func takePatient() -> [Waiter]? {
    state.withLock { state -> [Waiter]? in
      guard let fallback = state.fallback else { return nil }
      state.isSealed = true
      let patient = state.waiters.values.filter { $0.deadline > fallback.deadline + Self.slack }
      for waiter in patient { _ = state.remove(waiter.claim) }
      return patient
    }
  }

  /// How long a transfer may take; nil: for as long as a job waits.
  var timeLeft: Duration? {
    state.withLock { $0.fallback }.map {
      max(.milliseconds(1), Instant.now.duration(to: $0.deadline))
    }
  }

  /// No job's time is over from now on, until ``resume()`` if that comes.
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

  /// The jobs that have ended early since this was last asked: the caller has to store that.
  func takeEarlyEnds() -> [EarlyEnd] {
    state.withLock { state in
      defer { state.earlyEnds = [] }
      return state.earlyEnds
    }
  }

  /// Somebody begins to store early ends beside the load: ``endEndingEarly()`` ends that.
  /// - Returns: false where there are none, or somebody is at it.
  func beginEndingEarly() -> Bool {
    state.withLock { state in
      guard !state.earlyEnds.isEmpty, !state.isEndingEarly else { return false }
      state.isEndingEarly = true
      return true
    }
  }

  func endEndingEarly() { state.withLock { $0.isEndingEarly = false } }

  /// No job joins from now on; the caller has to end those that wait.
  func seal() -> [Waiter] {
    state.withLock { state in
      state.isSealed = true
      defer { state.waiters = [:] }
      return Array(state.waiters.values)
    }
  }

  /// Cancels the load, whoever waits for it.
  func cancel() { change { $0.isCancelled = true } }

  var isCancelled: Bool { state.withLock { $0.isCancelled } }
  var waiters: [Waiter] { state.withLock { Array($0.waiters.values) } }
  var waiterCount: Int { state.withLock { $0.waiters.count } }
  var forgetsBytes: Bool { state.withLock { $0.forgetsBytes } }

  /// Changes who waits, and cancels the load when nobody is left.
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

/// What a job itself says of time and size: never wider than the configuration.
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

  /// Why an image of that size is not for this job.
  func objection(bytes: Int, header: ImageHeader?) -> JobFailure? {
    if bytes > maxBytes { return .fetch(.tooLarge(limit: maxBytes)) }
    guard let header, header.width * header.height > maxPixels else { return nil }
    return .codec(
      .tooManyPixels(width: header.width, height: header.height, limit: maxPixels))
  }
}
