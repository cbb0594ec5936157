internal import Jobs
internal import Logging

// Loading: the path of a claimed job from the queue to its end.
//
// Input: a claimed job from the `Dispatcher`. Output: its end (an image, a failure or a retry), stored and then published
// to clients. Read the files in this order:
//
// 1. `Worker`, an actor, joins the `Load` of an equal request or starts one, on the thread on which the store answers.
//    It carries the load out on the decode threads, where all that follows runs too.
// 2. `Load` is one transfer with its waiting jobs; `Loads` is the set of all loads.
// 3. `Loader` carries a load from its source to its end. `URLLoader` asks the cache and the origin, `OriginRequests` sends
//    a request, `PartialTransfers` resumes an earlier transfer.
// 4. `ImageIngest` and `Decode` hash, write and decode each piece of the image as it arrives.
// 5. `JobCompleter` ends all jobs that want only the image, in one transaction. The others continue in `Finisher`.

/// One worker of the pool: carries a claimed job to its end, and then is idle again.
///
/// It runs on a lane of the decode threads, which has the priority of the load. The functions that it calls run there too,
/// so a load changes threads only when it waits for something.
actor Worker: QueueWorker {
  nonisolated let unownedExecutor: UnownedSerialExecutor
  private nonisolated let lane: any WorkerLane
  private nonisolated let loads: Loads
  private nonisolated let dispatcher: Dispatcher
  private let coalescer: Coalescer
  private let loader: Loader
  private nonisolated let finisher: Finisher

  init(
    on lane: any WorkerLane, dispatcher: Dispatcher, loads: Loads, coalescer: Coalescer,
    loader: Loader
  ) {
    finisher = loader.finisher
    self.lane = lane
    unownedExecutor = lane.asUnownedSerialExecutor()
    self.dispatcher = dispatcher
    self.loads = loads
    self.coalescer = coalescer
    self.loader = loader
  }

  /// Adds the job to a load on the caller's thread, so that its phase is `loading` immediately.
  nonisolated func start(_ work: Dispatcher.Work) {
    let waiter = loads.waiter(work.job, work.claim)
    if work.job.pending != nil {
      guard finisher.begin([waiter]) else {
        Task.immediate { await refuse(work.claim) }
        return
      }
      return dispatcher.workerIsIdle(self)
    }
    switch loads.enter(waiter, on: lane) {
    case .joined(let load):
      loads.show(waiter, in: load)
      // Moving equal jobs together costs one transaction. Claimed one by one, each would cost a worker and a transaction.
      guard work.isShared, load.beginCoalescing() else { return dispatcher.workerIsIdle(self) }
      Task.immediate { await coalesce(into: load) }
    case .began(let load):
      // Before the load runs, because it may end immediately.
      let coalesces = work.isShared && load.beginCoalescing()
      loads.show(waiter, in: load)
      let (permits, refusal) = (OriginPermits(work.permit), work.refusal)
      load.run(as: Task.immediate { await carryOut(load, permits, refusal, coalesces) })
    case .refused:
      Task.immediate { await refuse(work.claim) }
    }
  }

  private func carryOut(
    _ load: Load, _ permits: OriginPermits, _ refusal: FetchError?, _ coalesces: Bool
  ) async {
    if coalesces {
      async let coalescing: Void = coalescer.coalesce(into: load)
      await loader.carryOut(load, permits, refusal: refusal)
      await coalescing
    } else {
      await loader.carryOut(load, permits, refusal: refusal)
    }
    dispatcher.workerIsIdle(self)
  }

  private func coalesce(into load: Load) async {
    await coalescer.coalesce(into: load)
    dispatcher.workerIsIdle(self)
  }

  private func refuse(_ claim: Claim) async {
    await loader.completer.requeue([claim])
    dispatcher.workerIsIdle(self)
  }
}

/// Moves queued jobs with the same request as a load into it, regardless of their position in the queue.
struct Coalescer: Sendable {
  let store: any JobQueue
  let lease: Lease
  let loads: Loads
  let completer: JobCompleter
  let gate: QueueGate
  let log: Logger

  /// Ends what ``Load/beginCoalescing()`` started. Jobs that the load refuses return to the queue, and end the move.
  ///
  /// - Parameter limit: the most jobs to move.
  func coalesce(into load: Load, atMost limit: Int = .max) async {
    defer { load.endCoalescing() }
    guard let request = load.request else { return }
    var left = limit
    do throws(StoreError) {
      while left > 0, !loads.isStopping, !load.isCancelled {
        let wanted = min(left, JobCompleter.batch, loads.capacity)
        guard wanted > 0 else { return }
        let claimed = try await lease.withLease { instance throws(StoreError) in
          try await store.claim(equalTo: request, count: wanted, for: instance)
        }
        gate.recordDepartures(claimed.lazy.map(\.job))
        let haveJoined = await join(claimed, load)
        guard haveJoined, claimed.count == wanted, load.waiterCount < Load.mostWaiters else {
          return
        }
        left -= wanted
      }
    } catch {
      log.error("failed to claim equal jobs", metadata: ["error": "\(error)"])
    }
  }

  private func join(_ jobs: [(job: Job, claim: Claim)], _ load: Load) async -> Bool {
    guard !jobs.isEmpty else { return false }
    let joined = loads.enter(jobs.map { loads.waiter($0.job, $0.claim) }, load)
    for waiter in joined { loads.show(waiter, in: load) }
    let refused = Set(jobs.map(\.claim)).subtracting(joined.map(\.claim))
    if !refused.isEmpty { await completer.requeue(Array(refused)) }
    return refused.isEmpty
  }
}
