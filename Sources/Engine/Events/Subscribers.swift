internal import Jobs
internal import Synchronization
internal import Waiting

/// A change of a job that is to be delivered.
struct Change: Sendable {
  /// The job after the change.
  var snapshot: JobSnapshot
  var events: JobEvents

  /// Merges another change of the same job. The order does not matter.
  mutating func merge(_ other: Change) {
    events.formUnion(other.events)
    if other.snapshot.job.version > snapshot.job.version { snapshot = other.snapshot }
  }
}

/// Receives changes of jobs: a long poll, an event stream of one job, or one of many jobs such as the dashboard's.
protocol Subscriber: AnyObject, Sendable {
  /// Delivers changes. Must not wait, because one task delivers to all subscribers.
  func deliver(_ changes: [Change])
  /// Reports that jobs were deleted.
  func remove(_ ids: Set<JobID>)
  /// Reports that no more changes will be delivered.
  func finish()
}

/// All subscribers, and the changes that are to be delivered to them.
///
/// A change of a job is only recorded here, at a cost that does not depend on the number of subscribers; one task
/// delivers it. Changes of one job since the last delivery are merged. Progress of a job is delivered at most ten times
/// a second, and less often if many streams follow many jobs (``ProgressPace``). A change of phase is never delayed.
final class Subscribers: Sendable {
  /// A subscriber's entry, removed when the subscriber releases it.
  final class Registration: Sendable {
    /// The job that is subscribed to; nil: all jobs.
    let job: JobID?
    fileprivate let token: UInt64
    private let subscribers: Subscribers

    fileprivate init(_ job: JobID?, _ token: UInt64, _ subscribers: Subscribers) {
      (self.job, self.token, self.subscribers) = (job, token, subscribers)
    }

    /// From now on the end of this subscription does not cancel the job.
    func keepJobRunning() { if let job { subscribers.keepJobRunning(job, token) } }

    deinit { subscribers.unregister(token, job) }
  }

  private struct Weak: Sendable { weak let subscriber: (any Subscriber)? }

  private struct State {
    var ofJob: [JobID: [UInt64: Weak]] = [:]
    /// Number of subscribers in `ofJob`.
    var ofJobs = 0
    var ofAll: [UInt64: Weak] = [:]
    var count: UInt64 = 0
    var changes: [JobID: Change] = [:]
    /// Time when progress of a job was last delivered.
    var progressed: [JobID: ContinuousClock.Instant] = [:]
    /// Whether a task sleeps until delayed progress is due.
    var isAlarmSet = false
    /// Subscribers of a job that is cancelled when the last of them ends.
    var holders: [JobID: [UInt64: Caller]] = [:]
    var isClosed = false

    func subscribers(to id: JobID) -> [any Subscriber] {
      ofJob[id].map { $0.values.compactMap(\.subscriber) } ?? []
    }

    var subscribersToAll: [any Subscriber] { ofAll.values.compactMap(\.subscriber) }
  }

  private let state = Mutex(State())
  /// All changes of other instances up to this time have been received; nil in an exclusive store.
  private let receivedUntil = Mutex<Timestamp?>(nil)
  private let signal = Signal()
  /// Subscriptions to many jobs that wait for their next page of jobs.
  private let listings = Mutex(FairQueue<Owner, ManyJobsSubscription>())
  private let listingSignal = AsyncStream<Void>.makeStream()
  private let abandonments = AsyncStream<(JobID, Caller)>.makeStream()

  /// Yields once for each subscription that needs a page of jobs. ``nextPageRequest()`` returns which one is next.
  var pageRequests: AsyncStream<Void> { listingSignal.stream }
  /// Jobs to cancel, because the last subscription that holds them ended, with the caller of that subscription.
  var abandoned: AsyncStream<(JobID, Caller)> { abandonments.stream }

  // MARK: Subscribing

  /// - Parameters:
  ///   - seen: the version that the client has; nil: none.
  ///   - holds: whether the job is cancelled when the last such subscription ends.
  func subscribe(
    to snapshot: JobSnapshot, seen: Int?, holds: Bool, for caller: Caller
  ) -> OneJobSubscription {
    let id = snapshot.job.id
    let registration = registration(id)
    let subscription = OneJobSubscription(to: snapshot, seen: seen, registration)
    if holds {
      state.withLock { $0.holders[id, default: [:]][registration.token] = caller }
    }
    add(subscription, registration)
    return subscription
  }

  func subscribe(_ query: SubscriptionQuery, now: @escaping WallClock) -> ManyJobsSubscription {
    let registration = registration(nil)
    let subscription = ManyJobsSubscription(query, self, registration, now: now)
    add(subscription, registration)
    return subscription
  }

