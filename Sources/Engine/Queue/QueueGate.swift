internal import Jobs
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
