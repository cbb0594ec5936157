internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// The queue of background loads, which have no waiting jobs: stale responses to refresh, and regular images that replace low-data ones.
///
/// Owners share the refreshes that run and those that wait (``FairShare``), and they take turns (``FairQueue``). So origins
/// that hang delay only the refreshes of their own owner.
final class BackgroundQueue: Sendable {
  /// Refreshes that run at the same time: at most half for one owner while another owner waits, and a quarter for owners
  /// that have none.
  static let maxRefreshes = 8
  /// Refreshes that wait: at most half for one owner while another owner adds some. Further ones are dropped; the next job
  /// that gets the stale response adds them again.
  static let mostWaiting = 1_024

  private static let bounds = ShareBounds.keepingQuarter(of: maxRefreshes)

  private struct Refresh: Hashable {
    let key: Fingerprint
    let owner: Owner
  }

  private struct State {
    var known: Set<Refresh> = []
    var waiting = FairQueue<Owner, Job>()
    var slots = FairShare<Owner>()
    var running = FairShare<Owner>()
  }

  /// Sent when a stored response may be refreshed (RFC 5861 section 3): see ``nextStale()``.
  let stale = Signal()
  /// Sent when low-data images may be replaced.
  let lowData = Signal()
  private let state = Mutex(State())
  private let replacesAll = Atomic(false)
  private let now: WallClock

  init(now: @escaping WallClock) { self.now = now }

  /// Adds a refresh of a job's stored response, unless the owner has one that waits or runs.
  func addRefresh(of job: Job) {
    guard let key = job.cacheKey else { return }
    let (owner, moment) = (job.owner, now())
    state.withLock { state in
      guard !state.known.contains(Refresh(key: key, owner: owner)),
        state.slots.acquire(1, for: owner, within: ShareBounds(Self.mostWaiting), at: moment)
      else { return }
      state.known.insert(Refresh(key: key, owner: owner))
      state.waiting.append(job, for: owner)
    }
    stale.send()
  }

  /// Starts the next refresh, which ``endRefresh(of:)`` ends.
  /// - Returns: nil if no owner with stale responses has capacity.
  fileprivate func nextStale() -> Job? {
    let moment = now()
    return state.withLock { state in
      let owner = state.waiting.next { owner in
        state.running.available(for: owner, within: Self.bounds, at: moment) > 0
      }
      guard let owner else { return nil }
      state.slots.release(1, of: owner)
      state.running.acquireUnchecked(1, for: owner)
      return state.waiting.popFirst(of: owner)
    }
  }

  /// Starts a pass over all jobs with a low-data image. Calls before it starts lead to one pass.
  func replaceLowData() {
    replacesAll.store(true, ordering: .relaxed)
    lowData.send()
  }

  func stop() {
    stale.finish()
    lowData.finish()
  }

  /// Ends a refresh, successful or not.
  fileprivate func endRefresh(of job: Job) {
    let moment = now()
    state.withLock { state in
      if let key = job.cacheKey { state.known.remove(Refresh(key: key, owner: job.owner)) }
      state.running.release(1, of: job.owner, at: moment)
    }
    stale.send()
  }

  /// Starts a pass over the jobs whose replacement failed and is due for a retry.
  func replaceLeft() { lowData.send() }

  /// Returns and resets whether a pass over all jobs is due.
  func takeFullPass() -> Bool { replacesAll.exchange(false, ordering: .relaxed) }
}

/// Carries out the loads of the ``BackgroundQueue``. The limits of origins apply to them too.
struct BackgroundWorker: Sendable {
  let queue: BackgroundQueue
  let refresher: CacheRefresher
  let replacer: LowDataReplacer

  /// Runs until the queue is stopped.
  func run() async {
    await withDiscardingTaskGroup { group in
      group.addTask { await replacer.run(for: queue) }
      for await _ in queue.stale.arrivals {
        while let job = queue.nextStale() {
          group.addTask {
            await refresher.refresh(job)
            queue.endRefresh(of: job)
          }
        }
      }
      group.cancelAll()
    }
  }
}

/// Validates or replaces stored responses that were served stale.
struct CacheRefresher: Sendable {
  let loader: BackgroundLoader
  let cache: ResponseCache
  let ids: JobIDSequence
  let now: WallClock

  /// Refreshes a job's stored response. After a failure the next job that gets it adds another refresh.
  func refresh(_ job: Job) async {
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

  /// Whether the response was refreshed since the job got it.
  private func isFresh(for job: Job) async -> Bool {
    let answer = await cache.answer(job, at: now())
    guard case .use(_, _, isStale: false) = answer else { return false }
    return true
  }
}

/// Carries out one load for which no job waits.
struct BackgroundLoader: Sendable {
  let loads: Loads
  let urls: URLLoader
  let origins: OriginLimits
  let threads: any ComputeThreads
  let completer: JobCompleter
  let keeper: ImageLifecycle
  let log: Logger

  /// Fetches the job's image, caches the response, and then calls `use` while the image is reserved; also after a failure.
  /// - Returns: the result of `use`; or the reason why no request may be sent to the origin.
  @discardableResult
  func load(
    _ job: Job,
    _ use: (Load, Result<LoadedImage, JobFailure>) async -> JobFailure? = { _, _ in nil }
  ) async -> JobFailure? {
    guard let origin = job.origin else { return nil }
    let permits: OriginPermits
    do throws(FetchError) {
      // Waits for a permit as long as a transfer may take. No worker is occupied meanwhile.
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

/// Fetches an image on the decode threads, like a ``Worker``.
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

  /// - Returns: the image, or the failure, which is also logged.
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
        "failed to load an image in the background",
        metadata: ["origin": "\(load.leader.origin ?? "")", "code": "\(error.code.rawValue)"])
      return .failure(error)
    }
  }
}