  /// Waits until the job meets the condition, is deleted, the deadline passes, the service stops, or the task is
  /// cancelled.
  /// - Parameter newest: returns the job's newest known state; nil ends the wait.
  func wait(
    for condition: WaitCondition, of id: JobID, until deadline: ContinuousClock.Instant,
    newest: () -> Job?
  ) async {
    let registration = registration(id)
    let wait = JobWait(for: condition, registration)
    add(wait, registration)
    // Read after the registration, because every later change is delivered.
    guard let job = newest(), !condition.isMet(by: job) else { return }
    _ = await wait.over.value(before: deadline)
  }

  private func registration(_ job: JobID?) -> Registration {
    let token = state.withLock { state in
      state.count += 1
      return state.count
    }
    return Registration(job, token, self)
  }

  private func add(_ subscriber: any Subscriber, _ registration: Registration) {
    let isClosed = state.withLock { state in
      let weak = Weak(subscriber: subscriber)
      if let job = registration.job {
        state.ofJob[job, default: [:]][registration.token] = weak
        state.ofJobs += 1
      } else {
        state.ofAll[registration.token] = weak
      }
      return state.isClosed
    }
    if isClosed { subscriber.finish() }
  }

  private func unregister(_ token: UInt64, _ job: JobID?) {
    let caller = state.withLock { state -> Caller? in
      state.ofAll[token] = nil
      if let job {
        if state.ofJob[job]?.removeValue(forKey: token) != nil { state.ofJobs -= 1 }
        if state.ofJob[job]?.isEmpty == true { state.ofJob[job] = nil }
      }
      if state.ofJob.isEmpty, state.ofAll.isEmpty { (state.changes, state.progressed) = ([:], [:]) }
      guard let job, let caller = state.holders[job]?.removeValue(forKey: token),
        state.holders[job]?.isEmpty == true
      else { return nil }
      state.holders[job] = nil
      return state.isClosed ? nil : caller
    }
    if let job, let caller { abandonments.continuation.yield((job, caller)) }
  }

  private func keepJobRunning(_ job: JobID, _ token: UInt64) {
    state.withLock { state in
      state.holders[job]?[token] = nil
      if state.holders[job]?.isEmpty == true { state.holders[job] = nil }
    }
  }

  /// Whether the job has a subscription whose end cancels it.
  func holds(_ id: JobID) -> Bool { state.withLock { $0.holders[id] != nil } }

  /// Whether changes of the job are delivered to any subscriber.
  func follows(_ id: JobID) -> Bool {
    state.withLock { !$0.ofAll.isEmpty || $0.ofJob[id] != nil }
  }

  /// Jobs that have subscribers of their own.
  var jobs: Set<JobID> { state.withLock { Set($0.ofJob.keys) } }

  /// Requests a page of jobs for a subscription.
  func requestPage(for subscription: ManyJobsSubscription) {
    listings.withLock { $0.append(subscription, for: subscription.query.caller.owner) }
    listingSignal.continuation.yield()
  }

  /// Returns the subscription whose page is read next.
  func nextPageRequest() -> ManyJobsSubscription? { listings.withLock { $0.popFirst() } }

  // MARK: Changes by other instances

  /// Records that all changes of other instances up to this time have been received or are about to be read.
  func recordReceived(until moment: Timestamp) { receivedUntil.withLock { $0 = moment } }

  /// A subscriber that has received everything known here is up to date until the returned time. The time does not
  /// advance while nothing is received from other instances.
  func horizon(at now: Timestamp) -> Timestamp { receivedUntil.withLock { min($0 ?? now, now) } }

  /// Has all subscriptions to many jobs read the jobs again, because events of other instances were lost.
  /// - Parameter silence: how long events may have been missing before that was noticed.
  func relist(after silence: Duration) {
    let subscribers = state.withLock { $0.subscribersToAll }
    for case let subscription as ManyJobsSubscription in subscribers {
      subscription.relist(after: silence)
    }
  }

  // MARK: Delivering

  /// Records a change for the next delivery.
  func recordChange(_ snapshot: JobSnapshot, from old: Job?) {
    let id = snapshot.job.id
    let isNoted = state.withLock { state in
      guard !state.ofAll.isEmpty || state.ofJob[id] != nil else { return false }
      let change = Change(snapshot: snapshot, events: JobEvents(from: old, to: snapshot.job))
      if state.changes[id] == nil {
        state.changes[id] = change
      } else {
        state.changes[id]?.merge(change)
      }
      return true
    }
    if isNoted { signal.send() }
  }

