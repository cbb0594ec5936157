internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// What is to be loaded though no job waits for it: stored responses that the cache gave out stale, to be freshened,
/// and regular images, to take the place of low-data ones.
final class BackgroundQueue: Sendable {
  /// Jobs that were answered by a stored response which is to be confirmed or replaced (RFC 5861 section 3).
  let stale: AsyncStream<Job>
  /// Yields when low-data images may have to be replaced.
  let lowData: AsyncStream<Void>
  private let freshening: AsyncStream<Job>.Continuation
  private let replacing: AsyncStream<Void>.Continuation
  private let underWay = Mutex<Set<Fingerprint>>([])
  private let replacesAll = Atomic(false)

  init() {
    (stale, freshening) = AsyncStream.makeStream(bufferingPolicy: .bufferingOldest(1_024))
    (lowData, replacing) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
  }

  /// Has a response freshened, once however often it is asked for meanwhile.
  func freshen(_ job: Job) {
    guard let key = job.cacheKey, underWay.withLock({ $0.insert(key).inserted }) else { return }
    if case .dropped = freshening.yield(job) { done(job) }
  }

  /// Has jobs looked for whose low-data image can be replaced: once for all who ask before that begins.
  func replaceLowData() {
    replacesAll.store(true, ordering: .relaxed)
    replacing.yield()
  }

  func stop() {
    freshening.finish()
    replacing.finish()
  }

  /// The job's response is fresh, or can't be made so.
  fileprivate func done(_ job: Job) {
    guard let key = job.cacheKey else { return }
    underWay.withLock { _ = $0.remove(key) }
  }

  /// Has those looked for alone that are known to be left.
  fileprivate func replaceLeft() { replacing.yield() }

  /// Whether all are to be looked for, since this was last asked.
  fileprivate func takeAll() -> Bool { replacesAll.exchange(false, ordering: .relaxed) }
}

/// Loads what is in the ``BackgroundQueue``: little at once, and each origin's limits hold for it too.
struct BackgroundWorker: Sendable {
  let queue: BackgroundQueue
  let freshener: Freshener
  let replacer: LowDataReplacer

  /// Does what there is to do until the queue is stopped.
  func run() async {
    await withDiscardingTaskGroup { group in
      group.addTask { await replacer.run(for: queue) }
      let permits = AsyncSemaphore(8)
      for await job in queue.stale {
        let permit = await permits.acquire()
        group.addTask {
          await freshener.freshen(job)
          queue.done(job)
          _ = consume permit
        }
      }
      group.cancelAll()
    }
  }
}

/// Confirms or replaces stored responses that were given out stale.
struct Freshener: Sendable {
  let loader: BackgroundLoader
  let cache: ResponseCache
  let ids: JobIDSequence
  let now: WallClock

  /// What goes wrong is left to the next job that asks for it.
  func freshen(_ job: Job) async {
    if await isFresh(for: job) { return }
    var submission = job.submission
    submission.cacheMode = .noCache
    submission.integrity = nil
    (submission.variants, submission.dropsOriginal) = ([], false)
    var again = Job(
      id: ids.next(at: now()), owner: job.owner, submission: submission, priority: .veryLow,
      tags: [], createdAt: now())
    again.target = job.target
    await loader.load(again)
  }

  /// Whether others had it freshened after the job had found it stale.
  private func isFresh(for job: Job) async -> Bool {
    let answer = await cache.answer(job, at: now())
    guard case .use(_, _, isStale: false) = answer else { return false }
    return true
  }
}

/// Gives jobs that have a low-data image their regular one, and brings it to where that was brought.
struct LowDataReplacer: Sendable {
  let loader: BackgroundLoader
  let store: any JobRecords
  let network: NetworkState
  let publisher: JobPublisher
  let makers: VariantMakers
  let deliveries: JobDeliveries
  let log: Logger
  /// When regular images are asked for again that could not be had.
  var retry = RetryPolicy.ofRegularImages

