internal import Jobs
internal import Logging
internal import Synchronization

/// Refuses submissions without asking the store, shortly after the store reported a full queue. A refusal here costs
/// far less than one by the store, and leaves the store's thread to the workers.
///
/// Input: refusals by the store, and the number of jobs that left the queue at this instance. Output: whether the store
/// has to be asked. The gate never accepts a submission; only the store does. A refusal is remembered for `patience`
/// only, because jobs also leave the queue at other instances. Each job that leaves the queue here lets one submission
/// of each client through to the store.
///
/// A client is an owner with a capacity, because tokens of one owner can have different limits. A refusal of
/// one client says nothing about another, so a client with free slots is never refused because of another one's
/// submissions.
final class QueueGate: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// Submissions that the store judges alike.
  struct Client: Hashable, Sendable {
    private let owner: Owner
    private let places: Int

    init(_ owner: Owner, _ capacity: QueueCapacity) {
      (self.owner, places) = (owner, capacity.ofOwner)
    }
  }

  /// The right of one submission to ask the store.
  struct Admission: Sendable {
    fileprivate let client: Client
    /// Number of departures when the right was given. The store knows of all of them.
    fileprivate let departures: Int
  }

  /// A refusal by the store.
  private struct Refusal {
    /// Number of slots that were wanted. A submission that needs fewer is not covered by this refusal.
    var slots: Int
    /// Departures that the store knew of when it refused, plus those already used to let a submission through.
    var departures: Int
    var until: Instant
  }

  private struct State {
    /// Jobs that left the queue at this instance.
    var departures = 0
    var refusals: LRUCache<Client, Refusal>

    /// Returns the refusal that still applies to this many jobs.
    func refusal(of client: Client, for jobs: Int, at now: Instant) -> Refusal? {
      guard let refusal = refusals.peek(client), jobs >= refusal.slots, now < refusal.until
      else { return nil }
      return refusal
    }
  }

  private let refusalDuration: Duration
  private let clock: @Sendable () -> Instant
  private let state: Mutex<State>

  /// - Parameters:
  ///   - patience: how long a refusal by the store is remembered.
  ///   - clients: number of clients to remember. Other clients always ask the store.
  init(
    patience: Duration, clients: Int = 1_024, clock: @escaping @Sendable () -> Instant = { .now }
  ) {
    self.refusalDuration = patience
    self.clock = clock
    state = Mutex(State(refusals: LRUCache(capacity: clients)))
  }

  /// Returns whether `jobs` jobs of the client would be refused now. Zero jobs are never refused.
  func isClosed(to client: Client, for jobs: Int) -> Bool {
    guard jobs > 0 else { return false }
    let now = clock()
    return state.withLock { state in
      guard let refusal = state.refusal(of: client, for: jobs, at: now) else { return false }
      return refusal.departures >= state.departures
    }
  }

  /// Returns the right to ask the store to accept this many jobs with at least one slot each; nil if the
  /// store would refuse.
  func admit(_ jobs: Int, of client: Client) -> Admission? {
    let now = clock()
    return state.withLock { state in
      let admission = Admission(client: client, departures: state.departures)
      guard var refusal = state.refusal(of: client, for: jobs, at: now) else { return admission }
      guard refusal.departures < state.departures else { return nil }
      refusal.departures += 1
      state.refusals.set(refusal, for: client)
      return admission
    }
  }

  /// Returns the right to ask the store even if the queue is full: for requests that may repeat an accepted one.
  func admitAnyway(_ client: Client) -> Admission {
    state.withLock { Admission(client: client, departures: $0.departures) }
  }

  /// Records that the store refused this submission because it has fewer than `places` free slots.
  func recordRefusal(of admission: Admission, slots places: Int) {
    let now = clock()
    state.withLock { state in
      var refusal = Refusal(
        slots: places, departures: admission.departures, until: now + refusalDuration)
      if let known = state.refusals.peek(admission.client), now < known.until {
        // A refusal of more slots says nothing about submissions that need fewer.
        guard places <= known.slots else { return }
        refusal.departures = max(refusal.departures, known.departures)
      }
      state.refusals.set(refusal, for: admission.client)
    }
  }

  /// Counts jobs that have left the queue. Jobs of batches are ignored, because they have a limit of their own.
  func recordDepartures(_ jobs: some Sequence<Job>) {
    let count = jobs.count { $0.batch == nil }
    if count > 0 { state.withLock { $0.departures += count } }
  }
}