  /// Removes deleted jobs and reports that to their subscribers.
  func remove(_ ids: [JobID]) {
    let subscribers = state.withLock { state in
      for id in ids { (state.changes[id], state.progressed[id]) = (nil, nil) }
      return ids.flatMap { state.subscribers(to: $0) } + state.subscribersToAll
    }
    let gone = Set(ids)
    for subscriber in subscribers { subscriber.remove(gone) }
  }

  /// Delivers changes until cancelled.
  func run() async {
    await withDiscardingTaskGroup { group in
      for await _ in signal.arrivals {
        guard let next = await deliverDue() else { continue }
        let sets = state.withLock { state in
          defer { state.isAlarmSet = true }
          return !state.isAlarmSet
        }
        guard sets else { continue }
        group.addTask {
          try? await Task.sleep(until: next, clock: .continuous)
          self.state.withLock { $0.isAlarmSet = false }
          self.signal.send()
        }
      }
      group.cancelAll()
    }
  }

  /// Delivers the changes that are due.
  /// - Returns: when the next delayed progress is due; nil if there is none.
  @discardableResult
  func deliverDue() async -> ContinuousClock.Instant? {
    let due = removeDue(.now)
    guard !due.changes.isEmpty else { return due.next }
    for (number, subscriber) in due.subscribersToAll.enumerated() {
      subscriber.deliver(due.changes)
      await Self.yield(after: number)
    }
    for change in due.changes {
      let subscribers = state.withLock { $0.subscribers(to: change.snapshot.job.id) }
      for (number, subscriber) in subscribers.enumerated() {
        subscriber.deliver([change])
        await Self.yield(after: number)
      }
    }
    return due.next
  }

  /// Yields regularly, so that a delivery to thousands of subscribers does not block one of Swift's few threads.
  private static func yield(after number: Int) async {
    if number % 64 == 63 { await Task.yield() }
  }

  private func removeDue(
    _ now: ContinuousClock.Instant
  ) -> (
    changes: [Change], subscribersToAll: [any Subscriber], next: ContinuousClock.Instant?
  ) {
    state.withLock { state in
      var due: [Change] = []
      var next: ContinuousClock.Instant?
      let interval = ProgressPace.interval(
        events: state.ofAll.count * state.progressed.count + state.ofJobs)
      for (id, change) in state.changes {
        if change.events.isOnlyProgress, let last = state.progressed[id], now - last < interval {
          next = min(next ?? now + interval, last + interval)
          continue
        }
        due.append(change)
        state.changes[id] = nil
        let goesOn = change.snapshot.job.phase == .loading
        state.progressed[id] = goesOn ? now : nil
      }
      return (due, state.subscribersToAll, next)
    }
  }

  /// Delivers the changes so far, then ends all subscriptions. New ones end at once.
  func close() {
    let (changes, ofJob, ofAll) = state.withLock { state in
      state.isClosed = true
      state.holders = [:]
      defer { state.changes = [:] }
      let ofJob = state.ofJob.keys.map { ($0, state.subscribers(to: $0)) }
      return (state.changes, ofJob, state.subscribersToAll)
    }
    for (id, subscribers) in ofJob {
      for subscriber in subscribers {
        if let change = changes[id] { subscriber.deliver([change]) }
        subscriber.finish()
      }
    }
    for subscriber in ofAll {
      subscriber.deliver(Array(changes.values))
      subscriber.finish()
    }
  }
}

/// A wait for a job to meet a condition: a long poll.
private final class JobWait: Subscriber {
  /// Fulfilled when the wait is over.
  let over = OneShot<Void>()
  private let condition: WaitCondition
  private let registration: Subscribers.Registration

  init(for condition: WaitCondition, _ registration: Subscribers.Registration) {
    (self.condition, self.registration) = (condition, registration)
  }

  func deliver(_ changes: [Change]) {
    if changes.contains(where: { condition.isMet(by: $0.snapshot.job) }) { over.fulfil() }
  }

  func remove(_ ids: Set<JobID>) { over.fulfil() }

  func finish() { over.fulfil() }
}

/// How often the progress of a job is delivered: less often if that causes more events.
///
/// Ten events per second for each stream and loading job would be two million events per second with 4,500 streams and
/// 48 jobs.
enum ProgressPace {
  /// Progress events per second, for all streams together.
  static let eventsPerSecond = 10_000.0
  static let shortest = Duration.milliseconds(100)
  static let longest = Duration.seconds(5)

  /// Returns the time between two deliveries of one job's progress.
  /// - Parameter events: the events for one delivery of all loading jobs: streams times jobs.
  static func interval(events: Int) -> Duration {
    min(longest, max(shortest, .seconds(Double(events) / eventsPerSecond)))
  }
}
