internal import Jobs
internal import Synchronization

/// A subscription to all the jobs that a caller may see.
///
/// It first yields the jobs as they are, page by page, then the changes. If its client is slow, more jobs may change
/// than it holds. It then drops the changes and reads the jobs again, including those that finished since the client
/// was last up to date. It does the same after events of other instances were lost.
final class ManyJobsSubscription: JobSubscription, Subscriber {
  /// Weight of the changes that wait for the client; large jobs count as several.
  static let maxPending = 1_024
  /// Bytes of one page of jobs. A client that reads nothing holds one page in memory.
  static let maxPageBytes = 256 << 10
  /// Number of jobs whose version at the client is remembered. A page that was read earlier may have older states of
  /// jobs that were delivered lately.
  fileprivate static let maxSeen = 512
  /// A job's finish time is set before the job is stored and delivered. So jobs that finished up to this much before
  /// the client's last position are delivered again.
  static let slack = Duration.seconds(60)

  private struct State {
    var pending: [JobID: Change] = [:]
    var pendingWeight = 0
    /// The pending jobs, in the order of their first change.
    var order: ArraySlice<JobID> = []
    /// The versions that the client has, for recently delivered jobs.
    var seen = LRUCache<JobID, Int>(capacity: ManyJobsSubscription.maxSeen)
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

    mutating func removePending(_ id: JobID) -> Change? {
      let change = pending.removeValue(forKey: id)
      pendingWeight -= change?.snapshot.weight ?? 0
      return change
    }
  }

  /// How far the jobs have been read.
  struct Listing: Sendable, Equatable {
    /// Read jobs that finished since then too; nil: unfinished jobs only.
    var since: Timestamp?
    var before: JobID?
    /// Number of restarts so far. Pages of earlier rounds are ignored.
    var round = 0
  }

  let query: SubscriptionQuery
  private let subscribers: Subscribers
  private let registration: Subscribers.Registration
  private let now: WallClock
  /// The client knows jobs that finished before this time, or has not asked for them.
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
      if let update = nextChange(&state) ?? nextListed(&state) {
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
    if lists { subscribers.requestPage(for: self) }
    return update
  }

  private func nextChange(_ state: inout State) -> JobUpdate? {
    while let id = state.order.popFirst() {
      guard let change = state.removePending(id), query.includes(change.snapshot.job),
        recordDelivery(change.snapshot.job, &state)
      else { continue }
      let events = change.events.ordered(for: change.snapshot.job, isFirst: false)
      return .job(change.snapshot, events)
    }
    return nil
  }

  private func nextListed(_ state: inout State) -> JobUpdate? {
    while let snapshot = state.page.popFirst() {
      guard recordDelivery(snapshot.job, &state) else { continue }
      let events = JobEvents(from: nil, to: snapshot.job)
      return .job(snapshot, events.ordered(for: snapshot.job, isFirst: true))
    }
    return nil
  }

  /// - Returns: false if the client already has this version or a newer one.
  private func recordDelivery(_ job: Job, _ state: inout State) -> Bool {
    if let seen = state.seen.peek(job.id), seen >= job.version { return false }
    state.seen.set(job.version, for: job.id)
    return true
  }

  // MARK: Changes

  func deliver(_ changes: [Change]) {
    let wake = state.withLock { state -> (@Sendable () -> Void)? in
      let wasEmpty = state.pending.isEmpty
      for change in changes where query.caller.sees(change.snapshot.job) {
        enqueue(change, &state)
      }
      if state.pendingWeight > Self.maxPending { Self.restart(&state) }
      return wasEmpty && (!state.pending.isEmpty || state.listing != nil) ? state.wake : nil
    }
    wake?()
  }

  private func enqueue(_ change: Change, _ state: inout State) {
    let id = change.snapshot.job.id
    if var earlier = state.removePending(id) {
      // Also if the query no longer matches the job: its earlier change must not be delivered then.
      earlier.merge(change)
      state.add(earlier)
    } else if query.includes(change.snapshot.job) {
      state.add(change)
      state.order.append(id)
    }
  }

