internal import Jobs
internal import Synchronization
internal import Waiting

// Finishing: the stages of a job between its load and its success. Jobs that want the image alone skip them.
//
// Input: claimed jobs with a pending result; their image is stored and the job refers to it. Output: their ends. Each
// step is durable before the next one starts, so a crash repeats only that step. Read the files in this order:
//
// 1. Here: `Finisher` carries jobs through the steps: render, deliver, complete. `FinishingJobs` is a group of jobs that
//    pass the steps together; it removes cancelled and expired ones.
// 2. `JobRenderer` makes the variants. `ImageStaging` (in `ImageIngest`) stores variants that replace the image.
// 3. `Deliverer` sends images and variants to destinations, limited by `DeliverySlots`.
//
// All of it runs on the decode threads and occupies no worker.

/// Carries jobs from their stored image to their end: renders their variants, makes their deliveries, completes them.
struct Finisher: Sendable {
  let loads: Loads
  let renderer: JobRenderer
  let deliverer: Deliverer
  let completer: JobCompleter
  let threads: any ComputeThreads
  let capacity: FinishingCapacity
  /// Called when an image that must be deleted soon is no longer referenced.
  let onDropped: @Sendable () -> Void
  let ids: JobIDSequence
  let now: WallClock

  /// Starts the stages after the load for jobs with a pending result. Returns immediately.
  /// - Parameter load: the load that ended for these jobs; nil if they were claimed from the queue.
  /// - Returns: false if the service stops: the caller must requeue the jobs.
  @discardableResult
  func begin(_ waiters: [Load.Waiter], after load: Load? = nil) -> Bool {
    for group in Self.groups(of: waiters) {
      let jobs = FinishingJobs(group, load?.stages?.copy())
      guard loads.enter(jobs, isFromLoad: load != nil) else {
        if load == nil { return false }
        continue
      }
      let lane = threads.lane(at: jobs.priority)
      jobs.run(as: Task(executorPreference: lane) { await carryThrough(jobs) })
    }
    return true
  }

  private struct Wants: Hashable {
    let owner: Owner
    let variants: [VariantRequest]
    let image: ImageDigest
    let keepsVariants: Bool
    /// Set for a job with deliveries, so that it is alone in its group.
    let job: JobID?
  }

  private static func groups(of waiters: [Load.Waiter]) -> [[Load.Waiter]] {
    let groups = Dictionary(grouping: waiters) { waiter in
      let (job, wanted) = (waiter.job, waiter.job.submission)
      return Wants(
        owner: job.owner, variants: wanted.variants,
        image: job.pending?.image.digest ?? ImageDigest(of: []),
        keepsVariants: wanted.keepsVariants,
        job: wanted.deliveries.isEmpty && !wanted.dropsOriginal ? nil : job.id)
    }
    // Highest priority first; within a priority, the jobs with the fewest variants.
    let inOrder = groups.values.sorted { a, b in
      let (first, second) = (a[0], b[0])
      let fewer =
        first.job.submission.variants.count < second.job.submission.variants.count
      return first.priority == second.priority ? fewer : first.priority > second.priority
    }
    return inOrder.flatMap { group in
      stride(from: 0, to: group.count, by: JobCompleter.batch).map {
        Array(group[$0..<min($0 + JobCompleter.batch, group.count)])
      }
    }
  }

  private func carryThrough(_ jobs: FinishingJobs) async {
    defer { loads.end(jobs) }
    let count = jobs.waiters.count
    guard capacity.acquire(count, for: jobs.leader.owner, at: now()) else {
      return await postpone(jobs)
    }
    defer { capacity.release(count, of: jobs.leader.owner) }
    guard var pending = jobs.leader.pending else { return }
    let ending: JobCompleter.Ending
    // The slot is held until its delivery is stored. Otherwise all deliveries made while the store is unreachable would be repeated
    // after a crash.
    var slot: DeliverySlots.Slot?
    defer { withExtendedLifetime(slot) {} }
    do throws(FinishError) {
      let rendered = try await render(jobs, &pending)
      jobs.endTimeouts()
      let wanted = jobs.leader.submission
      if !wanted.deliveries.isEmpty {
        guard try await deliver(jobs, &pending, &slot, after: rendered) else { return }
      }
      let result = pending
      let bundle = wanted.deliveries.isEmpty ? rendered : nil
      await completer.complete(
        jobs.removeAll(), of: jobs, image: bundle?.embedded, releasing: bundle?.holder
      ) { _ in .success(result.image, result.cache, result.deliveriesInRequestOrder(of: wanted)) }
      // The image itself must be deleted soon.
      if wanted.dropsOriginal { onDropped() }
      return
    } catch {
      switch error {
      case .failed(.fetch(.cancelled)): ending = .requeue
      case .failed(let failure): ending = .failure(failure, pending)
      case .imageGone: ending = .reload
      }
    }
    await completer.complete(jobs.removeAll(), of: jobs) { _ in ending }
  }

