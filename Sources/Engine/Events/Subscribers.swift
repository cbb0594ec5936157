internal import Jobs
internal import Synchronization

/// A change of a job on its way to listeners.
struct Change: Sendable {
  /// The job after it.
  var snapshot: JobSnapshot
  var events: JobEvents

  /// Takes in another one of the same job, whichever came first.
  mutating func merge(_ other: Change) {
    events.formUnion(other.events)
    if other.snapshot.job.version > snapshot.job.version { snapshot = other.snapshot }
  }
}

/// All who listen, and the changes that they are still to hear of.
///
/// Whoever changes a job only leaves a note here, which costs the same however many listen; a task of its own passes
/// it on. A job's notes since then are one, and its progress waits until the last one is a tenth of a second old.
final class Subscribers: Sendable {
  private struct Weak<Listener: AnyObject & Sendable>: Sendable { weak let subscription: Listener? }

  private struct State {
    var one: [JobID: [UInt64: Weak<OneJobSubscription>]] = [:]
    var many: [UInt64: Weak<ManyJobsSubscription>] = [:]
    var changes: [JobID: Change] = [:]
    /// When progress was last passed on.
    var progressed: [JobID: ContinuousClock.Instant] = [:]
    /// Listeners at whose leaving the job is cancelled.
    var holders: [JobID: [UInt64: Caller]] = [:]
    var isClosed = false

    var isEmpty: Bool { one.isEmpty && many.isEmpty }
  }

  private static let progressInterval = Duration.milliseconds(100)

  private let state = Mutex(State())
  private let tokens = Atomic<UInt64>(0)
  private let signal = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
  private let asking = AsyncStream<ManyJobsSubscription>.makeStream()
  private let abandoning = AsyncStream<(JobID, Caller)>.makeStream()

  /// Listeners to many jobs that want to know how these are.
  var asks: AsyncStream<ManyJobsSubscription> { asking.stream }
  /// Jobs whose last listener that held them went away, and who that was.
  var abandoned: AsyncStream<(JobID, Caller)> { abandoning.stream }

  // MARK: Listening

  /// - Parameter holds: whether the job is cancelled when the last such listener goes away.
  func subscribe(
    to snapshot: JobSnapshot, told: Int?, holds: Bool, for caller: Caller
  ) -> OneJobSubscription {
    let token = nextToken()
    let subscription = OneJobSubscription(to: snapshot, told: told, self, token: token)
    let isClosed = state.withLock { state in
      state.one[subscription.id, default: [:]][token] = Weak(subscription: subscription)
      if holds { state.holders[subscription.id, default: [:]][token] = caller }
      return state.isClosed
    }
    if isClosed { subscription.end(forgetting: false) }
    return subscription
  }

  func subscribe(_ query: SubscriptionQuery, now: @escaping WallClock) -> ManyJobsSubscription {
    let token = nextToken()
    let subscription = ManyJobsSubscription(query, self, token: token, now: now)
    let isClosed = state.withLock { state in
      state.many[token] = Weak(subscription: subscription)
      return state.isClosed
    }
    if isClosed { subscription.end() }
    return subscription
  }

  private func nextToken() -> UInt64 { tokens.add(1, ordering: .relaxed).newValue }

  func leave(_ token: UInt64) {
    state.withLock { state in
      state.many[token] = nil
      Self.forgetChanges(&state)
    }
  }

  func leave(_ token: UInt64, of id: JobID) {
    let caller = state.withLock { state -> Caller? in
      state.one[id]?[token] = nil
      if state.one[id]?.isEmpty == true { state.one[id] = nil }
      Self.forgetChanges(&state)
      guard let caller = state.holders[id]?.removeValue(forKey: token) else { return nil }
      guard state.holders[id]?.isEmpty == true else { return nil }
      state.holders[id] = nil
      return state.isClosed ? nil : caller
    }
    if let caller { abandoning.continuation.yield((id, caller)) }
  }

  private static func forgetChanges(_ state: inout State) {
    guard state.isEmpty else { return }
    (state.changes, state.progressed) = ([:], [:])
  }

