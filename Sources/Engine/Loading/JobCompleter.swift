internal import Jobs
internal import Logging
internal import Waiting

/// Ends work on jobs: in the store, and once that is durable, for whoever waits for them.
struct JobCompleter: Sendable {
  let writer: CompletionWriter
  let outcomes: JobOutcomes
  let publisher: JobPublisher
  let dispatcher: Dispatcher
  let loads: Loads
  let bytes: DailyBytes
  /// Jobs in one transaction, while which everybody else's changes wait.
  static let batch = 500

  /// How it ended for one job.
  enum Ending: Sendable {
    /// An image, what the cache did for it, and where it was brought.
    case success(StoredImage, CacheOutcome?, [Delivered] = [])
    /// The image is there; its variants or deliveries are still to be done, under the same claim.
    case pending(PendingResult)
    /// Perhaps to be tried again, or elsewhere.
    /// - Parameter pending: the state from which a retry continues; nil: it starts over.
    case failure(JobFailure, PendingResult? = nil)
    /// As if it had not been taken.
    case requeue
    /// The same, but not before that moment.
    case postpone(until: Timestamp)
    /// The pending result's image is gone: the job loads it again.
    case reload
  }

  /// The jobs that are not at their end.
  struct Left {
    /// Jobs that waited for the load at other instances: the caller ends them alike.
    var gathered: [Load.Waiter] = []
    /// Jobs with a pending result, as they then are: their claims go on.
    var unfinished: [Load.Waiter] = []
  }

  /// What is the same for all jobs that are written together.
  struct Common {
    /// Nil where it was written before.
    let progress: LoadProgress?
    let moment: Timestamp
    /// One for all: jobs that failed together are tried again together, as one load.
    let dice = Double.random(in: 0...1)
  }

  /// A change to one job, ready to be made by the store.
  private struct Plan: Sendable {
    let report: ProgressReport?
    /// Whether the job's claim goes on.
    let isPending: Bool
    let change: @Sendable (inout Job) -> Void
  }

  /// Writes down how a load ended for some who waited for it. Returns once that is durable; given up when the service
  /// stops, and the next start then runs the jobs again.
  ///
  /// - Parameters:
  ///   - entry: a response for the cache to keep: before the first of their owners knows.
  ///   - image: for the job store to keep.
  ///   - releasing: the reservation of an image that is kept already: it ends with the last of them.
  ///   - gathers: whether those are to be brought who waited for this load at other instances.
  @discardableResult
  func complete(
    _ waiters: [Load.Waiter], of load: Load, entry: CacheEntry? = nil,
    image: EmbeddedImage? = nil, releasing: JobID? = nil, gathers: Bool = false,
    _ ending: (Load.Waiter) -> Ending
  ) async -> Left {
    guard !waiters.isEmpty || entry != nil || releasing != nil else { return Left() }
    bytes.came(load.charge(waiters), at: outcomes.now())
    let common = Common(progress: load.tracker.progress, moment: outcomes.now())
    var rest = waiters[...]
    var entry = entry
    var left = Left()
    var gathered: [ClaimedJob] = []
    repeat {
      let some = rest.prefix(Self.batch)
      rest = rest.dropFirst(Self.batch)
      gathered += await complete(
        Array(some), entry: entry, image: image, releasing: rest.isEmpty ? releasing : nil,
        gathers: gathers && rest.isEmpty && !loads.isStopping, common, load.stages,
        &left.unfinished, ending)
      entry = nil
    } while !rest.isEmpty
    left.gathered = loads.bring(gathered, to: load)
    return left
  }

  /// Writes down what became of jobs after their load.
  ///
  /// - Parameters: as above.
  /// - Returns: jobs with a pending result, as they then are.
  @discardableResult
  func complete(
    _ waiters: [Load.Waiter], of jobs: FinishingJobs, image: EmbeddedImage? = nil,
    releasing: JobID? = nil, _ ending: (Load.Waiter) -> Ending
  ) async -> [Load.Waiter] {
    var unfinished: [Load.Waiter] = []
    guard !waiters.isEmpty || releasing != nil else { return unfinished }
    _ = await complete(
      waiters, entry: nil, image: image, releasing: releasing, gathers: false,
      Common(progress: nil, moment: outcomes.now()), jobs.stages, &unfinished, ending)
    return unfinished
  }