  /// Requeues jobs for a while, because too many are in these stages.
  private func postpone(_ jobs: FinishingJobs) async {
    let moment = now() + capacity.delay(of: jobs.waiters.count, jobs.leader.owner)
    await completer.complete(jobs.removeAll(), of: jobs) { _ in .postpone(until: moment) }
  }

  // MARK: Render

  /// A rendered bundle that is not yet written to the store.
  private struct Rendered {
    var embedded: EmbeddedImage?
    /// The ID that reserves the bundle; nil if the bundle is embedded, or there is none.
    var holder: JobID?
  }

  /// Makes the variants that the jobs want, unless they are made already.
  private func render(
    _ jobs: FinishingJobs, _ pending: inout PendingResult
  ) async throws(FinishError) -> Rendered? {
    let (job, wanted) = (jobs.leader, jobs.leader.submission)
    guard !pending.isRendered(for: wanted) else { return nil }
    // The image itself is stored only until the bundle replaces it, so it is delivered first.
    if wanted.dropsOriginal {
      var delivering: DeliverySlots.Slot?
      let isMeant = { (place: Int) in wanted.deliveries[place].variant == nil }
      guard try await deliver(jobs, &pending, &delivering, while: isMeant) else {
        throw .failed(.fetch(.cancelled))
      }
    }
    guard let slot = await capacity.renderSlots.acquire(for: job.owner) else {
      throw .failed(.fetch(.cancelled))
    }
    defer { withExtendedLifetime(slot) {} }
    jobs.stages?.begin(.variants)
    let rendered = try await renderer.render(
      wanted, of: pending.image, for: job.owner, at: { jobs.priority })
    pending.image = pending.image.with(rendered, for: wanted)
    var result = Rendered()
    if wanted.dropsOriginal {
      let holder = ids.next(at: now())
      do throws(JobFailure) {
        let kept = try await renderer.staging.keepBundle(of: rendered, as: { holder }, for: job.id)
        pending.image.bundle = kept.bundle
        result = Rendered(embedded: kept.embedded, holder: kept.embedded == nil ? holder : nil)
      } catch {
        // The bundle may be reserved already.
        await renderer.staging.keeper.release(holder)
        throw .failed(error)
      }
    }
    jobs.stages?.end(.variants)
    return result
  }

  // MARK: Deliver

  /// Makes the remaining deliveries.
  /// - Returns: false if this instance has lost the job's claim.
  private func deliver(
    _ jobs: FinishingJobs, _ pending: inout PendingResult, _ slot: inout DeliverySlots.Slot?,
    after rendered: Rendered?
  ) async throws(FinishError) -> Bool {
    if let rendered {
      let isOurs = await keep(pending, jobs, image: rendered.embedded, releasing: rendered.holder)
      guard isOurs else { return false }
    }
    return try await deliver(jobs, &pending, &slot, while: { _ in true })
  }

  /// Makes deliveries one after the other, and stores the result of each but the last, so that none is repeated.
  /// - Parameter slot: the slot of the last delivery, whose result the caller stores.
  private func deliver(
    _ jobs: FinishingJobs, _ pending: inout PendingResult, _ slot: inout DeliverySlots.Slot?,
    while isMeant: (Int) -> Bool
  ) async throws(FinishError) -> Bool {
    let (job, wanted) = (jobs.leader, jobs.leader.submission)
    let left = wanted.deliveryOrder.dropFirst(pending.deliveries.count).prefix(while: isMeant)
    guard !left.isEmpty else { return true }
    jobs.stages?.begin(.deliver)
    defer { jobs.stages?.end(.deliver) }
    for place in left {
      let request = wanted.deliveries[place]
      // The old slot is released before the job waits for the next one.
      slot = nil
      slot = await deliverer.slots.acquire(request.target, for: job.owner)
      if slot == nil { throw .failed(.fetch(.cancelled)) }
      let delivered = try await deliverer.deliver(
        request, of: pending.image, for: job, until: &pending.deliverUntil)
      pending.deliveries.append(delivered)
      if pending.deliveries.count < wanted.deliveries.count {
        guard await keep(pending, jobs) else { return false }
      }
    }
    return true
  }

  /// Stores the progress of the jobs.
  /// - Returns: false if this instance has lost the claims of all of them.
  private func keep(
    _ pending: PendingResult, _ jobs: FinishingJobs, image: EmbeddedImage? = nil,
    releasing: JobID? = nil
  ) async -> Bool {
    let kept = await completer.complete(
      jobs.waiters, of: jobs, image: image, releasing: releasing
    ) { _ in .pending(pending) }
    return !kept.isEmpty
  }
}

/// Works on claimed jobs: a ``Load``, or ``FinishingJobs`` after it.
protocol JobCarrier: AnyObject, Sendable {
  /// Removes a job that was cancelled or whose claim was lost.
  /// - Parameter discardingBytes: whether the received bytes of a transfer are deleted if no job is left.
  func remove(_ claim: Claim, discardingBytes: Bool)

  /// Changes the priority of a job.
  func prioritize(_ claim: Claim, _ priority: Priority)
}

