internal import Jobs
internal import Logging
internal import Waiting

// The end of a load.
extension Loader {
  /// Requeues the jobs that still have time. Their next transfer resumes after the received bytes.
  /// - Returns: whether the transfer was stopped for a fallback.
  @discardableResult
  func requeueJobsWithTimeLeft(_ load: Load, _ permits: OriginPermits) async -> Bool {
    guard let patient = load.removeJobsWithTimeLeft() else { return false }
    permits.release()
    await completer.complete(patient, of: load) { _ in .requeue }
    return true
  }

  /// - Parameter claimsEqual: whether the jobs that wait for this load at other instances end with it.
  func end(
    _ load: Load, _ permits: OriginPermits, after failure: JobFailure, claimsEqual: Bool
  ) async {
    let waiters = await close(load, permits)
    // A load that is cancelled while jobs wait for it: the service stops.
    let isStopped = failure == .fetch(.cancelled)
    await completer.complete(
      waiters, of: load, releasing: load.reservation, claimsEqual: claimsEqual && !isStopped
    ) { _ in isStopped ? .requeue : .failure(failure) }
  }

  func end(_ load: Load, _ permits: OriginPermits, with loaded: LoadedImage) async {
    let waiters = await close(load, permits)
    let end = await LoadEnd.make(of: loaded, for: load, by: finisher.renderer)
    let unfinished = await completer.complete(
      waiters, of: load, entry: loaded.entry, image: end.bundle?.embedded ?? loaded.embedded,
      releasing: load.reservation, claimsEqual: !loaded.replacesTimeout && load.request != nil
    ) { end.ending(of: $0.job) }
    finisher.begin(unfinished, after: load)
  }

  /// Lets no job join any more. A job that is being moved from the queue shares the load's end, even a failure: otherwise
  /// it would ask the origin again immediately.
  /// - Returns: the jobs to end.
  private func close(_ load: Load, _ permits: OriginPermits) async -> [Load.Waiter] {
    permits.release()
    await load.coalesced()
    let waiters = loads.seal(load)
    await completer.completeEarlyEnds(of: load)
    return waiters
  }
}

/// Decides what each job gets when its load ends: the image, the image with the leader's variants, or a pending result.
struct LoadEnd {
  private let loaded: LoadedImage
  /// The variants that the leading job wants.
  private let recipes: [VariantRequest]
  private let rendered: [RenderedVariant]?
  /// The leader's variants, which replace the image; nil if the jobs keep the image.
  private(set) var bundle: KeptBundle?
  private var bundleFailure: JobFailure?

  private init(_ loaded: LoadedImage, _ recipes: [VariantRequest], _ rendered: [RenderedVariant]?) {
    (self.loaded, self.recipes, self.rendered) = (loaded, recipes, rendered)
  }

  /// Stores the variants that the load's decode made for its leader. Not an `async` initializer, which would change threads.
  static func make(
    of loaded: LoadedImage, for load: Load, by renderer: JobRenderer
  ) async -> LoadEnd {
    let leader = load.leader
    let areMade = !loaded.variants.isEmpty
    if areMade { load.stages?.begin(.variants) }
    let rendered = await renderer.variants(of: loaded, for: leader)
    if areMade { load.stages?.end(.variants) }
    var end = LoadEnd(loaded, leader.submission.recipes, rendered)
    guard load.dropsOriginal, let rendered else { return end }
    do throws(JobFailure) {
      end.bundle = try await renderer.staging.keepBundle(
        of: rendered, as: load.reserving, for: leader.id)
    } catch {
      end.bundleFailure = error
    }
    return end
  }

  /// Whether the job stores the bundle of variants instead of the image.
  func isBundled(_ job: Job) -> Bool {
    rendered != nil && job.submission.dropsOriginal && job.submission.recipes == recipes
      // Deliveries of the image itself must happen before the bundle replaces it.
      && job.submission.deliveries.allSatisfy { $0.variant != nil }
  }

  func ending(of job: Job) -> JobCompleter.Ending {
    let wanted = job.submission
    // The stored response replaced an error of the origin. A job that requires another digest fails with that error.
    if let error = loaded.replaced, let expected = wanted.integrity,
      expected != loaded.image.digest
    {
      return .failure(.fetch(error))
    }
    var image = loaded.image.seen(as: job.target)
    if wanted.wantsImageOnly { return .success(image, loaded.cache) }
    if isBundled(job) || (!wanted.dropsOriginal && wanted.recipes == recipes), let rendered {
      image = image.with(rendered, for: wanted)
      if wanted.dropsOriginal {
        guard let bundle else { return .failure(bundleFailure ?? .internal) }
        image.bundle = bundle.bundle
      }
      if wanted.deliveries.isEmpty { return .success(image, loaded.cache) }
    }
    // The image was not stored, because the leader's variants were enough. This job joined later and needs the image.
    guard loaded.isAvailable || image.bundle != nil else { return .requeue }
    return .pending(PendingResult(image, loaded.cache))
  }
}