  /// Whether a listener is there again at whose leaving the job is to be cancelled.
  func holds(_ id: JobID) -> Bool { state.withLock { $0.holders[id] != nil } }

  /// Jobs that somebody listens to one by one.
  var jobs: Set<JobID> { state.withLock { Set($0.one.keys) } }

  func ask(_ subscription: ManyJobsSubscription) { asking.continuation.yield(subscription) }

  // MARK: Telling

  /// Notes a change, to be passed on soon.
  func note(_ snapshot: JobSnapshot, from old: Job?) {
    let isNoted = state.withLock { state in
      guard !state.isEmpty else { return false }
      let change = Change(snapshot: snapshot, events: JobEvents(from: old, to: snapshot.job))
      let id = snapshot.job.id
      if state.changes[id] == nil {
        state.changes[id] = change
      } else {
        state.changes[id]?.merge(change)
      }
      return true
    }
    if isNoted { wake() }
  }

  /// Jobs are gone.
  func forget(_ ids: [JobID]) {
    let (one, many) = state.withLock { state in
      for id in ids { (state.changes[id], state.progressed[id]) = (nil, nil) }
      return (
        ids.flatMap { Self.subscribers(to: $0, state) },
        state.many.values.compactMap(\.subscription)
      )
    }
    for subscription in one { subscription.end(forgetting: true) }
    let gone = Set(ids)
    for subscription in many { subscription.forget(gone) }
  }

  /// Has what waits looked at.
  func wake() { signal.continuation.yield() }

  /// The same where something waits: progress that came too soon.
  /// - Returns: whether something does.
  @discardableResult
  func wakeAgain() -> Bool {
    let waits = state.withLock { !$0.changes.isEmpty }
    if waits { wake() }
    return waits
  }

  /// Passes changes on until cancelled.
  func deliverChanges() async {
    for await _ in signal.stream { await deliverDue() }
  }

  /// Passes on what is to be heard of now.
  func deliverDue() async {
    let (changes, many) = takeDue(.now)
    for (number, subscription) in many.enumerated() {
      subscription.deliver(changes)
      await Self.makeWay(number)
    }
    for change in changes {
      let subscribers = state.withLock { Self.subscribers(to: change.snapshot.job.id, $0) }
      for (number, subscription) in subscribers.enumerated() {
        subscription.deliver(change.snapshot, change.events)
        await Self.makeWay(number)
      }
    }
  }

  /// Waking thousands must not keep one of Swift's few threads for itself.
  private static func makeWay(_ number: Int) async {
    if number % 64 == 63 { await Task.yield() }
  }

  private func takeDue(
    _ now: ContinuousClock.Instant
  ) -> (changes: [Change], many: [ManyJobsSubscription]) {
    state.withLock { state in
      var due: [Change] = []
      for (id, change) in state.changes {
        if change.events.isOnlyProgress, let last = state.progressed[id],
          now - last < Self.progressInterval
        {
          continue
        }
        due.append(change)
        state.changes[id] = nil
        let goesOn = change.snapshot.job.phase == .loading
        state.progressed[id] = goesOn ? now : nil
      }
      return (due, state.many.values.compactMap(\.subscription))
    }
  }

  private static func subscribers(to id: JobID, _ state: State) -> [OneJobSubscription] {
    state.one[id].map { $0.values.compactMap(\.subscription) } ?? []
  }

  /// Ends all listening, now and from now on, after what has happened so far.
  func close() {
    let (changes, one, many) = state.withLock { state in
      state.isClosed = true
      state.holders = [:]
      defer { state.changes = [:] }
      return (
        Array(state.changes.values),
        state.one.values.flatMap { $0.values.compactMap(\.subscription) },
        state.many.values.compactMap(\.subscription)
      )
    }
    let newest = Dictionary(uniqueKeysWithValues: changes.map { ($0.snapshot.job.id, $0) })
    for subscription in one {
      if let change = newest[subscription.id] {
        subscription.deliver(change.snapshot, change.events)
      }
      subscription.end(forgetting: false)
    }
    for subscription in many {
      subscription.deliver(changes)
      subscription.end()
    }
  }
}