  private static func restart(_ state: inout State) {
    (state.pending, state.pendingWeight, state.order) = ([:], 0, [])
    restartListing(since: state.upToDate, &state)
  }

  private static func restartListing(since moment: Timestamp, _ state: inout State) {
    state.page = []
    state.hasCaughtUp = false
    state.round += 1
    state.listing = Listing(since: moment, round: state.round)
  }

  /// Has the jobs read again because changes were lost. Pending changes are kept.
  /// - Parameter silence: how long before the client's last position changes may be missing as well.
  func relist(after silence: Duration) {
    let wake = state.withLock { state in
      Self.restartListing(since: max(start, state.upToDate + (.zero - silence)), &state)
      return state.wake
    }
    wake?()
  }

  /// Drops deleted jobs, so that nothing of them is delivered.
  func remove(_ ids: Set<JobID>) {
    state.withLock { state in
      let count = state.pending.count
      for id in ids {
        _ = state.removePending(id)
        // A page that is being read may still have the job.
        state.seen.set(.max, for: id)
      }
      if state.pending.count < count { state.order.removeAll(where: ids.contains) }
      state.page.removeAll { ids.contains($0.job.id) }
    }
  }

  func finish() {
    let wake = state.withLock { state in
      state.hasEnded = true
      return state.wake
    }
    wake?()
  }
}

/// Reading the jobs, one page at a time. The engine does it for ``Subscribers/pageRequests``.
extension ManyJobsSubscription {
  /// The page to read next; nil: none.
  var nextPage: Listing? { state.withLock { $0.hasEnded ? nil : $0.listing } }

  /// Adds a page that was read.
  /// - Parameters:
  ///   - listing: the value of ``nextPage`` that was read. The page is ignored if the subscription has restarted since.
  ///   - next: the next page; nil if this was the last one.
  func addPage(_ jobs: [JobSnapshot], of listing: Listing, next: Listing?) {
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

/// A subscription to one job until its end.
final class OneJobSubscription: JobSubscription, Subscriber {
  private struct State {
    var newest: JobSnapshot
    var events = JobEvents()
    /// The version that the client has; nil: none yet.
    var seen: Int?
    var hasEnded = false
    var wake: (@Sendable () -> Void)?
  }

  private let registration: Subscribers.Registration
  private let state: Mutex<State>

  /// - Parameter seen: the version that the client already has.
  init(to snapshot: JobSnapshot, seen: Int?, _ registration: Subscribers.Registration) {
    self.registration = registration
    var first = State(newest: snapshot)
    if seen == snapshot.job.version {
      first.seen = seen
    } else {
      first.events = JobEvents(from: nil, to: snapshot.job)
    }
    state = Mutex(first)
  }

  func onUpdate(_ wake: @escaping @Sendable () -> Void) { state.withLock { $0.wake = wake } }

  func next() -> JobUpdate {
    state.withLock { state in
      let job = state.newest.job
      if !state.events.isEmpty {
        let events = state.events.ordered(for: job, isFirst: state.seen == nil)
        state.seen = job.version
        state.events = JobEvents()
        return .job(state.newest, events)
      }
      return state.hasEnded || job.isFinal ? .end : .nothing
    }
  }

  func keepJobRunning() { registration.keepJobRunning() }

  func deliver(_ changes: [Change]) {
    let wake = state.withLock { state -> (@Sendable () -> Void)? in
      for change in changes where change.snapshot.job.version > state.newest.job.version {
        state.newest = change.snapshot
        state.events.formUnion(change.events)
      }
      return state.events.isEmpty && !state.newest.job.isFinal ? nil : state.wake
    }
    wake?()
  }

  func remove(_ ids: Set<JobID>) { finish(discardingEvents: true) }

  func finish() { finish(discardingEvents: false) }

  private func finish(discardingEvents: Bool) {
    let wake = state.withLock { state in
      state.hasEnded = true
      if discardingEvents { state.events = JobEvents() }
      return state.wake
    }
    wake?()
  }
}
