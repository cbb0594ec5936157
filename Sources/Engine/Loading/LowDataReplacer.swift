internal import Jobs
internal import Logging
internal import Waiting

/// Replaces the low-data images of jobs by their regular ones, and repeats the deliveries with them.
struct LowDataReplacer: Sendable {
  let loader: BackgroundLoader
  let store: any JobRecords
  let network: NetworkState
  let publisher: JobPublisher
  let renderer: JobRenderer
  let deliverer: Deliverer
  let log: Logger
  /// The delays before failed replacements are retried.
  let retry: RetryPolicy

  /// Replacements that run at the same time.
  static let maxRunning = 256
  /// Replacements of one owner that run at the same time.
  static let maxOfOwner = 64
  /// The time without a finished replacement after which an owner's other jobs are skipped.
  private static let patience = Duration.seconds(5)

  /// Runs one pass after the other when the queue asks for it, until the queue is stopped. After a delay, runs a pass over
  /// the failed replacements that can be retried.
  func run(for queue: BackgroundQueue) async {
    await withDiscardingTaskGroup { group in
      var left = LowDataLeft()
      var tries = 1
      var due: ContinuousClock.Instant?
      for await _ in queue.lowData.arrivals {
        if let time = due, time <= .now { due = nil }
        left = await replaceAll(queue.takeFullPass() ? nil : left, tries: tries)
        guard let pause = left.pause else {
          tries = 1
          continue
        }
        // At most one retry pass is scheduled.
        guard due == nil else { continue }
        tries += 1
        let time = ContinuousClock.now + pause
        due = time
        group.addTask {
          try? await Task.sleep(until: time, clock: .continuous)
          queue.replaceLeft()
        }
      }
      group.cancelAll()
    }
  }

  /// Runs one pass, until the network is constrained again. If an owner's replacements make no progress, its other jobs
  /// wait for the next pass, so that they do not delay those of other owners.
  /// - Parameters:
  ///   - chosen: the jobs to retry; nil for all jobs.
  ///   - tries: the number of passes over the failed replacements, including this one.
  /// - Returns: the failed and skipped replacements that will be retried.
  @discardableResult
  func replaceAll(_ chosen: LowDataLeft? = nil, tries: Int = 1) async -> LowDataLeft {
    await withTaskGroup(of: Event.self) { group in
      var pass = Pass()
      var last: JobID?
      while !Task.isCancelled, !network.isConstrained, !loader.loads.isStopping {
        let jobs = await jobs(after: last)
        guard !jobs.isEmpty else { break }
        last = jobs.last?.id
        for job in jobs where chosen?.contains(job.id) ?? true {
          guard await waitForCapacity(for: job.owner, &pass, in: &group, tries) else {
            pass.left.add(job.id, retry.initialBackoff)
            continue
          }
          pass.running.acquireUnchecked(1, for: job.owner)
          group.addTask { .ended(job, await replaceImage(of: job)) }
        }
      }
      while pass.running.held > 0, let event = await group.next() { apply(event, to: &pass, tries) }
      group.cancelAll()
      return pass.left
    }
  }

  private enum Event: Sendable {
    case ended(Job, JobFailure?)
    /// The end of a wait with this number.
    case waited(Int)
  }

  private struct Pass {
    var left = LowDataLeft()
    /// The running replacements of each owner.
    var running = FairShare<Owner>()
    /// Owners whose replacements make no progress.
    var stuck: Set<Owner> = []
    var waits = 0
  }

  /// Waits until the owner may start another replacement.
  /// - Returns: false if none of its replacements ended during ``patience``.
  private func waitForCapacity(
    for owner: Owner, _ pass: inout Pass, in group: inout TaskGroup<Event>, _ tries: Int
  ) async -> Bool {
    while pass.running.held >= Self.maxRunning, let event = await group.next() {
      apply(event, to: &pass, tries)
    }
    guard pass.running.share(of: owner) >= Self.maxOfOwner else { return true }
    guard !pass.stuck.contains(owner) else { return false }
    pass.waits += 1
    let number = pass.waits
    group.addTask {
      try? await Task.sleep(for: Self.patience)
      return .waited(number)
    }
    while pass.running.share(of: owner) >= Self.maxOfOwner, let event = await group.next() {
      apply(event, to: &pass, tries)
      if case .waited(number) = event {
        pass.stuck.insert(owner)
        return false
      }
    }
    return true
  }