/// Ends work on jobs: first in the store, and once that is durable, for the clients that wait for them.
struct JobCompleter: Sendable {
  let writer: CompletionWriter
  let outcomes: JobOutcomes
  let publisher: JobPublisher
  let dispatcher: Dispatcher
  let loads: Loads
  let bytes: DailyBytes
  /// Jobs in one transaction. Other changes wait while it runs.
  static let batch = 500

  /// The end of work on one job.
  enum Ending: Sendable {
    /// The image, the part of the cache in it, and the deliveries made.
    case success(StoredImage, CacheOutcome?, [Delivered] = [])
    /// The image is stored. Variants or deliveries are still to be made, under the same claim.
    case pending(PendingResult)
    /// A failure. The job may be retried, or continue with its next URL.
    /// - Parameter pending: the state from which a retry continues; nil: it starts over.
    case failure(JobFailure, PendingResult? = nil)
    /// The job returns to the queue as if it had not been claimed.
    case requeue
    /// The job returns to the queue, and is due at that moment.
    case postpone(until: Timestamp)
    /// The pending result's image is lost: the job loads it again.
    case reload
  }

  /// The values that all jobs of one transaction share.
  struct Common {
    /// Nil if the progress was stored earlier.
    let progress: LoadProgress?
    let moment: Timestamp
    /// One random number for all jobs: jobs that failed together are retried together, as one load.
    let dice = Double.random(in: 0...1)
  }

  /// The change that the store makes to one job.
  private struct Plan: Sendable {
    let report: ProgressReport?
    /// Whether the job's claim continues.
    let isPending: Bool
    let change: @Sendable (inout Job) -> Void
  }

  /// Stores the end of a load for some of its jobs. Returns when that is durable. If the service stops first, the jobs run
  /// again after the next start.
  ///
  /// - Parameters:
  ///   - entry: a response to store in the cache, in the first transaction.
  ///   - image: an image to store in the job store.
  ///   - releasing: the reservation of an image in the image store. The last transaction releases it.
  ///   - claimsEqual: whether the jobs that wait for this load at other instances end in the same way.
  /// - Returns: jobs with a pending result, in their stored state. Their claims continue.
  @discardableResult
  func complete(
    _ waiters: [Load.Waiter], of load: Load, entry: CacheEntry? = nil,
    image: EmbeddedImage? = nil, releasing: JobID? = nil, claimsEqual: Bool = false,
    _ ending: (Load.Waiter) -> Ending
  ) async -> [Load.Waiter] {
    guard !waiters.isEmpty || entry != nil || releasing != nil else { return [] }
    let common = Common(progress: load.tracker.progress, moment: outcomes.now())
    bytes.add(load.charge(waiters), at: common.moment)
    var (rest, entry, claimsEqual) = (waiters[...], entry, claimsEqual)
    var unfinished: [Load.Waiter] = []
    repeat {
      let some = rest.prefix(Self.batch)
      rest = rest.dropFirst(Self.batch)
      let isLast = rest.isEmpty
      let claimed = await complete(
        Array(some), entry: entry, image: image, releasing: isLast ? releasing : nil,
        claimsEqual: claimsEqual && isLast && !loads.isStopping, common, load.stages, &unfinished,
        ending)
      entry = nil
      guard isLast, claimsEqual else { continue }
      claimsEqual = false
      rest = loads.register(claimed, with: load)[...]
      bytes.add(load.charge(Array(rest)), at: common.moment)
    } while !rest.isEmpty
    return unfinished
  }

  /// Stores the end of the stages after a load.
  ///
  /// - Parameters:
  ///   - image: an image to store in the job store.
  ///   - releasing: the reservation of an image in the image store. The last transaction releases it.
  /// - Returns: jobs with a pending result, in their stored state.
  @discardableResult
  func complete(
    _ waiters: [Load.Waiter], of jobs: FinishingJobs, image: EmbeddedImage? = nil,
    releasing: JobID? = nil, _ ending: (Load.Waiter) -> Ending
  ) async -> [Load.Waiter] {
    var unfinished: [Load.Waiter] = []
    guard !waiters.isEmpty || releasing != nil else { return unfinished }
    _ = await complete(
      waiters, entry: nil, image: image, releasing: releasing, claimsEqual: false,
      Common(progress: nil, moment: outcomes.now()), jobs.stages, &unfinished, ending)
    return unfinished
  }

