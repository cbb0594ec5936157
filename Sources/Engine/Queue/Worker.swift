internal import Jobs

/// Carries one load at a time from fetch to stored result.
actor Worker {
  private let crew: Crew

  init(_ crew: Crew) { self.crew = crew }

  /// Works until the dispatcher sends it home.
  func run() async {
    while let work = await crew.dispatcher.next() { await take(work) }
  }

  private func take(_ work: Dispatcher.Work) async {
    let waiter = crew.waiter(work.job, work.claim)
    switch crew.loads.enter(waiter, make: { crew.load(for: work.job) }) {
    case .joined(let load):
      crew.metrics.joined(1)
      crew.show(waiter, in: load)
      // One by one, each would cost a turn and a transaction.
      if work.isShared, load.beginCoalescing() { await crew.coalesce(into: load) }
    case .began(let load):
      // Said before it runs, as it may end at once.
      let coalesces = work.isShared && load.beginCoalescing()
      crew.show(waiter, in: load)
      await carry(load, work, coalesces)
    case .refused: await JobCompleter(crew: crew).requeue([work.claim])
    }
  }

  private func carry(_ load: Load, _ work: Dispatcher.Work, _ coalesces: Bool) async {
    let run = LoadTask(load: load, crew: crew, permits: OriginPermits(work.permit))
    async let coalescing: Void = coalesces ? crew.coalesce(into: load) : ()
    await withCheckedContinuation { done in
      let task = Task(executorPreference: load.lane) {
        await run.carryOut(refusal: work.refusal)
        done.resume()
      }
      load.run(as: task)
    }
    await coalescing
  }
}