  private func apply(_ event: Event, to pass: inout Pass, _ tries: Int) {
    guard case .ended(let job, let failure) = event else { return }
    pass.running.release(1, of: job.owner)
    if let failure, let pause = pause(after: failure, tries: tries) {
      pass.left.add(job.id, pause)
    }
  }

  /// The delay before a job's replacement is retried; nil if the job keeps its low-data image.
  private func pause(after failure: JobFailure, tries: Int) -> Duration? {
    // A permanent refusal, such as an expired signature of the URL, is not retried.
    if case .delivery(let error) = failure {
      return error.isPassing ? retry.longestBackoff(after: tries) : nil
    }
    return retry.delay(after: failure, tries: tries, allowed: Int.max, dice: 1)
  }

  /// The next jobs. Retries until the store answers; returns none once cancelled.
  private func jobs(after last: JobID?) async -> [Job] {
    await retryUntilSuccess("low-data images can't be looked up", log) {
      () async throws(StoreError) in
      try await store.jobsWithLowDataImages(after: last, count: 64)
    } ?? []
  }

  /// - Returns: the failure, if the job still has its low-data image and the replacement may be retried.
  private func replaceImage(of job: Job) async -> JobFailure? {
    // The job requires the digest of the bytes that it has.
    guard job.submission.integrity == nil else { return nil }
    var regular = job
    regular.target = .regular
    return await loader.load(regular) { [regular] load, outcome in
      switch outcome {
      case .success(let loaded): return await replaceImage(of: regular, by: loaded, load)
      case .failure(let failure):
        await keepImage(of: regular, regular.deliveries, load)
        return failure
      }
    }
  }

  private func replaceImage(
    of job: Job, by loaded: LoadedImage, _ load: Load
  ) async -> JobFailure? {
    var delivered = Delivering(job)
    do throws(JobFailure) {
      let image = try await image(for: job, loaded, load)
      guard try await isToBeDelivered(job) else { return nil }
      do throws(FinishError) { try await deliver(image, to: &delivered, of: job, load) } catch {
        throw JobFailure(error)
      }
      let (requests, deliveries) = (load.tracker.progress.requests, delivered.deliveries)
      let changed = try await change(job.id) {
        $0.replaceImage(
          with: image, cache: loaded.cache, deliveries: deliveries, requests: requests)
      }
      if let changed { publisher.publishReplacedImage(of: changed) }
      return nil
    } catch {
      log.info(
        "failed to replace a low-data image",
        metadata: ["job": "\(job.id)", "code": "\(error.code.rawValue)"])
      await keepImage(of: job, delivered.deliveries, load)
      return error
    }
  }

  /// The job's deliveries: of the new image as far as they were made, and after those the deliveries of the old image.
  private struct Delivering {
    var deliveries: [Delivered]
    var made = 0

    init(_ job: Job) { deliveries = job.deliveries }

    mutating func record(_ delivered: Delivered) {
      if made < deliveries.count {
        deliveries[made] = delivered
      } else {
        deliveries.append(delivered)
      }
      made += 1
    }
  }

  /// Delivers the image to the job's destinations, unless the load is cancelled.
  private func deliver(
    _ image: StoredImage, to places: inout Delivering, of job: Job, _ load: Load
  ) async throws(FinishError) {
    var deadline: Timestamp?
    for request in job.submission.deliveries {
      let slot = await deliverer.slots.acquire(request.target, for: job.owner)
      guard let slot, !load.isCancelled else { throw .failed(.fetch(.cancelled)) }
      defer { withExtendedLifetime(slot) {} }
      places.record(
        try await deliverer.deliver(request, of: image, for: job, until: &deadline))
    }
  }

