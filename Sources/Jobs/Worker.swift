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
      crew.metrics.joined()
      crew.show(member, in: load)
    case .began(let load):
      crew.show(member, in: load)
      await carry(load, work)
    case .refused: await Settling(crew: crew).putBack(work.job, work.claim)
    }
  }

  private func carry(_ load: Load, _ work: Dispatcher.Work) async {
    let run = LoadRun(load: load, crew: crew, passes: OriginPasses(work.pass))
    let gathering = Task { await gather(for: load, work) }
    await withCheckedContinuation { done in
      let task = Task(executorPreference: load.lane) {
        await run.carryOut(refusal: work.refusal, gathering: gathering)
        done.resume()
      }
      load.run(as: task)
    }
    await gathering.value
  }

  private nonisolated func gather(for load: Load, _ work: Dispatcher.Work) async {
    if work.isShared, let request = load.request { await crew.gather(request) }
  }
}
