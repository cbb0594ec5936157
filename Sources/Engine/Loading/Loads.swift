internal import Jobs
internal import Synchronization
internal import Waiting

/// What this service loads now, and for whom.
final class Loads: Sendable {
  /// Where a job that was taken went.
  enum Entry: Sendable {
    /// Into a load that is under way.
    case joined(Load)
    /// Into a new one, to be carried out.
    case began(Load)
    /// Nowhere: the service stops.
    case refused
  }

  private struct State {
    var all: [ObjectIdentifier: Load] = [:]
    var byRequest: [Fingerprint: Load] = [:]
    // A job's next run can begin while its cancelled one is still ending.
    var byJob: [JobID: [Claim: (load: Load, version: Int)]] = [:]
    /// Running loads may end, but take no more jobs from the queue, and none begins in the background.
    var isStopping = false
    var closedAt: ContinuousClock.Instant?
  }

  /// How long the ends of what was stopped may take to be written down, before the rest is left to the next start.
  private static let grace = Duration.milliseconds(500)

  /// Rings when a load begins.
  let beginnings: AsyncStream<Void>
  /// That the last load has ended, of a service that stops.
  let emptied = Latch()
  /// That all were stopped.
  let closing = Latch()
  private let signal: AsyncStream<Void>.Continuation
  private let state = Mutex(State())
  private let snapshots: JobSnapshots

  init(snapshots: JobSnapshots) {
    self.snapshots = snapshots
    (beginnings, signal) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
  }

  /// Puts a job into the load of its request; a new one made by `make` where there is none.
  func enter(_ waiter: Load.Waiter, make: () -> Load) -> Entry {
    let request = waiter.job.request
    let entry = state.withLock { state -> Entry in
      if state.closedAt != nil { return .refused }
      if let request, let load = state.byRequest[request], load.join([waiter]).isEmpty {
        Self.note(waiter, in: load, &state)
        return .joined(load)
      }
      let load = make()
      _ = load.join([waiter])
      state.all[ObjectIdentifier(load)] = load
      if let request { state.byRequest[request] = load }
      Self.note(waiter, in: load, &state)
      return .began(load)
    }
    switch entry {
    case .refused: return entry
    case .began: signal.yield()
    case .joined: break
    }
    snapshots.pin(waiter.job.id)
    return entry
  }

  /// Puts jobs that ask the same into a load.
  /// - Returns: those that it takes no more.
  func enter(_ waiters: [Load.Waiter], _ load: Load) -> [Load.Waiter] {
    let refused = state.withLock { state in
      if state.closedAt != nil { return waiters }
      let refused = load.join(waiters)
      if refused.isEmpty { for waiter in waiters { Self.note(waiter, in: load, &state) } }
      return refused
    }
    if refused.isEmpty { for waiter in waiters { snapshots.pin(waiter.job.id) } }
    return refused
  }

  private static func note(_ waiter: Load.Waiter, in load: Load, _ state: inout State) {
    state.byJob[waiter.job.id, default: [:]][waiter.claim] = (load, waiter.job.version)
  }

  /// Notes a load without members.
  /// - Returns: false when the service stops.
  func begin(_ load: Load) -> Bool {
    let begins = state.withLock { state in
      if state.isStopping { return false }
      state.all[ObjectIdentifier(load)] = load
      return true
    }
    if begins { signal.yield() }
    return begins
  }

  /// The load that a job which asks this could join.
  func load(for request: Fingerprint) -> Load? { state.withLock { $0.byRequest[request] } }

  /// Lets nobody join from now on; ``forget(_:)`` is for each of the members, once they are told how it ended.
  func seal(_ load: Load) -> [Load.Waiter] {
    state.withLock { state in
      if let request = load.request, state.byRequest[request] === load {
        state.byRequest[request] = nil
      }
      return load.seal()
    }
  }

  /// A member has ended.
  func forget(_ waiter: Load.Waiter) {
    let wasKnown = state.withLock { state in
      let run = state.byJob[waiter.job.id]?.removeValue(forKey: waiter.claim)
      if state.byJob[waiter.job.id]?.isEmpty == true { state.byJob[waiter.job.id] = nil }
      return run != nil
    }
    if wasKnown { snapshots.unpin(waiter.job.id) }
  }