  /// Goes through them whenever that is asked for, one time after the other, until the queue is stopped; and after a while
  /// once more through those whose regular image may be had by then, so that no others are asked for in vain again.
  func run(for queue: BackgroundQueue) async {
    await withDiscardingTaskGroup { group in
      var left = LowDataLeft()
      var tries = 1
      var due: ContinuousClock.Instant?
      for await _ in queue.lowData {
        if let time = due, time <= .now { due = nil }
        left = await replaceAll(queue.takeAll() ? nil : left, tries: tries)
        guard let pause = left.pause else {
          tries = 1
          continue
        }
        // However often all are gone through meanwhile, there is one such time ahead.
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

  /// Goes through all of them, until the network is constrained again.
  /// - Parameters:
  ///   - chosen: whose turn it is; nil: everyone's.
  ///   - tries: made for those that are left over, this one included.
  /// - Returns: whose turn is to come again.
  @discardableResult
  func replaceAll(_ chosen: LowDataLeft? = nil, tries: Int = 1) async -> LowDataLeft {
    var left = LowDataLeft()
    var last: JobID?
    while !Task.isCancelled, !network.isConstrained, !loader.loads.isStopping {
      let jobs = await jobs(after: last)
      guard !jobs.isEmpty else { break }
      last = jobs.last?.id
      let failed = await withTaskGroup(of: Failed?.self) { group -> [Failed] in
        for job in jobs where chosen?.contains(job.id) ?? true {
          group.addTask { () -> Failed? in
            await replaceImage(of: job).map { (job: job.id, failure: $0) }
          }
        }
        var failed: [Failed] = []
        for await job in group { if let job { failed.append(job) } }
        return failed
      }
      for (job, failure) in failed {
        if let pause = pause(after: failure, tries: tries) { left.add(job, pause) }
      }
    }
    return left
  }

  /// How long until a job has its turn again; nil: it keeps its low-data image.
  private func pause(after failure: JobFailure, tries: Int) -> Duration? {
    // What refuses it, such as a URL whose signature has expired, does so the next time, too.
    if case .delivery(let error) = failure {
      return error.isPassing ? retry.longestBackoff(after: tries) : nil
    }
    return retry.delay(after: failure, tries: tries, allowed: Int.max, dice: 1)
  }

  private typealias Failed = (job: JobID, failure: JobFailure)

  /// Those next, however often the store has to be asked; none once cancelled.
  private func jobs(after last: JobID?) async -> [Job] {
    await insist("low-data images can't be looked up", log) { () async throws(StoreError) in
      try await store.jobsWithLowDataImages(after: last, count: 64)
    } ?? []
  }

  /// - Returns: why it has its low-data image still, unless it is to keep that.
  private func replaceImage(of job: Job) async -> JobFailure? {
    // It has the bytes that it named, and takes no others.
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
    var brought = job.deliveries
    do throws(JobFailure) {
      // What the decode did not make is rendered, and written, where that may take its time.
      let made = await Task(executorPreference: loader.threads.lane(at: .veryLow)) {
        await variants(for: job, loaded, load)
      }.value
      let wanted = try made.get()
      let image = try wanted.image(for: job)
      guard try await isToBeDelivered(job) else { return nil }
      let replaced = await deliveries.replace(job, wanted, of: load)
      brought = replaced.deliveries
      if let failure = replaced.failure { throw failure }
      let requests = load.tracker.progress.requests
      let changed = try await change(job.id) {
        $0.replaceImage(
          with: image, cache: loaded.cache, deliveries: replaced.deliveries, requests: requests)
      }
      if let changed { publisher.publishReplacedImage(of: changed) }
      return nil
    } catch {
      log.info(
        "a low-data image can't be replaced",
        metadata: ["job": "\(job.id)", "code": "\(error.code.rawValue)"])
      await keepImage(of: job, brought, load)
      return error
    }
  }

  /// The variants that the job wants, made anew; a failure where the image is more than the job takes.
  private func variants(
    for job: Job, _ loaded: LoadedImage, _ load: Load
  ) async -> Result<JobVariants, JobFailure> {
    // No job waited for the load, which would have watched its limits.
    let limits = JobLimits(of: job, within: loader.loads.rules)
    let outcomes = loader.completer.outcomes
    if let objection = outcomes.objection(to: loaded.image, for: job, within: limits) {
      return .failure(objection)
    }
    var wanted = JobVariants(of: loaded, in: makers)
    await wanted.make(for: [job])
    await wanted.keepBundles(for: [job], of: load)
    return .success(wanted)
  }

  /// Nothing is brought anywhere for a job that was purged while its image was loaded, or that has another one by now.
  private func isToBeDelivered(_ job: Job) async throws(JobFailure) -> Bool {
    guard !job.submission.deliveries.isEmpty else { return true }
    do throws(StoreError) { return try await store.job(job.id)?.hasLowDataImage == true } catch {
      throw JobFailure(error)
    }
  }

  /// Notes what was tried in vain: by how many requests, and what is where by now.
  private func keepImage(of job: Job, _ deliveries: [Delivered], _ load: Load) async {
    let requests = load.tracker.progress.requests
    guard requests > 0 || deliveries != job.deliveries else { return }
    let kept = try? await change(job.id) {
      $0.keepImage(deliveries: deliveries, requests: requests)
    }
    if let kept { publisher.publish(kept, hasEnded: false) }
  }

  /// Changes a job for as long as it has its low-data image.
  /// - Returns: nil where it hasn't.
  private func change(
    _ id: JobID, _ change: @escaping @Sendable (inout Job) -> Void
  ) async throws(JobFailure) -> Job? {
    let outcome = ChangeOutcome()
    do throws(StoreError) {
      let job = try await store.update(id, under: nil) { job in
        guard outcome.begins(with: job), job.image?.variant == .lowData, job.phase == .success
        else { return false }
        change(&job)
        outcome.note(.changed, finished: job)
        return true
      }
      return outcome.value == .changed ? job : nil
    } catch {
      log.error(
        "a low-data image can't be replaced", metadata: ["job": "\(id)", "error": "\(error)"])
      throw JobFailure(error)
    }
  }
}

/// Jobs whose regular image could not be had, and may be later.
struct LowDataLeft: Sendable {
  private var jobs: Set<JobID> = []
  /// How long they are left alone, all of them as long as any has to be; nil: there are none.
  private(set) var pause: Duration?
  /// With so many, which is bound enough for memory, all have their turn again.
  private static let most = 10_000

  func contains(_ job: JobID) -> Bool { jobs.count == Self.most || jobs.contains(job) }

  mutating func add(_ job: JobID, _ pause: Duration) {
    if jobs.count < Self.most { jobs.insert(job) }
    self.pause = max(self.pause ?? pause, pause)
  }
}

extension RetryPolicy {
  /// Nobody waits for them. An origin's `Retry-After` is obeyed up to the maximum here, too: the others wait with it.
  fileprivate static let ofRegularImages: RetryPolicy = {
    var policy = RetryPolicy()
    policy.initialBackoff = .seconds(30)
    policy.maximumBackoff = .seconds(600)
    return policy
  }()
}

/// One load that no job waits for.
struct BackgroundLoader: Sendable {
  let loads: Loads
  let urls: URLLoader
  let origins: OriginLimits
  let threads: any ComputeThreads
  let completer: JobCompleter
  let keeper: ImageKeeper
  let log: Logger

  /// Obtains what the job asks for, has the cache keep it, and then does `use` while the image is held; also where it can't
  /// be had.
  /// - Returns: what `use` says; why its origin may not be asked, where that is so.
  @discardableResult
  func load(
    _ job: Job,
    _ use: (Load, Result<LoadedImage, JobFailure>) async -> JobFailure? = { _, _ in nil }
  ) async -> JobFailure? {
    guard let origin = job.origin else { return nil }
    let permits: OriginPermits
    do throws(FetchError) {
      // For as long as the transfer may take then, at no worker's cost.
      permits = OriginPermits(try await origins.admit(origin, within: loads.rules.timeout))
    } catch {
      return .fetch(error)
    }
    let worker = BackgroundTransfer(on: threads.workerLane(at: job.priority), urls, log: log)
    guard let load = loads.beginInBackground(for: job, on: worker.lane) else { return nil }
    let outcome = await worker.obtain(load, permits)
    permits.release()
    if case .success(let loaded) = outcome {
      await completer.complete([], of: load, entry: loaded.entry) { _ in .requeue }
    }
    let failure = await use(load, outcome)
    if let reservation = load.reservation { await keeper.release(reservation) }
    loads.end(load)
    return failure
  }
}

/// Obtains an image for nobody in particular, on the decode threads as a ``Worker`` does.
private actor BackgroundTransfer {
  nonisolated let unownedExecutor: UnownedSerialExecutor
  nonisolated let lane: any WorkerLane
  private let urls: URLLoader
  private let log: Logger

  init(on lane: any WorkerLane, _ urls: URLLoader, log: Logger) {
    self.lane = lane
    unownedExecutor = lane.asUnownedSerialExecutor()
    self.urls = urls
    self.log = log
  }

  /// - Returns: a failure where it can't be had: the log has it, too.
  nonisolated func obtain(
    _ load: Load, _ permits: OriginPermits
  ) async -> Result<LoadedImage, JobFailure> {
    await withCheckedContinuation { done in
      load.run(as: Task.immediate { done.resume(returning: await transfer(load, permits)) })
    }
  }

  private func transfer(
    _ load: Load, _ permits: OriginPermits
  ) async -> Result<LoadedImage, JobFailure> {
    do throws(JobFailure) { return .success(try await urls.obtain(for: load, permits)) } catch {
      log.info(
        "an image could not be loaded in the background",
        metadata: ["origin": "\(load.leader.origin ?? "")", "code": "\(error.code.rawValue)"])
      return .failure(error)
    }
  }
}
