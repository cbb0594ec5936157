internal import Jobs
internal import Synchronization

/// Listens to all the jobs that a caller sees.
///
/// It begins with the jobs as they are, a page at a time, and then tells what changes. Where more jobs change than it
/// holds, because its client is slow, it forgets the changes and begins anew, with all that has finished since it was
/// last up to date.
final class ManyJobsSubscription: JobSubscription {
  /// So many jobs with untold changes are held, large ones counting as several.
  static let maxPending = 1_024
  /// Of so many jobs it remembers which version was told.
  private static let maxTold = 256
  /// A job's end is dated before it is written down and told: so much earlier ones are told again.
  static let slack = Duration.seconds(60)

  private struct State {
    var pending: [JobID: Change] = [:]
    var pendingWeight = 0
    /// Those pending, in the order in which they changed first.
    var order: ArraySlice<JobID> = []
    /// The versions told of jobs that are told often.
    var told: [JobID: Int] = [:]
    var listing: Listing?
    var page: ArraySlice<JobSnapshot> = []
    var isAsking = false
    /// Whether nothing was told since it was said that all has been.
    var isToldUpToDate = false
    var upToDate: Timestamp
    var hasEnded = false
    var wake: (@Sendable () -> Void)?

    mutating func add(_ change: Change) {
      pending[change.snapshot.job.id] = change
      pendingWeight += change.snapshot.weight
    }

    mutating func drop(_ id: JobID) -> Change? {
      let change = pending.removeValue(forKey: id)
      pendingWeight -= change?.snapshot.weight ?? 0
      return change
    }
  }

  /// How far the jobs as they are have been read.
  struct Listing: Sendable, Equatable {
    /// Nil: only jobs that have not finished.
    var since: Timestamp?
    var before: JobID?
  }

  let query: SubscriptionQuery
  private let subscribers: Subscribers
  private let token: UInt64
  private let now: WallClock
  private let state: Mutex<State>

  init(
    _ query: SubscriptionQuery, _ subscribers: Subscribers, token: UInt64, now: @escaping WallClock
  ) {
    self.query = query
    self.subscribers = subscribers
    self.token = token
    self.now = now
    let first = State(
      listing: Listing(since: query.seenUntil), upToDate: query.seenUntil ?? now())
    state = Mutex(first)
  }

  deinit { subscribers.leave(token) }

  func onUpdate(_ wake: @escaping @Sendable () -> Void) { state.withLock { $0.wake = wake } }

  func next() -> JobUpdate {
    let moment = now()
    let (news, asks) = state.withLock { state -> (JobUpdate, Bool) in
      if let news = takeChange(&state) ?? takeListed(&state) {
        state.isToldUpToDate = false
        return (news, false)
      }
      if state.hasEnded { return (.end, false) }
      if state.listing != nil {
        defer { state.isAsking = true }
        return (.nothing, !state.isAsking)
      }
      guard !state.isToldUpToDate else { return (.nothing, false) }
      state.isToldUpToDate = true
      state.upToDate = moment
      return (.caughtUp(moment), false)
    }
    if asks { subscribers.ask(self) }
    return news
  }

  private func takeChange(_ state: inout State) -> JobUpdate? {
    while let id = state.order.popFirst() {
      guard let change = state.drop(id), query.wants(change.snapshot.job),
        note(change.snapshot.job, &state)
      else { continue }
      let events = change.events.ordered(for: change.snapshot.job, isFirst: false)
      return .job(change.snapshot, events)
    }
    return nil
  }

  private func takeListed(_ state: inout State) -> JobUpdate? {
    while let snapshot = state.page.popFirst() {
      guard note(snapshot.job, &state) else { continue }
      let events = JobEvents(from: nil, to: snapshot.job)
      return .job(snapshot, events.ordered(for: snapshot.job, isFirst: true))
    }
    return nil
  }

  /// - Returns: false when this version, or a newer one, was told before.
  private func note(_ job: Job, _ state: inout State) -> Bool {
    if let told = state.told[job.id], told >= job.version { return false }
    // Being told twice harms nobody; remembering everything would.
    if state.told.count >= Self.maxTold { state.told = [:] }
    state.told[job.id] = job.version
    return true
  }

  // MARK: From the centre

  func deliver(_ changes: [Change]) {
    let wake = state.withLock { state -> (@Sendable () -> Void)? in
      let wasEmpty = state.pending.isEmpty
      for change in changes where query.caller.sees(change.snapshot.job) {
        keep(change, &state)
      }
      if state.pendingWeight > Self.maxPending { Self.beginAnew(&state) }
      return wasEmpty && (!state.pending.isEmpty || state.listing != nil) ? state.wake : nil
    }
    wake?()
  }

  private func keep(_ change: Change, _ state: inout State) {
    let id = change.snapshot.job.id
    if var earlier = state.drop(id) {
      // Also one that is no longer wanted: what it was before is not told then.
      earlier.merge(change)
      state.add(earlier)
    } else if query.wants(change.snapshot.job) {
      state.add(change)
      state.order.append(id)
    }
  }

  private static func beginAnew(_ state: inout State) {
    (state.pending, state.pendingWeight, state.order, state.page) = ([:], 0, [], [])
    state.listing = Listing(since: state.upToDate)
  }

  /// Jobs are gone: nothing of them is told any more.
  func forget(_ ids: Set<JobID>) {
    state.withLock { state in
      let count = state.pending.count
      for id in ids {
        _ = state.drop(id)
        state.told[id] = nil
      }
      if state.pending.count < count { state.order.removeAll(where: ids.contains) }
      state.page.removeAll { ids.contains($0.job.id) }
    }
  }

  func end() {
    let wake = state.withLock { state in
      state.hasEnded = true
      return state.wake
    }
    wake?()
  }
}

/// Reading the jobs as they are, which the engine does when asked.
extension ManyJobsSubscription {
  /// What to read next; nil: nothing any more.
  var wanted: Listing? { state.withLock { $0.hasEnded ? nil : $0.listing } }

  /// Takes in what was read.
  /// - Parameters:
  ///   - listing: as ``wanted`` was when it was read; if it began anew since, that is of no use.
  ///   - next: where to go on; nil: that was all.
  func take(_ jobs: [JobSnapshot], of listing: Listing, next: Listing?) {
    let wake = state.withLock { state in
      state.isAsking = false
      if state.listing == listing {
        state.page = jobs[...]
        state.listing = next
      }
      return state.wake
    }
    wake?()
  }
}