  private func complete(
    _ waiters: [Load.Waiter], entry: CacheEntry?, image: EmbeddedImage?, releasing: JobID?,
    gathers: Bool, _ common: Common, _ stages: LoadStages?, _ unfinished: inout [Load.Waiter],
    _ ending: (Load.Waiter) -> Ending
  ) async -> [ClaimedJob] {
    let began = ContinuousClock.now
    var plans: [JobID: Plan] = [:]
    for waiter in waiters { plans[waiter.job.id] = plan(ending(waiter), for: waiter, common) }
    let ready = plans
    let written = await writer.write(
      waiters.map(\.claim), entry: entry, image: image, releasing: releasing, gathers: gathers
    ) { job in
      guard let plan = ready[job.id] else { return false }
      if let report = plan.report { job.take(report) }
      plan.change(&job)
      return true
    }
    var gathered: [ClaimedJob] = []
    var jobs: [Job?] = waiters.map { _ in nil }
    switch written {
    case .durable(let completed):
      publish(completed.jobs, stages?.told(storedSince: began) ?? [])
      (gathered, jobs) = (completed.gathered, completed.jobs)
    case .stopped: break
    case .noRoom:
      return await complete(
        waiters, entry: nil, image: nil, releasing: releasing, gathers: false, common, stages,
        &unfinished
      ) { _ in .failure(.storageFull) }
    }
    for (waiter, job) in zip(waiters, jobs) {
      // After a lost answer, the job may be loading under another claim.
      if let job, job.phase == .loading, plans[waiter.job.id]?.isPending == true {
        unfinished.append(waiter.carrying(loads.rules.sharing(job)))
      } else {
        loads.forget(waiter)
      }
    }
    return gathered
  }

  /// Ends the jobs that have left a load before the others, each as it failed.
  func completeEarlyEnds(of load: Load) async {
    let ends = load.takeEarlyEnds()
    guard !ends.isEmpty else { return }
    let failures = Dictionary(
      ends.map { ($0.waiter.claim, $0.failure) }, uniquingKeysWith: { first, _ in first })
    await complete(ends.map(\.waiter), of: load) { waiter in
      .failure(failures[waiter.claim] ?? .internal)
    }
  }

  /// Jobs that nobody could begin with go back into the queue as if they had not been taken, in one step.
  func requeue(_ claims: [Claim]) async {
    let written = await writer.write(claims) { job in
      job.requeue()
      return true
    }
    if case .durable(let completed) = written { publish(completed.jobs) }
  }

  private func publish(_ jobs: [Job?], _ stages: [JobStage] = []) {
    var isAnyQueued = false
    for job in jobs.lazy.compactMap(\.self) {
      // No load ends a job so: whoever cancelled it tells that.
      let hasEnded = job.phase.isFinished && job.phase != .cancelled
      publisher.publish(job, hasEnded: hasEnded, stages)
      if !job.phase.isFinished { isAnyQueued = true }
    }
    if isAnyQueued { dispatcher.jobsWereQueued() }
  }

  private func plan(_ ending: Ending, for waiter: Load.Waiter, _ common: Common) -> Plan {
    var isPending = false
    if case .pending = ending { isPending = true }
    return Plan(
      report: common.progress.map { ProgressReport(of: waiter.job, $0) }, isPending: isPending,
      change: outcomes.change(ending, for: waiter, common))
  }
}

/// Writes down how work on jobs ended, however long the store is away.
struct CompletionWriter: Sendable {
  let store: any JobQueue
  let lease: Lease
  let keeper: ImageKeeper
  let cache: ResponseCache
  let loads: Loads
  let gate: QueueGate
  let log: Logger

  /// What came of it.
  enum Written {
    /// What it came to.
    case durable(Completed)
    /// The image that came has no room: nothing was changed.
    case noRoom
    /// The service stops: the next start runs the jobs again.
    case stopped
  }

  /// Has the store complete the jobs. Returns once that is durable.
  ///
  /// - Parameters: as ``Completion`` explains.
  func write(
    _ claims: [Claim], entry: CacheEntry? = nil, image: EmbeddedImage? = nil,
    releasing: JobID? = nil, gathers: Bool = false,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async -> Written {
    var completion = Completion(
      claims, by: lease.instance, entry: entry, cacheLimit: cache.limit, releasing: releasing,
      image: image, imageLimit: keeper.limit, change: change)
    completion.lastUse = cache.lastUse
    completion.gathers = gathers
    var wait = Duration.milliseconds(50)
    while !loads.isOver {
      do throws(StoreError) {
        let completed = try await store.complete(completion)
        gate.left(completed.gathered.lazy.map(\.job))
        if let entry { cache.noteStored(entry) }
        let fenced = zip(claims, completed.jobs).filter { $0.1 == nil }.map(\.0)
        lease.membership.metrics.fenced(fenced.count)
        // Whoever ended them may have told nobody: a cancelling, say, of which the answer was lost.
        for claim in fenced { lease.wasLost(claim) }
        await keeper.removeLater(completed.evicted)
        return .durable(completed)
      } catch {
        if error == .full, image != nil { return .noRoom }
        // The result is worth waiting for: nobody else has it.
        log.error("the store takes no result", metadata: ["error": "\(error)"])
        completion.isRepeated = true
        if loads.closing.isOpen { return .stopped }
        await pause(wait)
        wait = min(wait * 2, .seconds(5))
      }
    }
    return .stopped
  }

  /// Waits, also in a cancelled task, which has to write down all the same how its jobs ended; the service's stop ends
  /// the wait.
  private func pause(_ time: Duration) async {
    await Task.detached { [closing = loads.closing] in
      await closing.wait(until: .now + time)
    }.value
  }
}

/// What becomes of a job when work on it has ended: the rules.
struct JobOutcomes: Sendable {
  let retry: RetryPolicy
  /// How long a finished job is kept, where it doesn't say itself.
  let retention: Duration
  let network: NetworkState
  let now: WallClock
  let log: Logger

