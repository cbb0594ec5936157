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
    let member = crew.member(work.job, work.claim)
    switch crew.loads.enter(member, make: { crew.load(for: work.job) }) {
    case .joined(let load):
      crew.metrics.joined(1)
      crew.show(member, in: load)
      // One by one, each would cost a turn and a transaction.
      if work.isShared, load.gatheringBegins() { await crew.gather(into: load) }
    case .began(let load):
      // Said before it runs, as it may end at once.
      let gathers = work.isShared && load.gatheringBegins()
      crew.show(member, in: load)
      await carry(load, work, gathers)
    case .refused: await Settling(crew: crew).putBack([work.claim])
    }
  }

  private func carry(_ load: Load, _ work: Dispatcher.Work, _ gathers: Bool) async {
    let run = LoadRun(load: load, crew: crew, passes: OriginPasses(work.pass))
    async let gathering: Void = gathers ? crew.gather(into: load) : ()
    await withCheckedContinuation { done in
      let task = Task(executorPreference: load.lane) {
        await run.carryOut(refusal: work.refusal)
        done.resume()
      }
      load.run(as: task)
    }
    await gathering
  }
}