  private func complete(
    _ waiters: [Load.Waiter], entry: CacheEntry?, image: EmbeddedImage?, releasing: JobID?,
    claimsEqual: Bool, _ common: Common, _ stages: LoadStages?, _ unfinished: inout [Load.Waiter],
    _ ending: (Load.Waiter) -> Ending
  ) async -> [ClaimedJob] {
    let began = ContinuousClock.now
    var plans: [JobID: Plan] = [:]
    for waiter in waiters { plans[waiter.job.id] = plan(ending(waiter), for: waiter, common) }
    let ready = plans
    let written = await writer.write(
      waiters.map(\.claim), entry: entry, image: image, releasing: releasing,
      claimsEqual: claimsEqual
    ) { job in
      guard let plan = ready[job.id] else { return false }
      if let report = plan.report { job.applyLastReport(report) }
      plan.change(&job)
      return true
    }
    var claimedEqual: [ClaimedJob] = []
    var jobs: [Job?] = waiters.map { _ in nil }
    switch written {
    case .durable(let completed):
      publish(completed.jobs, endedAt: common.moment, stages?.stages(storedSince: began) ?? [])
      (claimedEqual, jobs) = (completed.claimedEqual, completed.jobs)
    case .stopped: break
    case .full:
      return await complete(
        waiters, entry: nil, image: nil, releasing: releasing, claimsEqual: false, common, stages,
        &unfinished
      ) { _ in .failure(.storageFull) }
    }
    for (waiter, job) in zip(waiters, jobs) {
      // After a lost answer, the job may be loading under another claim.
      if let job, job.phase == .loading, plans[waiter.job.id]?.isPending == true {
        unfinished.append(waiter.with(loads.rules.sharing(job)))
      } else {
        loads.unregister(waiter)
      }
    }
    return claimedEqual
  }

  /// Stores the failures of jobs that failed before their load has ended.
  func completeEarlyEnds(of load: Load) async {
    let ends = load.removeEarlyEnds()
    guard !ends.isEmpty else { return }
    let failures = Dictionary(
      ends.map { ($0.waiter.claim, $0.failure) }, uniquingKeysWith: { first, _ in first })
    await complete(ends.map(\.waiter), of: load) { waiter in
      .failure(failures[waiter.claim] ?? .internal)
    }
  }

  /// Returns claimed jobs to the queue, in one transaction, as if they had not been claimed.
  func requeue(_ claims: [Claim]) async {
    let written = await writer.write(claims) { job in
      job.requeue()
      return true
    }
    if case .durable(let completed) = written { publish(completed.jobs, endedAt: nil) }
  }