  /// The image with the job's variants made from it. Throws if the image exceeds the job's limits.
  private func image(
    for job: Job, _ loaded: LoadedImage, _ load: Load
  ) async throws(JobFailure) -> StoredImage {
    // Background loads have no waiting job whose limits they enforce.
    let limits = JobLimits(of: job, within: loader.loads.rules)
    let outcomes = loader.completer.outcomes
    if let objection = outcomes.objection(to: loaded.image, for: job, within: limits) {
      throw objection
    }
    let image = loaded.image.seen(as: job.target)
    guard !job.submission.variants.isEmpty else { return image }
    // Variants that the decode did not make are rendered and stored on a thread with low priority.
    return try await Task(executorPreference: loader.threads.lane(at: .veryLow)) {
      await withVariants(image, for: job, loaded, load)
    }.value.get()
  }

  private func withVariants(
    _ image: StoredImage, for job: Job, _ loaded: LoadedImage, _ load: Load
  ) async -> Result<StoredImage, JobFailure> {
    do throws(FinishError) {
      let made = await renderer.variants(of: loaded, for: job)
      let rendered =
        if let made { made } else {
          try await renderer.render(job.submission, of: image, for: job.owner, at: { .veryLow })
        }
      var image = image.with(rendered, for: job.submission)
      guard job.submission.dropsOriginal else { return .success(image) }
      do throws(JobFailure) {
        image.bundle = try await renderer.staging.keepBundle(
          of: rendered, mayEmbed: false, as: load.reserving, for: job.id
        ).bundle
      } catch {
        return .failure(error)
      }
      return .success(image)
    } catch {
      return .failure(JobFailure(error))
    }
  }

  /// Whether the job still has its low-data image. Nothing is delivered for a job that was purged or fetched again.
  private func isToBeDelivered(_ job: Job) async throws(JobFailure) -> Bool {
    guard !job.submission.deliveries.isEmpty else { return true }
    do throws(StoreError) { return try await store.job(job.id)?.hasLowDataImage == true } catch {
      throw JobFailure(error)
    }
  }

  /// Stores the requests and deliveries of a failed replacement.
  private func keepImage(of job: Job, _ deliveries: [Delivered], _ load: Load) async {
    let requests = load.tracker.progress.requests
    guard requests > 0 || deliveries != job.deliveries else { return }
    let kept = try? await change(job.id) {
      $0.keepImage(deliveries: deliveries, requests: requests)
    }
    if let kept { publisher.publish(kept, hasEnded: false) }
  }

  /// Changes a job if it still has its low-data image.
  /// - Returns: nil if it does not.
  private func change(
    _ id: JobID, _ change: @escaping @Sendable (inout Job) -> Void
  ) async throws(JobFailure) -> Job? {
    let outcome = ChangeOutcome()
    do throws(StoreError) {
      let job = try await store.update(id, under: nil) { job in
        guard outcome.beginAttempt(with: job), job.image?.variant == .lowData, job.phase == .success
        else { return false }
        change(&job)
        outcome.record(.changed, finished: job)
        return true
      }
      return outcome.value == .changed ? job : nil
    } catch {
      log.error(
        "failed to replace a low-data image", metadata: ["job": "\(id)", "error": "\(error)"])
      throw JobFailure(error)
    }
  }
}

/// The failed replacements that will be retried.
struct LowDataLeft: Sendable {
  private var jobs: Set<JobID> = []
  /// The delay before the retry: the longest of all jobs; nil if there are no jobs.
  private(set) var pause: Duration?
  /// Bounds the memory. With this many failed jobs, the retry covers all jobs.
  private static let most = 10_000

  func contains(_ job: JobID) -> Bool { jobs.count == Self.most || jobs.contains(job) }

  mutating func add(_ job: JobID, _ pause: Duration) {
    if jobs.count < Self.most { jobs.insert(job) }
    self.pause = max(self.pause ?? pause, pause)
  }
}

extension RetryPolicy {
  /// Longer delays than those of jobs, because no client waits. `Retry-After` is obeyed up to the same maximum.
  static let ofRegularImages: RetryPolicy = {
    var policy = RetryPolicy()
    policy.initialBackoff = .seconds(30)
    policy.maximumBackoff = .seconds(600)
    return policy
  }()
}

extension JobFailure {
  fileprivate init(_ error: FinishError) {
    switch error {
    case .failed(let failure): self = failure
    case .imageGone: self = .internal
    }
  }
}
