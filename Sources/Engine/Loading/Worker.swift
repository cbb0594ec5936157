internal import Jobs
internal import Logging

// Loading: the way of a job that a worker has taken, from the queue to its end.
//
// In comes a claimed job from the `Dispatcher`. Out goes its end (an image, a failure or another try), written to the
// store and then shown to clients. In the order of the way, the files are:
//
// 1. `Worker` (the thread that the store answers on): joins the `Load` of an equal request or begins one, and carries that out.
// 2. `Load`, `Loads`: who waits for a transfer, and which transfers there are.
// 3. `Loader` (decode threads from here on): the load from its source to its end; `URLLoader` asks the cache and the
//    origin, `OriginRequests` sends a request, `KeptTransfers` goes on where an earlier one broke off.
// 4. `ImageIngest`, `Decode`: each piece of the image is hashed, written and decoded as it comes.
// 5. `JobCompleter`: one transaction ends all the jobs that waited.

/// Works on one job from the queue until it has ended, and then is idle again.
struct Worker: Sendable {
  let dispatcher: Dispatcher
  let loads: Loads
  let coalescer: Coalescer
  let loader: Loader
  let completer: JobCompleter

  /// Begins at once; what takes long goes on in a task of its own.
  func take(_ work: Dispatcher.Work) {
    let waiter = loads.waiter(work.job, work.claim)
    switch loads.enter(waiter) {
    case .joined(let load):
      loads.show(waiter, in: load)
      // Taken from the queue one by one, each would cost a worker's turn and a transaction.
      guard work.isShared, load.beginCoalescing() else { return dispatcher.workerIsIdle() }
      Task {
        await coalescer.coalesce(into: load)
        dispatcher.workerIsIdle()
      }
    case .began(let load):
      // Before the load runs, as it may end at once.
      let coalesces = work.isShared && load.beginCoalescing()
      loads.show(waiter, in: load)
      carryOut(load, OriginPermits(work.permit), refusal: work.refusal, coalesces)
    case .refused:
      Task {
        await completer.requeue([work.claim])
        dispatcher.workerIsIdle()
      }
    }
  }

  private func carryOut(
    _ load: Load, _ permits: OriginPermits, refusal: FetchError?, _ coalesces: Bool
  ) {
    let task = Task(executorPreference: load.lane) {
      if coalesces {
        async let coalescing: Void = coalescer.coalesce(into: load)
        await loader.carryOut(load, permits, refusal: refusal)
        await coalescing
      } else {
        await loader.carryOut(load, permits, refusal: refusal)
      }
      dispatcher.workerIsIdle()
    }
    load.run(as: task)
  }
}

/// Brings queued jobs that ask the same as a load into it, wherever they stand in the queue.
struct Coalescer: Sendable {
  let store: any JobQueue
  let lease: Lease
  let loads: Loads
  let completer: JobCompleter
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
        let wanted = min(left, JobCompleter.batch)
        let claimed = try await lease.holding { instance throws(StoreError) in
          try await store.claim(equalTo: request, count: wanted, for: instance)
        }
        let haveJoined = await join(claimed, load)
        guard haveJoined, claimed.count == wanted else { return }
        left -= wanted
      }
    } catch {
      log.error("the store hands over no jobs", metadata: ["error": "\(error)"])
    }
  }

  private func join(_ jobs: [(job: Job, claim: Claim)], _ load: Load) async -> Bool {
    guard !jobs.isEmpty else { return false }
    let waiters = jobs.map { loads.waiter($0.job, $0.claim) }
    let refused = loads.enter(waiters, load)
    guard refused.isEmpty else {
      await completer.requeue(refused.map(\.claim))
      return false
    }
    for waiter in waiters { loads.show(waiter, in: load) }
    return true
  }
}
