internal import Jobs
internal import Synchronization

/// Refuses submissions in the place of a store that has just said that the queue is full: a refusal by the store costs
/// many times what it is to say no here, and those who work on the queue wait for the same thread.
///
/// In come the store's refusals, and how many jobs left the queue here; out goes whether the store is to be asked. It
/// lets nothing in: that is the store's to say. Nor does it keep anything out for long: each job that leaves lets
/// one submission of each client ask, and what it heard counts for a moment only, as jobs leave at other instances too.
///
/// A client is told apart by its capacity as well: one owner's tokens may differ in that. What the one is refused says
/// nothing of another, so that who has room in the queue is never kept from it by somebody's flood.
final class QueueGate: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// Whose submissions the store judges alike.
  struct Client: Hashable, Sendable {
    private let owner: Owner
    private let places: Int

    init(_ owner: Owner, _ capacity: QueueCapacity) {
      (self.owner, places) = (owner, capacity.ofOwner)
    }
  }

  /// One submission's leave to ask the store.
  struct Admission: Sendable {
    fileprivate let client: Client
    /// As many jobs had left the queue when it was given: the store knows of all of them.
    fileprivate let departures: Int
  }

  /// What a client was told.
  private struct Refusal {
    /// Who wants fewer places was not refused.
    var places: Int
    /// As many jobs had left the queue that the store knew of, or have let somebody ask since.
    var departures: Int
    var until: Instant
  }

  private struct State {
    /// Jobs that left the queue here.
    var departures = 0
    var refusals: LRUCache<Client, Refusal>

    /// What the client was told, where it still counts for so many jobs.
    func refusal(of client: Client, for jobs: Int, at now: Instant) -> Refusal? {
      guard let refusal = refusals.peek(client), jobs >= refusal.places, now < refusal.until
      else { return nil }
      return refusal
    }
  }

  private let patience: Duration
  private let clock: @Sendable () -> Instant
  private let state: Mutex<State>

  /// - Parameters:
  ///   - patience: how long the store's refusal counts.
  ///   - clients: as many are remembered; others ask the store each time.
  init(
    patience: Duration, clients: Int = 1_024, clock: @escaping @Sendable () -> Instant = { .now }
  ) {
    self.patience = patience
    self.clock = clock
    state = Mutex(State(refusals: LRUCache(capacity: clients)))
  }

  /// Whether so many jobs of the client's would be refused now. None never are.
  func isClosed(to client: Client, for jobs: Int) -> Bool {
    guard jobs > 0 else { return false }
    let now = clock()
    return state.withLock { state in
      guard let refusal = state.refusal(of: client, for: jobs, at: now) else { return false }
      return refusal.departures >= state.departures
    }
  }

  /// Leave to ask the store whether it takes so many jobs, each of which wants a place or more; nil: it would not.
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

  /// The same for what the store may answer though the queue is full.
  func admitAnyway(_ client: Client) -> Admission {
    state.withLock { Admission(client: client, departures: $0.departures) }
  }

  /// The store has refused what was admitted, as it has no so many places for it.
  func close(to admission: Admission, wanting places: Int) {
    let now = clock()
    state.withLock { state in
      var refusal = Refusal(
        places: places, departures: admission.departures, until: now + patience)
      if let known = state.refusals.peek(admission.client), now < known.until {
        // Who wants more places says nothing of those who want fewer.
        guard places <= known.places else { return }
        refusal.departures = max(refusal.departures, known.departures)
      }
      state.refusals.set(refusal, for: admission.client)
    }
  }

  /// Jobs have left the queue, as the store has it. Those of batches take no places of the others.
  func left(_ jobs: some Sequence<Job>) {
    let count = jobs.count { $0.batch == nil }
    if count > 0 { state.withLock { $0.departures += count } }
  }
}