/// Jobs that pass the stages after a load together: of one owner, with the same image and the same variants. A job with
/// deliveries is alone.
final class FinishingJobs: JobCarrier {
  typealias Instant = ContinuousClock.Instant

  private struct State {
    var waiters: [Claim: Load.Waiter]
    /// The earliest deadline of the jobs; nil if deadlines no longer apply.
    var deadline: Instant?
    var task: Task<Void, Never>?
    var isCancelled = false
  }

  /// The first job. All jobs want the same.
  let leader: Job
  /// Nil if tracing is off.
  let stages: LoadStages?
  private let state: Mutex<State>

  /// - Parameter waiters: at least one; all have a pending result.
  init(_ waiters: [Load.Waiter], _ stages: LoadStages?) {
    leader = waiters[0].job
    self.stages = stages
    state = Mutex(
      State(
        waiters: Dictionary(
          waiters.map { ($0.claim, $0) }, uniquingKeysWith: { first, _ in first }),
        deadline: waiters.map(\.deadline).min()))
  }

  /// Sets the task that works on the jobs. Cancels the task if the jobs were already cancelled.
  func run(as task: Task<Void, Never>) {
    let isCancelled = state.withLock { state in
      state.task = task
      return state.isCancelled
    }
    if isCancelled { task.cancel() }
  }

  var waiters: [Load.Waiter] { state.withLock { Array($0.waiters.values) } }

  /// The highest priority of the jobs.
  var priority: Priority {
    state.withLock { $0.waiters.values.map(\.priority).max() } ?? leader.priority
  }

  func remove(_ claim: Claim, discardingBytes: Bool) { change { $0.waiters[claim] = nil } }

  func prioritize(_ claim: Claim, _ priority: Priority) {
    change { $0.waiters[claim]?.priority = priority }
  }

  func cancel() { change { $0.isCancelled = true } }

  /// Removes and returns all jobs. The caller must end them.
  func removeAll() -> [Load.Waiter] {
    state.withLock { state in
      defer { state.waiters = [:] }
      return Array(state.waiters.values)
    }
  }

  /// Ends the jobs' own timeouts: deliveries have a timeout of their own.
  func endTimeouts() { state.withLock { $0.deadline = nil } }

  /// Removes and returns the jobs whose deadline has passed. The caller must end them.
  func removeLate(at now: Instant) -> [Load.Waiter] {
    var late: [Load.Waiter] = []
    change { state in
      guard let deadline = state.deadline, deadline <= now else { return }
      late = state.waiters.values.filter { $0.deadline <= now }
      for waiter in late { state.waiters[waiter.claim] = nil }
      state.deadline = state.waiters.values.map(\.deadline).min()
    }
    return late
  }

  /// Changes the jobs, and cancels the work if none is left.
  private func change(_ body: (inout State) -> Void) {
    let task = state.withLock { state -> Task<Void, Never>? in
      body(&state)
      if state.waiters.isEmpty { state.isCancelled = true }
      return state.isCancelled ? state.task : nil
    }
    task?.cancel()
  }
}

/// Limits the jobs between their load and their end, and those that are rendered at the same time. The other jobs wait in
/// the queue, where they use no memory.
final class FinishingCapacity: Sendable {
  /// Jobs in these stages at the same time.
  static let maxJobs = 10_000
  /// Jobs that are rendered at the same time. Each has at most eight variants, so half of the queue of renderings stays free.
  static let maxRendered = 16
  /// Jobs of one owner that return from the queue per second, beginning after ``firstDelay``.
  private static let rate = TokenBucket.Rate(perSecond: 250, burst: 0)
  private static let firstDelay = Duration.seconds(1)

  private struct State {
    var jobs = FairShare<Owner>()
    /// The owners with postponed jobs that are not due.
    var postponed: [Owner: TokenBucket] = [:]
  }

  let renderSlots = FairSemaphore<Owner>(.keepingQuarter(of: maxRendered))
  private let bounds: ShareBounds
  private let state = Mutex(State())

  init(_ most: Int = maxJobs) { bounds = ShareBounds(most) }

  /// Reserves capacity for jobs of one owner; false if there is too little. `count` is at most half of the capacity.
  func acquire(_ count: Int, for owner: Owner, at moment: Timestamp) -> Bool {
    state.withLock { $0.jobs.acquire(count, for: owner, within: bounds, at: moment) }
  }

  func release(_ count: Int, of owner: Owner) {
    state.withLock { $0.jobs.release(count, of: owner) }
  }

  /// Returns the delay of jobs that found no capacity. Jobs of one owner become due one group after the other.
  func delay(of count: Int, _ owner: Owner) -> Duration {
    state.withLock { state in
      let now = ContinuousClock.now
      let first = now + Self.firstDelay
      state.postponed = state.postponed.filter { $0.value.tokens(at: now, Self.rate) < 0 }
      var bucket = state.postponed[owner] ?? TokenBucket(Self.rate, at: first)
      bucket.borrow(Double(count), at: first, Self.rate)
      state.postponed[owner] = bucket
      return Self.firstDelay + .seconds(bucket.wait(for: 0, at: first, Self.rate))
    }
  }
}