  /// A member turned out to be no longer ours.
  func leave(_ waiter: Load.Waiter, _ load: Load) {
    load.leave(waiter.claim, forgetting: false)
    forget(waiter)
  }

  /// A job turned out to be no longer ours.
  /// - Returns: false when it had ended here.
  func leave(_ claim: Claim) -> Bool {
    let load = state.withLock { state -> Load? in
      let run = state.byJob[claim.job]?.removeValue(forKey: claim)
      if state.byJob[claim.job]?.isEmpty == true { state.byJob[claim.job] = nil }
      return run?.load
    }
    guard let load else { return false }
    load.leave(claim, forgetting: false)
    snapshots.unpin(claim.job)
    return true
  }

  /// What is held of all jobs.
  var claims: Set<Claim> { state.withLock { Set($0.byJob.values.flatMap(\.keys)) } }

  /// The load has ended, and all its members.
  func end(_ load: Load) {
    let wasLast = state.withLock { state in
      state.all[ObjectIdentifier(load)] = nil
      return state.isStopping && state.all.isEmpty
    }
    load.end.open()
    if wasLast { emptied.open() }
  }

  /// Takes a job out of what had begun for it when it was at a lower version.
  /// - Parameter forgetting: whether the bytes so far are not to be kept, unless others want them.
  func leave(_ id: JobID, before version: Int, forgetting: Bool = false) {
    let left = state.withLock { state -> [(Claim, Load)] in
      let runs = (state.byJob[id] ?? [:]).filter { $0.value.version < version }
      for claim in runs.keys { state.byJob[id]?[claim] = nil }
      if state.byJob[id]?.isEmpty == true { state.byJob[id] = nil }
      return runs.map { ($0.key, $0.value.load) }
    }
    for (claim, load) in left {
      load.leave(claim, forgetting: forgetting)
      snapshots.unpin(id)
    }
  }

  /// Orders what is still to be done for the job by another priority.
  func prioritize(_ id: JobID, _ priority: Priority) {
    let runs = state.withLock { $0.byJob[id] ?? [:] }
    for (claim, run) in runs { run.load.prioritize(claim, priority) }
  }

  /// Lets what jobs wait for go on to its end, and nothing else.
  func stop() {
    let (background, isEmpty) = state.withLock { state in
      state.isStopping = true
      return (state.all.values.filter(\.isBackground), state.all.isEmpty)
    }
    for load in background { load.cancel() }
    if isEmpty { emptied.open() }
  }

  /// Stops all, and lets nothing begin any more.
  func close() {
    let loads = state.withLock { state in
      state.isStopping = true
      state.closedAt = state.closedAt ?? .now
      return Array(state.all.values)
    }
    for load in loads { load.cancel() }
    closing.open()
  }

  var isStopping: Bool { state.withLock { $0.isStopping } }

  /// Whether what has not been written down by now is left to the next start, which runs those jobs again.
  var isOver: Bool {
    state.withLock { $0.closedAt.map { $0 + Self.grace <= .now } ?? false }
  }

  /// Waits for loads that were cancelled and are still setting aside what came of the same bytes.
  func awaitEnds(of partial: Fingerprint, before load: Load) async {
    let deadline = ContinuousClock.now + .seconds(2)
    for other in all where other !== load && other.isCancelled && other.leader.partial == partial {
      await other.end.wait(until: deadline)
    }
  }

  /// Those that a job is in.
  func of(_ id: JobID) -> [Load] { state.withLock { $0.byJob[id]?.values.map(\.load) ?? [] } }

  var all: [Load] { state.withLock { Array($0.all.values) } }
  var count: Int { state.withLock { $0.all.count } }

  /// Jobs in all loads.
  var waiters: Int { state.withLock { $0.byJob.count } }

  /// When the one that runs longest began.
  var oldest: Timestamp? { state.withLock { $0.all.values.map(\.since).min() } }
}
