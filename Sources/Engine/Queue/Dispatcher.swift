internal import Jobs
internal import Logging
internal import Waiting

/// Hands queued jobs to idle workers. The queue itself is the store's: a job that waits, for a worker or for its
/// origin, costs no memory here.
actor Dispatcher {
  /// A job to be worked on.
  struct Work: Sendable {
    let job: Job
    let claim: Claim
    /// The right to ask its origin; nil where none is asked, or may not be at the moment.
    let permit: OriginPermit?
    /// Why its origin may not be asked.
    let refusal: FetchError?
    /// Whether other queued jobs ask the same.
    let isShared: Bool
  }

  private let store: any JobQueue
  private let lease: Lease
  private let origins: OriginLimits
  private let positions: QueuePositions
  private let now: WallClock
  private let log: Logger
  /// Workers that are kept for jobs of origins which answer, where there is more than one.
  private let reserve: Int
  private let signal: DispatcherSignal
  private var idle: [CheckedContinuation<Work?, Never>] = []
  private var alarm: Task<Void, Never>?
  private let stopped = Latch()
  private var isStopped: Bool { stopped.isOpen }

  init(
    store: any JobQueue, lease: Lease, origins: OriginLimits, positions: QueuePositions,
    workers: Int,
    signal: DispatcherSignal, now: @escaping WallClock, log: Logger
  ) {
    self.store = store
    self.lease = lease
    self.origins = origins
    self.positions = positions
    self.signal = signal
    self.now = now
    self.log = log
    reserve = workers > 1 ? max(1, workers / 4) : 0
  }

  /// Says that there may be a job to claim. Many calls in a row cost one look.
  nonisolated func wake() { signal.wake() }

  /// Waits for a job; nil once stopped.
  func next() async -> Work? {
    if isStopped { return nil }
    return await withCheckedContinuation { continuation in
      idle.append(continuation)
      wake()
    }
  }

  /// Claims jobs for idle workers until stopped.
  func run() async {
    await withTaskGroup { group in
      group.addTask { for await _ in self.signal.wakeUps { await self.claim() } }
      // The store looks through a long queue until its task is cancelled.
      group.addTask { await self.stopped.wait() }
      await group.next()
      group.cancelAll()
    }
    alarm?.cancel()
  }

  /// No job is handed over after this; idle workers are sent home.
  func stop() {
    stopped.open()
    signal.stop()
    for worker in idle { worker.resume(returning: nil) }
    idle = []
  }

  private func claim() async {
    do throws(StoreError) {
      var nextDue: Timestamp?
      // What time brings is judged by one moment: what came while the store was asked would else be missed.
      var moment = origins.now
      while !idle.isEmpty, !isStopped {
        let wanted = idle.count
        moment = origins.now
        let room = origins.room(at: moment, isSpare: false)
        let claimed = try await claim(wanted, room)
        nextDue = claimed.nextDue
        positions.take(claimed.jobs.map(\.job))
        await hand(over: claimed)
        if claimed.jobs.count < wanted {
          positions.clear()
          break
        }
      }
      // Workers that nobody else wants may try what is likely to take them long, or to fail.
      if idle.count > reserve, !isStopped, origins.hasSpareRoom(at: moment) {
        let wanted = idle.count - reserve
        let room = origins.room(at: moment, isSpare: true)
        await hand(over: try await claim(wanted, room))
      }
      wake(at: nextDue, since: moment)
    } catch {
      log.error("the store hands over no jobs", metadata: ["error": "\(error)"])
      wake(after: .seconds(1))
    }
  }

  private func claim(_ count: Int, _ room: OriginRoom) async throws(StoreError) -> Claimed {
    try await lease.holding { [store] instance throws(StoreError) in
      try await store.claim(count, for: instance, room: room)
    }
  }

  private func hand(over claimed: Claimed) async {
    var works = claimed.jobs.map { job, claim in
      work(job, claim, isShared: job.request.map(claimed.shared.contains) ?? false)
    }[...]
    while let work = works.first, let worker = idle.popLast() {
      works = works.dropFirst()
      worker.resume(returning: work)
    }
    if !works.isEmpty { await requeue(works.map(\.claim)) }
  }

  /// Claimed while the service was being stopped: nobody will carry them.
  private func requeue(_ claims: [Claim]) async {
    do throws(StoreError) {
      _ = try await store.complete(
        Completion(claims) { job in
          job.requeue()
          return true
        })
    } catch {
      log.error(
        "jobs stay claimed until the next start",
        metadata: ["jobs": "\(claims.count)", "error": "\(error)"])
    }
  }

  private func work(_ job: Job, _ claim: Claim, isShared: Bool) -> Work {
    func work(_ permit: OriginPermit?, _ refusal: FetchError?) -> Work {
      Work(job: job, claim: claim, permit: permit, refusal: refusal, isShared: isShared)
    }
    guard let origin = job.origin else { return work(nil, nil) }
    do throws(FetchError) { return work(try origins.enter(origin), nil) } catch {
      return work(nil, error)
    }
  }

  /// - Parameter moment: when it was looked at what origins have room.
  private func wake(at due: Timestamp?, since moment: OriginLimits.Instant) {
    let delays = [
      due.map { $0 - now() },
      origins.nextChange(after: moment).map { origins.now.duration(to: $0) },
    ]
    if let delay = delays.compactMap(\.self).min() { wake(after: delay) }
  }

  private func wake(after delay: Duration) {
    alarm?.cancel()
    alarm = Task { [signal] in
      // Neither sooner than a due moment that was rounded down, nor so late that a changed clock matters.
      try? await Task.sleep(for: min(max(delay, .milliseconds(1)), .seconds(60)))
      if !Task.isCancelled { signal.wake() }
    }
  }
}

/// Wakes the dispatcher.
struct DispatcherSignal: Sendable {
  let wakeUps: AsyncStream<Void>
  private let continuation: AsyncStream<Void>.Continuation

  init() { (wakeUps, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1)) }

  func wake() { continuation.yield() }
  func stop() { continuation.finish() }
}
