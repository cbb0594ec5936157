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
  func replaceLeft() { replacing.yield() }

  /// Whether all are to be looked for, since this was last asked.
  func takeAll() -> Bool { replacesAll.exchange(false, ordering: .relaxed) }
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
      permits = OriginPermits(
        try await origins.admit(origin, for: job.owner, within: loads.rules.timeout))
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
