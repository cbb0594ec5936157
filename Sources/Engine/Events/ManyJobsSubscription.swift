internal import Jobs
internal import Synchronization

/// A subscription to all the jobs that a caller sees.
///
/// It begins with the jobs as they are, a page at a time, and goes on with what changes. Where more jobs change than it
/// holds, because its client is slow, it drops the changes and begins anew, with all that has finished since the client
/// was last up to date; where changes by other instances were not heard, it reads the jobs in the same way.
final class ManyJobsSubscription: JobSubscription, Subscriber {
  /// Jobs with changes that the client hasn't got yet, at the most; large ones count as several.
  static let maxPending = 1_024
  /// Bytes of a page of the jobs as they are, of which a client that reads nothing holds one.
  static let maxPageBytes = 256 << 10
  /// Jobs of which it remembers the version that the client has.
  private static let maxSeen = 256
  /// A job's end is dated before it is stored and delivered: ends that are so much earlier are delivered again.
  static let slack = Duration.seconds(60)

  private struct State {
    var pending: [JobID: Change] = [:]
    var pendingWeight = 0
    /// Those pending, in the order in which they changed first.
    var order: ArraySlice<JobID> = []
    /// The versions that the client has, of jobs that change often.
    var seen: [JobID: Int] = [:]
    var listing: Listing?
    var round = 0
    var page: ArraySlice<JobSnapshot> = []
    /// Whether a page is being read.
    var isListing = false
    /// Whether nothing was delivered since the client got `.caughtUp`.
    var hasCaughtUp = false
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
    /// How often it began anew before: a page of an earlier round is of no use.
    var round = 0
  }

  let query: SubscriptionQuery
  private let subscribers: Subscribers
  private let registration: Subscribers.Registration
  private let now: WallClock
  /// What finished before then its client knows, or doesn't ask for.
  private let start: Timestamp
  private let state: Mutex<State>

  init(
    _ query: SubscriptionQuery, _ subscribers: Subscribers,
    _ registration: Subscribers.Registration, now: @escaping WallClock
  ) {
    self.query = query
    self.subscribers = subscribers
    self.registration = registration
    self.now = now
    let moment = now()
    start = min(query.seenUntil ?? moment, moment)
    let first = State(listing: Listing(since: query.seenUntil), upToDate: start)
    state = Mutex(first)
  }

  func onUpdate(_ wake: @escaping @Sendable () -> Void) { state.withLock { $0.wake = wake } }

  func next() -> JobUpdate {
    let moment = subscribers.horizon(at: now())
    let (update, lists) = state.withLock { state -> (JobUpdate, Bool) in
      if let update = takeChange(&state) ?? takeListed(&state) {
        state.hasCaughtUp = false
        return (update, false)
      }
      if state.hasEnded { return (.end, false) }
      if state.listing != nil {
        defer { state.isListing = true }
        return (.nothing, !state.isListing)
      }
      guard !state.hasCaughtUp else { return (.nothing, false) }
      state.hasCaughtUp = true
      state.upToDate = max(state.upToDate, moment)
      return (.caughtUp(state.upToDate), false)
    }
    if lists { subscribers.list(for: self) }
    return update
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

  /// - Returns: false when the client has this version, or a newer one.
  private func note(_ job: Job, _ state: inout State) -> Bool {
    if let seen = state.seen[job.id], seen >= job.version { return false }
    // A version that comes twice harms nobody; remembering all of them would.
    if state.seen.count >= Self.maxSeen { state.seen = [:] }
    state.seen[job.id] = job.version
    return true
  }

  // MARK: Changes

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
      // Also where the job is no longer wanted: its earlier change is not delivered then.
      earlier.merge(change)
      state.add(earlier)
    } else if query.wants(change.snapshot.job) {
      state.add(change)
      state.order.append(id)
    }
  }

  private static func beginAnew(_ state: inout State) {
    (state.pending, state.pendingWeight, state.order) = ([:], 0, [])
    list(since: state.upToDate, &state)
  }

  private static func list(since moment: Timestamp, _ state: inout State) {
    state.page = []
    state.hasCaughtUp = false
    state.round += 1
    state.listing = Listing(since: moment, round: state.round)
  }

  /// Changes are missing: has the jobs read as they are, beside what is pending.
  /// - Parameter silence: so long before the client was last up to date they may be missing, too.
  func relist(after silence: Duration) {
    let wake = state.withLock { state in
      Self.list(since: max(start, state.upToDate + (.zero - silence)), &state)
      return state.wake
    }
    wake?()
  }

  /// Jobs are gone: nothing of them is delivered any more.
  func remove(_ ids: Set<JobID>) {
    state.withLock { state in
      let count = state.pending.count
      for id in ids {
        _ = state.drop(id)
        state.seen[id] = nil
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

/// Reading the jobs as they are, which the engine does for ``Subscribers/wantedListings``.
extension ManyJobsSubscription {
  /// What to read next; nil: nothing any more.
  var wanted: Listing? { state.withLock { $0.hasEnded ? nil : $0.listing } }

  /// Takes in what was read.
  /// - Parameters:
  ///   - listing: as ``wanted`` was when it was read; if it began anew since, that is of no use.
  ///   - next: where to go on; nil: that was all.
  func take(_ jobs: [JobSnapshot], of listing: Listing, next: Listing?) {
    let wake = state.withLock { state in
      state.isListing = false
      if state.listing == listing {
        state.page = jobs[...]
        state.listing = next
      }
      return state.wake
    }
    wake?()
  }
}