  /// The change to a job whose work has ended so.
  fileprivate func change(
    _ ending: JobCompleter.Ending, for waiter: Load.Waiter, _ common: JobCompleter.Common
  ) -> @Sendable (inout Job) -> Void {
    let moment = common.moment
    let retention = waiter.job.submission.retention ?? self.retention
    switch ending {
    case .requeue: return { $0.requeue() }
    case .postpone(let moment): return { $0.postpone(until: moment) }
    case .reload:
      return {
        $0.loseImage()
        $0.requeue()
      }
    case .success(let image, let cache, let deliveries):
      return refusal(of: image, cache, for: waiter, common) ?? {
        $0.succeed(
          with: image, cache: cache, deliveries: deliveries, at: moment, keptFor: retention)
      }
    case .pending(let pending):
      return refusal(of: pending.image, pending.cache, for: waiter, common) ?? { $0.keep(pending) }
    case .failure(let failure, let pending): return fail(waiter, failure, pending, common)
    }
  }

  /// Returns the change to a job that cannot accept the loaded image; nil if it accepts it.
  private func refusal(
    of image: StoredImage, _ cache: CacheOutcome?, for waiter: Load.Waiter,
    _ common: JobCompleter.Common
  ) -> (@Sendable (inout Job) -> Void)? {
    guard let failure = objection(to: image, for: waiter) else { return nil }
    // What is stored was another one's choice: by itself it asks the origin. So this comes to an end: no load gives its
    // first job what that one would not have chosen. Where it is in the place of an error, the job ends with that.
    if case .integrityMismatch = failure, let status = cache?.status,
      [.hit, .stale].contains(status)
    {
      return { $0.requeue() }
    }
    return fail(waiter, failure, nil, common)
  }

  /// Why an image that was loaded for all is not for this one.
  func objection(to image: StoredImage, for waiter: Load.Waiter) -> JobFailure? {
    objection(to: image, for: waiter.job, within: waiter.limits)
  }

  func objection(
    to image: StoredImage, for job: Job, within limits: JobLimits
  ) -> JobFailure? {
    if let expected = job.submission.integrity, expected != image.digest {
      return .integrityMismatch(expected: expected, actual: image.digest)
    }
    let header = ImageHeader(
      format: image.description.format, width: image.description.width,
      height: image.description.height, decodingMemory: 0)
    return limits.objection(bytes: image.bytes, header: header)
  }

  private func fail(
    _ waiter: Load.Waiter, _ failure: JobFailure, _ pending: PendingResult?,
    _ common: JobCompleter.Common
  ) -> @Sendable (inout Job) -> Void {
    let (job, moment) = (waiter.job, common.moment)
    let isOfURL = failure.isOfURL(after: pending)
    let failure = isOfURL ? retry.decisive(failure, or: job.lastFailure) : failure
    if isOfURL, let next = job.target.next(in: job.submission) {
      return { $0.turn(to: next, after: failure) }
    }
    let delay = retry.delay(
      after: failure, tries: job.tries, allowed: job.submission.maxAttempts,
      dice: common.dice)
    if let delay, pending?.deliverUntil.map({ moment + delay < $0 }) ?? true {
      log.info(
        "job will be tried again",
        metadata: [
          "job": "\(job.id)", "code": "\(failure.code.rawValue)", "delay": "\(delay.toldInSeconds)",
          "error": "\(failure)",
        ])
      let first = network.firstCandidate(of: job.submission)
      return {
        if let pending { $0.keep(pending) }
        $0.retry(after: failure, from: first, notBefore: moment + delay)
      }
    }
    let retention = job.submission.retention ?? self.retention
    return { $0.fail(failure, at: moment, keptFor: retention) }
  }
}

extension JobFailure {
  /// Returns whether the job's URL is the cause, so that an alternative may succeed.
  ///
  /// - Parameter pending: what the job had before; nil: no image.
  fileprivate func isOfURL(after pending: PendingResult?) -> Bool {
    switch self {
    // An image that is there, and could not be delivered, is had by no other URL either.
    case .delivery: false
    // The job's time was over before its variants were made.
    case .fetch: pending == nil
    default: true
    }
  }
}