/// Whether the network is constrained. If it is, low-data images are loaded instead of the regular ones.
final class NetworkState: Sendable {
  private let constrained: Atomic<Bool>

  init(isConstrained: Bool) { constrained = Atomic(isConstrained) }

  var isConstrained: Bool { constrained.load(ordering: .relaxed) }

  /// - Returns: whether the state changed.
  func set(_ isConstrained: Bool) -> Bool {
    constrained.exchange(isConstrained, ordering: .relaxed) != isConstrained
  }

  /// Returns which of its URLs a job fetches first.
  func firstCandidate(of submission: Submission) -> URLCandidate {
    guard case .url(_, _?) = submission.source, submission.savesData || isConstrained else {
      return .regular
    }
    return .lowData
  }
}

/// Counts the bytes fetched from origins per owner and UTC day, for owners whose tokens limit them.
///
/// Once a second an instance adds its counts to the store and reads the sums of all instances. So an owner can exceed
/// its limit by the bytes of about one second, and by the jobs that were accepted before it was reached.
final class DailyBytes: Sendable {
  private struct State {
    var day = 0
    /// Sums of all instances, as last read from the store.
    var known: [Owner: Int] = [:]
    /// Bytes that are not in the store yet. Only owners that are in this dictionary are counted.
    var pending: [Owner: Int] = [:]
    /// Owners in `pending` whose counts are to be saved or read at the next ``save(in:at:_:)``.
    var due: Set<Owner> = []

    mutating func startDay(_ day: Int) {
      guard day != self.day else { return }
      (self.day, known) = (day, [:])
      for owner in pending.keys { pending[owner] = 0 }
    }
  }

  private let state: Mutex<State>

  /// - Parameter owners: counted from the start. Other owners are counted from their first check on.
  init(of owners: Set<Owner>) {
    let pending = Dictionary(uniqueKeysWithValues: owners.map { ($0, 0) })
    state = Mutex(State(pending: pending, due: owners))
  }

  /// Counts bytes of a transfer. If jobs of several owners shared it, each owner is charged for all bytes, once.
  func add(_ charges: [Owner: Int], at moment: Timestamp) {
    for (owner, count) in charges { add(count, for: owner, at: moment) }
  }

  func add(_ count: Int, for owner: Owner, at moment: Timestamp) {
    state.withLock { state in
      state.startDay(moment.day)
      guard let before = state.pending[owner] else { return }
      state.pending[owner] = before + count
      state.due.insert(owner)
    }
  }

  /// - Throws: `.dailyBytesExceeded` if the owner has reached its limit for today.
  func check(_ caller: Caller, at moment: Timestamp) throws(JobsError) {
    if let refusal = refusal(of: caller, at: moment) { throw refusal }
  }

  /// Returns the error that ``check(_:at:)`` throws; nil if the owner may fetch more.
  func refusal(of caller: Caller, at moment: Timestamp) -> JobsError? {
    guard let limit = caller.limits.maxBytesPerDay else { return nil }
    let had = state.withLock { state in
      state.startDay(moment.day)
      let pending = state.pending[caller.owner] ?? 0
      state.pending[caller.owner] = pending
      state.due.insert(caller.owner)
      return pending + (state.known[caller.owner] ?? 0)
    }
    return had < limit ? nil : .dailyBytesExceeded(for: Timestamp(day: moment.day + 1) - moment)
  }

  /// Adds the pending counts to the store, and reads the sums of all instances.
  func save(in store: any JobRecords, at moment: Timestamp, _ log: Logger) async {
    let (day, came) = state.withLock { state in
      state.startDay(moment.day)
      let came = state.pending.filter { state.due.contains($0.key) }
      for owner in came.keys { state.pending[owner] = 0 }
      state.due = []
      return (state.day, came)
    }
    guard !came.isEmpty else { return }
    do throws(StoreError) {
      let known = try await store.addBytes(came, on: day)
      state.withLock { state in
        if state.day == day { state.known.merge(known) { $1 } }
      }
    } catch {
      log.error("failed to save the bytes fetched per owner", metadata: ["error": "\(error)"])
      state.withLock { state in
        if state.day == day { state.pending.merge(came) { $0 + $1 } }
        state.due.formUnion(came.keys)
      }
    }
  }
}
