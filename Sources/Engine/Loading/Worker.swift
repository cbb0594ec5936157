internal import Jobs
internal import Logging

// Loading: the way of a job that a worker has taken, from the queue to its end.
//
// In comes a claimed job from the `Dispatcher`. Out goes its end (an image, a failure or another try), written to the
// store and then shown to clients. In the order of the way, the files are:
//
// 1. `Worker`, an actor: joins the `Load` of an equal request or begins one, on the thread that the store answers on,
//    and carries it out on the decode threads, as all that follows.
// 2. `Load`, `Loads`: who waits for a transfer, and which transfers there are.
// 3. `Loader`: the load from its source to its end; `URLLoader` asks the cache and the origin, `OriginRequests` sends a
//    request, `KeptTransfers` goes on where an earlier one broke off.
// 4. `ImageIngest`, `Decode`: each piece of the image is hashed, written and decoded as it comes.
// 5. `JobCompleter`: one transaction ends all the jobs that want the image alone. The others go on with `Finisher`.

/// One of the pool: takes a job from the queue to its end, and then is idle again.
///
/// It runs on a lane of the decode threads, which goes at the priority of the load that it carries out. What it calls
/// runs there too, so a load changes threads only where it waits for something.
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

  /// Enters the job into a load on the caller's thread, so that it is known to be loading at once.
  nonisolated func take(_ work: Dispatcher.Work) {
    let waiter = loads.waiter(work.job, work.claim)
    if work.job.pending != nil {
      guard finisher.begin([waiter]) else {
        Task.immediate { await refuse(work.claim) }
        return
      }
      return dispatcher.isIdle(self)
    }
    switch loads.enter(waiter, on: lane) {
    case .joined(let load):
      loads.show(waiter, in: load)
      // Taken from the queue one by one, each would cost a worker's turn and a transaction.
      guard work.isShared, load.beginCoalescing() else { return dispatcher.isIdle(self) }
      Task.immediate { await coalesce(into: load) }
    case .began(let load):
      // Before the load runs, as it may end at once.
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
    dispatcher.isIdle(self)
  }

  private func coalesce(into load: Load) async {
    await coalescer.coalesce(into: load)
    dispatcher.isIdle(self)
  }

  private func refuse(_ claim: Claim) async {
    await loader.completer.requeue([claim])
    dispatcher.isIdle(self)
  }
}

/// Brings queued jobs that ask the same as a load into it, wherever they stand in the queue.
struct Coalescer: Sendable {
  let store: any JobQueue
  let lease: Lease
  let loads: Loads
  let completer: JobCompleter
  let gate: QueueGate
  let log: Logger

  /// ``Load/beginCoalescing()`` comes before; this ends it. What the load takes no more goes back into the queue, and
  /// nothing more is brought then.
  ///
  /// - Parameter limit: jobs, at the most.
  func coalesce(into load: Load, atMost limit: Int = .max) async {
    defer { load.endCoalescing() }
    guard let request = load.request else { return }
    var left = limit
    do throws(StoreError) {
      while left > 0, !loads.isStopping, !load.isCancelled {
        let wanted = min(left, JobCompleter.batch, loads.places)
        guard wanted > 0 else { return }
        let claimed = try await lease.holding { instance throws(StoreError) in
          try await store.claim(equalTo: request, count: wanted, for: instance)
        }
        gate.left(claimed.lazy.map(\.job))
        let haveJoined = await join(claimed, load)
        guard haveJoined, claimed.count == wanted, load.waiterCount < Load.mostWaiters else {
          return
        }
        left -= wanted
      }
    } catch {
      log.error("the store hands over no jobs", metadata: ["error": "\(error)"])
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