  /// - Parameter moment: the time of the ends; nil if no job has ended.
  private func publish(_ jobs: [Job?], endedAt moment: Timestamp?, _ stages: [JobStage] = []) {
    var isAnyQueued = false
    for job in jobs.lazy.compactMap(\.self) {
      // The call that cancelled the job publishes that. Nothing else publishes a job that the store cancelled in this
      // change, because its batch was cancelled before.
      let hasEnded = job.phase.isFinished && (job.phase != .cancelled || job.finishedAt == moment)
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

/// Stores the ends of jobs, and retries for as long as the store is unreachable.
struct CompletionWriter: Sendable {
  let store: any JobQueue
  let lease: Lease
  let keeper: ImageLifecycle
  let cache: ResponseCache
  let loads: Loads
  let gate: QueueGate
  let log: Logger

  /// The result of a write.
  enum Written {
    /// The transaction is durable.
    case durable(Completed)
    /// The storage is full, so that the image cannot be stored. Nothing was changed.
    case full
    /// The service stops. The jobs run again after the next start.
    case stopped
  }

  /// Completes the jobs in the store. Returns when that is durable.
  ///
  /// - Parameters: see ``Completion``.
  func write(
    _ claims: [Claim], entry: CacheEntry? = nil, image: EmbeddedImage? = nil,
    releasing: JobID? = nil, claimsEqual: Bool = false,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async -> Written {
    var completion = Completion(
      claims, by: lease.instance, entry: entry, cacheLimit: cache.limit, releasing: releasing,
      image: image, imageLimit: keeper.limit, change: change)
    completion.lastUse = cache.lastUse
    completion.claimsEqual = claimsEqual
    var wait = Duration.milliseconds(50)
    while !loads.isOver {
      do throws(StoreError) {
        let completed = try await store.complete(completion)
        gate.recordDepartures(completed.claimedEqual.lazy.map(\.job))
        if let entry { cache.recordStored(entry) }
        let fenced = zip(claims, completed.jobs).filter { $0.1 == nil }.map(\.0)
        lease.membership.metrics.fenced(fenced.count)
        // The change that ended them may not have been published, for example a cancel whose answer was lost.
        for claim in fenced { lease.recordLoss(of: claim) }
        await keeper.removeLater(completed.evicted)
        return .durable(completed)
      } catch {
        if error == .full, image != nil { return .full }
        // No other instance has this result, so it is worth retrying.
        log.error("failed to save a job's result, retrying", metadata: ["error": "\(error)"])
        completion.isRepeated = true
        if loads.closing.isOpen { return .stopped }
        await pause(wait)
        wait = min(wait * 2, .seconds(5))
      }
    }
    return .stopped
  }

  /// Waits for a time, or until the service stops. Also waits in a cancelled task, which still has to store its ends.
  private func pause(_ time: Duration) async {
    await Task.detached { [closing = loads.closing] in
      await closing.wait(until: .now + time)
    }.value
  }
}

/// The rules by which the end of work changes a job: success, retry, next URL or failure.
struct JobOutcomes: Sendable {
  let retry: RetryPolicy
  /// The retention of jobs that do not set their own.
  let retention: Duration
  let network: NetworkState
  let now: WallClock
  let log: Logger

  /// Returns the change to a job for this end.
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
        $0.markImageEvicted()
        $0.requeue()
      }
    case .success(let image, let cache, let deliveries):
      return refusal(of: image, cache, for: waiter, common) ?? {
        $0.succeed(
          with: image, cache: cache, deliveries: deliveries, at: moment, keptFor: retention)
      }
    case .pending(let pending):
      return refusal(of: pending.image, pending.cache, for: waiter, common) ?? {
        $0.setPending(pending)
      }
    case .failure(let failure, let pending): return fail(waiter, failure, pending, common)
    }
  }

  /// Returns the change to a job that cannot accept the loaded image; nil if it accepts it.
  private func refusal(
    of image: StoredImage, _ cache: CacheOutcome?, for waiter: Load.Waiter,
    _ common: JobCompleter.Common
  ) -> (@Sendable (inout Job) -> Void)? {
    guard let failure = objection(to: image, for: waiter) else { return nil }
    // The cached image has a different digest than this job requires. Requeue the job: as the leader of its own load it
    // bypasses the cache and asks the origin, so this does not repeat.
    if case .integrityMismatch = failure, let status = cache?.status,
      [.hit, .stale].contains(status)
    {
      return { $0.requeue() }
    }
    return fail(waiter, failure, nil, common)
  }

  /// Returns the failure of a job that the loaded image does not suit; nil if it does.
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
    return limits.failure(bytes: image.bytes, header: header)
  }

  private func fail(
    _ waiter: Load.Waiter, _ failure: JobFailure, _ pending: PendingResult?,
    _ common: JobCompleter.Common
  ) -> @Sendable (inout Job) -> Void {
    let (job, moment) = (waiter.job, common.moment)
    let isOfURL = failure.isOfURL(after: pending)
    let failure = isOfURL ? retry.decisive(failure, or: job.lastFailure) : failure
    if isOfURL, let next = job.target.next(in: job.submission) {
      return { $0.continueTry(with: next, after: failure) }
    }
    let delay = retry.delay(
      after: failure, tries: job.tries, allowed: job.submission.maxAttempts,
      dice: common.dice)
    if let delay, pending?.deliverUntil.map({ moment + delay < $0 }) ?? true {
      log.info(
        "job failed, will retry",
        metadata: [
          "job": "\(job.id)", "code": "\(failure.code.rawValue)",
          "delay": "\(delay.roundedSeconds)",
          "error": "\(failure)",
        ])
      let first = network.firstCandidate(of: job.submission)
      return {
        if let pending { $0.setPending(pending) }
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
    // Another URL does not help a delivery that failed.
    case .delivery: false
    // With a pending result, the job's timeout expired before its variants were made.
    case .fetch: pending == nil
    default: true
    }
  }
}
