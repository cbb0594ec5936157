internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// What is to be loaded though no job waits for it: stored responses that the cache gave out stale, to be freshened,
/// and regular images, to take the place of low-data ones.
final class BackgroundQueue: Sendable {
  /// What there is to do.
  enum Item: Sendable {
    /// Confirm or replace the stored response that answered this job (RFC 5861 section 3).
    case freshen(Job)
    /// Look for jobs whose low-data image can be replaced.
    case replaceLowData
  }

  let items: AsyncStream<Item>
  private let continuation: AsyncStream<Item>.Continuation
  private let underWay = Mutex<Set<Fingerprint>>([])

  init() {
    (items, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingOldest(1_024))
  }

  /// Has a response freshened, once however often it is asked for meanwhile.
  func freshen(_ job: Job) {
    guard let key = job.cacheKey, underWay.withLock({ $0.insert(key).inserted }) else { return }
    if case .dropped = continuation.yield(.freshen(job)) { done(job) }
  }

  func replaceLowData() { continuation.yield(.replaceLowData) }

  func stop() { continuation.finish() }

  /// The job's response is fresh, or can't be made so.
  fileprivate func done(_ job: Job) {
    guard let key = job.cacheKey else { return }
    underWay.withLock { _ = $0.remove(key) }
  }
}

/// Loads what is in the ``BackgroundQueue``: little at once, and each origin's limits hold for it too.
struct BackgroundWorker: Sendable {
  let queue: BackgroundQueue
  let freshener: Freshener
  let replacer: LowDataReplacer

  /// Does what there is to do until the queue is stopped.
  func run() async {
    await withDiscardingTaskGroup { group in
      let permits = AsyncSemaphore(8)
      for await item in queue.items {
        let permit = await permits.acquire()
        group.addTask {
          switch item {
          case .freshen(let job):
            await freshener.freshen(job)
            queue.done(job)
          case .replaceLowData: await replacer.replaceAll()
          }
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
    let answer = await cache.answer(job, at: now(), within: CachePolicy(job))
    guard case .use(_, _, isStale: false) = answer else { return false }
    return true
  }
}

/// Gives jobs that have a low-data image their regular one.
struct LowDataReplacer: Sendable {
  let loader: BackgroundLoader
  let store: any JobRecords
  let network: NetworkState
  let publisher: JobPublisher
  let makers: VariantMakers
  let log: Logger

  /// Goes through all of them, until the network is constrained again.
  func replaceAll() async {
    var last: JobID?
    while !Task.isCancelled, !network.isConstrained, !loader.loads.isStopping {
      let jobs = await jobs(after: last)
      guard !jobs.isEmpty else { return }
      last = jobs.last?.id
      await withDiscardingTaskGroup { group in
        for job in jobs { group.addTask { await replaceImage(of: job) } }
      }
    }
  }

  /// Those next, however often the store has to be asked; none once cancelled.
  private func jobs(after last: JobID?) async -> [Job] {
    await insist("low-data images can't be looked up", log) { () async throws(StoreError) in
      try await store.jobsWithLowDataImages(after: last, count: 64)
    } ?? []
  }

  private func replaceImage(of job: Job) async {
    // It has the bytes that it named, and takes no others.
    guard job.submission.integrity == nil else { return }
    var regular = job
    regular.target = .regular
    await loader.load(regular) { [regular] load, loaded in
      // What the decode did not make is rendered, and written, where that may take its time.
      let image = await Task(executorPreference: loader.threads.lane(at: .veryLow)) {
        await replacement(for: regular, loaded, load)
      }.value
      if let image { await replaceImage(of: job.id, by: image, loaded.cache) }
    }
  }

  /// The image with the variants that the job wants, made anew; nil where one can't be, or where the image is more than the
  /// job takes: the log has why.
  private func replacement(
    for job: Job, _ loaded: LoadedImage, _ load: Load
  ) async -> StoredImage? {
    do throws(JobFailure) {
      // No job waited for the load, which would have watched its limits.
      let limits = JobLimits(of: job, within: loader.loads.rules)
      let outcomes = loader.completer.outcomes
      if let objection = outcomes.objection(to: loaded.image, for: job, within: limits) {
        throw objection
      }
      var wanted = JobVariants(of: loaded, in: makers)
      await wanted.make(for: [job])
      await wanted.keepBundles(for: [job], of: load)
      return try wanted.image(for: job)
    } catch {
      log.info(
        "a low-data image can't be replaced",
        metadata: ["job": "\(job.id)", "code": "\(error.code.rawValue)"])
      return nil
    }
  }

  private func replaceImage(
    of id: JobID, by image: StoredImage, _ cache: CacheOutcome?
  ) async {
    let outcome = ChangeOutcome()
    do throws(StoreError) {
      let job = try await store.update(id, under: nil) { job in
        guard outcome.begins(with: job), job.image?.variant == .lowData, job.phase == .success
        else { return false }
        job.replaceImage(with: image, cache: cache)
        outcome.note(.changed, finished: job)
        return true
      }
      guard let job, outcome.value == .changed else { return }
      publisher.publishReplacedImage(of: job)
    } catch {
      log.error(
        "a low-data image can't be replaced", metadata: ["job": "\(id)", "error": "\(error)"])
    }
  }
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

  /// Obtains what the job asks for, has the cache keep it, and then does `use` while the image is held.
  func load(_ job: Job, _ use: (Load, LoadedImage) async -> Void = { _, _ in }) async {
    guard let permit = await permit(for: job) else { return }
    let worker = BackgroundTransfer(on: threads.workerLane(at: job.priority), urls, log: log)
    guard let load = loads.beginInBackground(for: job, on: worker.lane) else { return }
    let permits = OriginPermits(permit)
    let loaded = await worker.obtain(load, permits)
    permits.release()
    if let loaded {
      await completer.complete([], of: load, entry: loaded.entry) { _ in .requeue }
      await use(load, loaded)
    }
    if let reservation = load.reservation { await keeper.release(reservation) }
    loads.end(load)
  }

  /// Waits for room at the origin for as long as the transfer may take then, at no worker's cost.
  private func permit(for job: Job) async -> OriginPermit? {
    guard let origin = job.origin else { return nil }
    do throws(FetchError) {
      return try await origins.admit(origin, within: loads.rules.timeout)
    } catch { return nil }
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

  /// - Returns: nil where it can't be had: the log has why.
  nonisolated func obtain(_ load: Load, _ permits: OriginPermits) async -> LoadedImage? {
    await withCheckedContinuation { done in
      load.run(as: Task.immediate { done.resume(returning: await transfer(load, permits)) })
    }
  }

  private func transfer(_ load: Load, _ permits: OriginPermits) async -> LoadedImage? {
    do throws(JobFailure) { return try await urls.obtain(for: load, permits) } catch {
      log.info(
        "an image could not be loaded in the background",
        metadata: ["origin": "\(load.leader.origin ?? "")", "code": "\(error.code.rawValue)"])
      return nil
    }
  }
}
