internal import Jobs

/// Takes one job from the queue to its end, and then says that it is idle.
struct Worker: Sendable {
  let crew: Crew

  /// Begins at once; what takes long goes on by itself.
  func take(_ work: Dispatcher.Work) {
    let waiter = crew.waiter(work.job, work.claim)
    switch crew.loads.enter(waiter, make: { crew.load(for: work.job) }) {
    case .joined(let load):
      crew.metrics.joined(1)
      crew.show(waiter, in: load)
      // One by one, each would cost a turn and a transaction.
      guard work.isShared, load.beginCoalescing() else { return crew.dispatcher.workerIsIdle() }
      Task {
        await crew.coalesce(into: load)
        crew.dispatcher.workerIsIdle()
      }
    case .began(let load):
      // Said before it runs, as it may end at once.
      let coalesces = work.isShared && load.beginCoalescing()
      crew.show(waiter, in: load)
      carry(load, OriginPermits(work.permit), refusal: work.refusal, coalesces)
    case .refused:
      Task {
        await JobCompleter(crew: crew).requeue([work.claim])
        crew.dispatcher.workerIsIdle()
      }
    }
  }

  private func carry(
    _ load: Load, _ permits: OriginPermits, refusal: FetchError?, _ coalesces: Bool
  ) {
    let task = Task(executorPreference: load.lane) {
      let run = LoadTask(load: load, crew: crew, permits: permits)
      if coalesces {
        async let coalescing: Void = crew.coalesce(into: load)
        await run.carryOut(refusal: refusal)
        await coalescing
      } else {
        await run.carryOut(refusal: refusal)
      }
      crew.dispatcher.workerIsIdle()
    }
    load.run(as: task)
  }
}
