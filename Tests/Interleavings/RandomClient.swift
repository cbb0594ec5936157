import Engine
import Jobs

/// A client that makes random requests.
struct RandomClient {
  let world: World
  let engine: JobEngine
  var numbers: Numbers
  let caller: Caller
  private let number: Int
  private var sight = ReceivedStates()
  /// The job's entry when the current call began. Changes that are made during the call may be published before or
  /// after its result.
  private var known: Ledger.Entry?
  private var faults: Faults { world.faults }

  init(_ number: Int, of world: World, _ engine: JobEngine, _ numbers: Numbers) {
    (self.world, self.engine, self.numbers) = (world, engine, numbers)
    self.number = number
    caller = Caller(owner: Owner("owner \(number % 2)"), isAdmin: true)
  }

  mutating func work(_ steps: Int) async {
    for _ in 0..<steps { await step() }
  }

  private mutating func step() async {
    if numbers.once(in: 3) || world.ledger.jobs.isEmpty { return await submit() }
    let id = world.ledger.jobs.randomElement(using: &numbers)!
    switch numbers.number(0...12) {
    case 0, 1: await cancel(id)
    case 2: await purge(id)
    case 3, 4: await edit(id)
    case 5, 6: await fetchAgain(id)
    case 7: await read(id)
    case 8: await wait(id)
    case 9: await follow(id)
    case 10: await changeNetwork()
    case 11: await forget()
    default: try? await Task.sleep(for: .milliseconds(numbers.number(0...80)))
    }
  }

  private mutating func submit() async {
    let jobs = (0..<numbers.number(1...4)).map { _ in world.newJob(&numbers) }
    await trying(#function) { client in
      for submitted in try await client.engine.submit(jobs, by: client.caller, key: nil) {
        if let job = submitted.snapshot?.job { client.check(job) }
      }
    }
  }

  private mutating func cancel(_ id: JobID) async {
    world.ledger.change(id) { $0.mayBeCancelled = true }
    await trying(#function, id) { client in
      let job = try await client.engine.cancel(id, for: client.caller).job
      client.check(job)
      if client.world.ledger[id]?.asked == 0 {
        client.faults.expect(job.phase.isFinished, "\(id) is \(job.phase), just cancelled")
      }
    }
  }

  private mutating func purge(_ id: JobID) async {
    world.ledger.change(id) { $0.mayBePurged = true }
    await trying(#function, id) { client in
      try await client.engine.purge(id, for: client.caller)
      client.world.ledger.change(id) { $0.isPurged = true }
    }
  }

  private mutating func edit(_ id: JobID) async {
    let priority = Priority.allCases.randomElement(using: &numbers)!
    await trying(#function, id) { client in
      client.check(
        try await client.engine.edit(id, for: client.caller, priority: priority, tags: nil).job)
    }
  }

  private mutating func fetchAgain(_ id: JobID) async {
    world.ledger.change(id) { $0.asked += 1 }
    await trying(#function, id) { client in
      client.check(try await client.engine.refetch(id, for: client.caller).job)
    }
  }

  private mutating func read(_ id: JobID) async {
    await trying(#function, id) { client in
      client.check(try await client.engine.job(id, for: client.caller).job)
    }
  }

  private mutating func wait(_ id: JobID) async {
    let limit = Duration.milliseconds(numbers.number(0...300))
    await trying(#function, id) { client in
      client.check(
        try await client.engine.wait(id, for: client.caller, until: .finished, atMost: limit).job)
    }
  }

  /// Follows a job to its end, or stops earlier.
  private mutating func follow(_ id: JobID) async {
    let holds = numbers.once(in: 4)
    if holds { world.ledger.change(id) { $0.mayBeCancelled = true } }
    let most = numbers.once(in: 3) ? numbers.number(0...3) : Int.max
    await trying(#function, id) { client in
      let subscription = try await client.engine.subscribe(
        to: id, for: client.caller, seen: nil, cancelsOnDisconnect: holds)
      let (news, wake) = AsyncStream.makeStream(
        of: Void.self, bufferingPolicy: .bufferingNewest(1))
      subscription.onUpdate { wake.yield() }
      var awaited = news.makeAsyncIterator()
      var (count, shown) = (0, Job?.none)
      while count < most {
        switch subscription.next() {
        case .nothing: await awaited.next()
        case .caughtUp: break
        case .end: return
        case .job(let snapshot, let events):
          count += 1
          client.check(snapshot.job)
          client.checkEvents(events, of: snapshot.job, after: shown)
          shown = snapshot.job
          // The job's image may be replaced later, once the network is no longer constrained.
          if snapshot.job.phase.isFinished, !snapshot.job.isFinal { return }
        }
      }
    }
  }

  /// Expects a new phase before its events, and an end after the events that led to it.
  private func checkEvents(_ events: [JobEvent], of job: Job, after shown: Job?) {
    let place = events.firstIndex(of: .phase)
    if shown == nil { return faults.expect(place == 0, "\(job.id) begins with \(events)") }
    if shown?.phase != job.phase {
      faults.expect(
        place == (job.phase.isFinished ? events.count - 1 : 0),
        "\(job.id) became \(job.phase) with \(events)")
    }
  }

  private mutating func changeNetwork() async {
    let isConstrained = Bool.random(using: &numbers)
    await trying(#function) { client in try await client.engine.setConstrained(isConstrained) }
  }

  private mutating func forget() async {
    let url = world.origins.plans.randomElement(using: &numbers)?.url
    await trying(#function) { client in _ = try await client.engine.deleteFromCache(url) }
  }

  private mutating func check(_ job: Job) {
    world.ledger.checkReceived(job, after: known, origins: world.origins)
    sight.check(job, faults)
  }

  /// Runs a request. It may be refused if the job was purged or the service is starting or stopping.
  private mutating func trying(
    _ what: String, _ id: JobID? = nil, _ body: (inout RandomClient) async throws -> Void
  ) async {
    world.recordCall(number, "\(what) \(id.map { "\($0)" } ?? "")")
    defer { world.recordCall(number, nil) }
    known = id.flatMap { world.ledger[$0] }
    do { try await body(&self) } catch {
      switch error as? JobsError {
      case .unknownJob where id.flatMap { world.ledger[$0] }?.mayBePurged == true: break
      // A slow instance whose lease has expired reports that it is starting.
      case .starting: break
      case .draining: faults.expect(world.stops, "\(error) while nothing stops")
      default: faults.record("\(id.map { "\($0)" } ?? "the service"): \(error)")
      }
    }
  }

  /// Waits for the end of every job.
  mutating func finish() async {
    for id in world.ledger.jobs {
      await trying(#function, id) { client in
        let job = try await client.engine.wait(
          id, for: client.caller, until: .finished, atMost: .seconds(900)
        ).job
        client.check(job)
        let reason = client.engine.waiting(of: job).map { "\($0)" } ?? "nothing"
        client.faults.expect(
          job.phase.isFinished, "\(id) stays \(job.phase) and waits for \(reason)")
      }
    }
  }
}
