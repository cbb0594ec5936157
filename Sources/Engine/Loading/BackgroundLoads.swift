internal import DequeModule
internal import Jobs
internal import Logging
internal import Synchronization

/// What is to be loaded though no job waits for it: stored responses that the cache gave out stale, to be freshened,
/// and regular images, to take the place of low-data ones.
///
/// Owners share what is refreshed at once and what waits for that (``SharedCapacity``), and they take turns: origins that
/// hang stop the refreshing for their owner alone.
final class BackgroundQueue: Sendable {
  /// Responses that are refreshed at once: half for one owner while another one asks, and a quarter for owners that have
  /// none.
  static let atOnce = 8
  /// Responses that wait to be refreshed: half for one owner while another one asks. More are refreshed when a job asks
  /// for them again.
  static let mostWaiting = 1_024

  private struct Refresh: Hashable {
    let key: Fingerprint
    let owner: Owner
  }

  private struct State {
    var known: Set<Refresh> = []
    var waiting: [Owner: Deque<Job>] = [:]
    /// The owners of those, each once.
    var turns = Deque<Owner>()
    var places = SharedCapacity<Owner>()
    var running = SharedCapacity<Owner>()
  }

  /// Yields when a stored response may be refreshed (RFC 5861 section 3): see ``nextStale()``.
  let stale: AsyncStream<Void>
  /// Yields when low-data images may have to be replaced.
  let lowData: AsyncStream<Void>
  private let freshening: AsyncStream<Void>.Continuation
  private let replacing: AsyncStream<Void>.Continuation
  private let state = Mutex(State())
  private let replacesAll = Atomic(false)
  private let now: WallClock

  init(now: @escaping WallClock) {
    self.now = now
    (stale, freshening) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
    (lowData, replacing) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
  }

  /// Has a job's stored response refreshed, once however often the owner asks for it meanwhile.
  func freshen(_ job: Job) {
    guard let key = job.cacheKey else { return }
    let (owner, moment) = (job.owner, now())
    state.withLock { state in
      guard !state.known.contains(Refresh(key: key, owner: owner)),
        state.places.take(1, for: owner, within: Self.mostWaiting, at: moment)
      else { return }
      state.known.insert(Refresh(key: key, owner: owner))
      if state.waiting[owner] == nil { state.turns.append(owner) }
      state.waiting[owner, default: []].append(job)
    }
    freshening.yield()
  }

  /// Begins the next refresh, which ``done(_:)`` ends.
  /// - Returns: nil where no owner with stale responses has room.
  fileprivate func nextStale() -> Job? {
    let moment = now()
    return state.withLock { state in
      let turn = state.turns.firstIndex { owner in
        state.running.room(
          for: owner, within: Self.atOnce, keeping: Self.atOnce / 4, at: moment) > 0
      }
      guard let turn else { return nil }
      let owner = state.turns.remove(at: turn)
      let job = state.waiting[owner]?.popFirst()
      if state.waiting[owner]?.isEmpty == true {
        state.waiting[owner] = nil
      } else {
        state.turns.append(owner)
      }
      state.places.release(1, of: owner)
      state.running.hold(1, for: owner)
      return job
    }
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
    let moment = now()
    state.withLock { state in
      if let key = job.cacheKey { state.known.remove(Refresh(key: key, owner: job.owner)) }
      state.running.release(1, of: job.owner)
      state.running.note(job.owner, at: moment)
    }
    freshening.yield()
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
      for await _ in queue.stale {
        while let job = queue.nextStale() {
          group.addTask {
            await freshener.freshen(job)
            queue.done(job)
          }
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
