internal import Synchronization

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
    var isClosed = false
  }

  private let state = Mutex(State())
  private let board: JobBoard

  init(board: JobBoard) { self.board = board }

  /// Puts a job into the load of its request; a new one made by `make` where there is none.
  func enter(_ member: Load.Member, make: () -> Load) -> Entry {
    let entry = state.withLock { state -> Entry in
      if state.isClosed { return .refused }
      let request = member.job.request
      if let request, let load = state.byRequest[request], load.join(member) {
        Self.note(member, in: load, &state)
        return .joined(load)
      }
      let load = make()
      _ = load.join(member)
      state.all[ObjectIdentifier(load)] = load
      if let request { state.byRequest[request] = load }
      Self.note(member, in: load, &state)
      return .began(load)
    }
    if case .refused = entry { return entry }
    board.pin(member.job.id)
    return entry
  }

  private static func note(_ member: Load.Member, in load: Load, _ state: inout State) {
    state.byJob[member.job.id, default: [:]][member.claim] = (load, member.job.version)
  }

  /// Notes a load without members.
  /// - Returns: false when the service stops.
  func begin(_ load: Load) -> Bool {
    state.withLock { state in
      if state.isClosed { return false }
      state.all[ObjectIdentifier(load)] = load
      return true
    }
  }

  /// Whether a job that asks this could join a load.
  func loads(_ request: Fingerprint) -> Bool { state.withLock { $0.byRequest[request] != nil } }

  /// Lets nobody join from now on; ``forget(_:)`` is for each of the members, once they are told how it ended.
  func seal(_ load: Load) -> [Load.Member] {
    state.withLock { state in
      if let request = load.request, state.byRequest[request] === load {
        state.byRequest[request] = nil
      }
      return load.seal()
    }
  }

  /// A member has ended.
  func forget(_ member: Load.Member) {
    let wasKnown = state.withLock { state in
      let run = state.byJob[member.job.id]?.removeValue(forKey: member.claim)
      if state.byJob[member.job.id]?.isEmpty == true { state.byJob[member.job.id] = nil }
      return run != nil
    }
    if wasKnown { board.unpin(member.job.id) }
  }

  /// A member turned out to be no longer ours.
  func leave(_ member: Load.Member, _ load: Load) {
    load.leave(member.claim, forgetting: false)
    forget(member)
  }

  /// The load has ended, and all its members.
  func end(_ load: Load) {
    state.withLock { state in
      _ = state.all.removeValue(forKey: ObjectIdentifier(load))
    }
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
      board.unpin(id)
    }
  }

  /// Orders what is still to be done for the job by another priority.
  func prioritize(_ id: JobID, _ priority: Priority) {
    let runs = state.withLock { $0.byJob[id] ?? [:] }
    for (claim, run) in runs { run.load.prioritize(claim, priority) }
  }

  /// Stops all, and lets nothing begin any more.
  func close() {
    let loads = state.withLock { state in
      state.isClosed = true
      return Array(state.all.values)
    }
    for load in loads { load.cancel() }
  }

  /// Waits for loads that were cancelled and are still setting aside what came of the same bytes.
  func awaitEnds(of partial: Fingerprint, before load: Load) async {
    let deadline = ContinuousClock.now + .seconds(2)
    while all.contains(where: { $0 !== load && $0.isCancelled && $0.leader.partial == partial }),
      ContinuousClock.now < deadline, !Task.isCancelled
    {
      try? await Task.sleep(for: .milliseconds(2))
    }
  }

  /// Those that a job is in.
  func of(_ id: JobID) -> [Load] { state.withLock { $0.byJob[id]?.values.map(\.load) ?? [] } }

  var all: [Load] { state.withLock { Array($0.all.values) } }
  var count: Int { state.withLock { $0.all.count } }

  /// Jobs in all loads.
  var members: Int { state.withLock { $0.byJob.count } }

  /// When the one that runs longest began.
  var oldest: Timestamp? { state.withLock { $0.all.values.map(\.since).min() } }
}
