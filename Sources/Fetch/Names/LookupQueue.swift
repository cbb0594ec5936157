internal import Executors
internal import Jobs
internal import Synchronization
internal import Waiting

/// Looks up names on its own threads, because `getaddrinfo` can be neither cancelled nor given a deadline. A
/// caller stops waiting at its own deadline; the lookup continues until `getaddrinfo` returns.
///
/// Equal names share one lookup, so a name with dead servers occupies one thread. Two limits apply. `threads`
/// limits the lookups that a caller waits for; `threadsForEach` times as many limits all threads, including
/// those of abandoned lookups.
///
/// Owners share both limits (``FairShare``) and are served round robin (``FairQueue``), so names with dead servers delay
/// only the lookups of their own owner. Threads are started on demand. One permanent thread does the work if
/// the system refuses to start more.
final class LookupQueue: Sendable {
  private struct State {
    /// Lookups that have not begun, by the owners that requested them.
    var waiting = FairQueue<Owner?, Lookup>()
    /// The threads whose lookup has a waiting caller.
    var running = FairShare<Owner?>()
    /// All threads, including those of abandoned lookups.
    var threads = FairShare<Owner?>()
    var inFlight: [String: Lookup] = [:]
    var answers: [String: Answer] = [:]

    mutating func append(_ lookup: Lookup, for owner: Owner?) {
      if lookup.owners.insert(owner).inserted { waiting.append(lookup, for: owner) }
    }

    /// Removes a lookup that no caller waits for.
    mutating func remove(_ lookup: Lookup) {
      inFlight[lookup.name] = nil
      for owner in lookup.owners { waiting.removeAll(of: owner) { $0 === lookup } }
    }
  }

  private struct Answer {
    let addresses: [IPAddress]
    let expires: ContinuousClock.Instant
  }

  private let state = Mutex(State())
  private let resolver: any NameResolver
  private let bounds: (running: ShareBounds, threads: ShareBounds)
  private let fallbackThread = ThreadPool(name: "fetch-names", threads: 1)
  private let cacheTime: Duration

  init(resolver: any NameResolver, threads: Int, cacheTime: Duration) {
    self.resolver = resolver
    let threads = max(1, threads)
    bounds = (.keepingQuarter(of: threads), .keepingQuarter(of: threads * Self.threadsForEach))
    self.cacheTime = cacheTime
  }

  /// Returns the addresses of a name.
  /// - Parameter owner: The owner of the job that needs the name. Nil: the service itself.
  /// - Throws: `.dnsFailure` if the name has no address or the time limit is over; `.cancelled`.
  func addresses(
    of name: String, for owner: Owner?, within limit: Duration
  ) async throws(FetchError) -> [IPAddress] {
    let waiter: OneShot<LookupResult>
    switch join(name, for: owner) {
    case .answer(let addresses): return addresses
    case .waiter(let joined): waiter = joined
    }
    switch await waiter.value(before: .now + limit) {
    case .found(let addresses): return addresses
    case .failed(let detail): throw .dnsFailure(host: name, detail: detail)
    case nil where Task.isCancelled:
      stopWaiting(for: name)
      throw .cancelled
    case nil:
      stopWaiting(for: name)
      throw .dnsFailure(host: name, detail: "no answer within \(limit)")
    }
  }

  private enum Joined {
    case answer([IPAddress])
    case waiter(OneShot<LookupResult>)
  }

  private func join(_ name: String, for owner: Owner?) -> Joined {
    let (joined, begun) = state.withLock { state -> (Joined, [Lookup]) in
      if let answer = state.answers[name] {
        if answer.expires > .now { return (.answer(answer.addresses), []) }
        state.answers[name] = nil
      }
      let waiter = OneShot<LookupResult>()
      let lookup = state.inFlight[name] ?? Lookup(name: name)
      state.inFlight[name] = lookup
      lookup.waiters.append(waiter)
      // The lookup begins at the turn of any of the owners that wait for it.
      if !lookup.hasBegun { state.append(lookup, for: owner) }
      return (.waiter(waiter), begin(&state))
    }
    work(on: begun)
    return joined
  }

  /// Marks the name's lookup as abandoned if no caller waits for it. It stays abandoned if another caller
  /// joins later, because it has already used its time.
  private func stopWaiting(for name: String) {
    let begun = state.withLock { state -> [Lookup] in
      guard let lookup = state.inFlight[name], !lookup.isAbandoned, !lookup.isAwaited
      else { return [] }
      guard lookup.hasBegun else {
        state.remove(lookup)
        return []
      }
      lookup.isAbandoned = true
      release(lookup, from: &state.running)
      return begin(&state)
    }
    work(on: begun)
  }

  // MARK: Round robin of owners

  /// Begins lookups, one owner after the other, while both limits allow it.
  private func begin(_ state: inout State) -> [Lookup] {
    let moment = Timestamp.monotonic
    var begun: [Lookup] = []
    while let owner = state.waiting.next(where: { hasCapacity(for: $0, in: state, at: moment) }),
      let lookup = state.waiting.popFirst(of: owner)
    {
      // It may have begun for another owner.
      guard !lookup.hasBegun else { continue }
      (lookup.hasBegun, lookup.payer) = (true, owner)
      state.running.acquireUnchecked(1, for: owner)
      state.threads.acquireUnchecked(1, for: owner)
      begun.append(lookup)
    }
    return begun
  }

  private func hasCapacity(for owner: Owner?, in state: State, at moment: Timestamp) -> Bool {
    state.running.available(for: owner, within: bounds.running, at: moment) > 0
      && state.threads.available(for: owner, within: bounds.threads, at: moment) > 0
  }

  private func release(_ lookup: Lookup, from shares: inout FairShare<Owner?>) {
    shares.release(1, of: lookup.payer, at: .monotonic)
  }

  // MARK: Threads

  private func work(on lookups: some Sequence<Lookup>) {
    for lookup in lookups {
      if !startThreadIfPossible(named: "fetch-names", { self.work(on: lookup) }) {
        Task(executorPreference: fallbackThread) { self.work(on: lookup) }
      }
    }
  }

  private func work(on first: Lookup) {
    var next: Lookup? = first
    while let lookup = next {
      let result: LookupResult
      do throws(ResolutionError) {
        result = .found(try resolver.addresses(of: lookup.name))
      } catch {
        result = .failed(error.detail)
      }
      let begun = finish(lookup, with: result)
      next = begun.first
      work(on: begun.dropFirst())
    }
  }

  /// - Returns: The lookups to run next: the first on this thread, the others on new threads.
  private func finish(_ lookup: Lookup, with result: LookupResult) -> [Lookup] {
    let (waiters, begun) = state.withLock { state -> ([OneShot<LookupResult>], [Lookup]) in
      if case .found(let addresses) = result, cacheTime > .zero {
        let now = ContinuousClock.now
        if state.answers.count >= Self.maxAnswers {
          state.answers = state.answers.filter { $0.value.expires > now }
        }
        if state.answers.count < Self.maxAnswers {
          state.answers[lookup.name] = Answer(addresses: addresses, expires: now + cacheTime)
        }
      }
      state.inFlight[lookup.name] = nil
      if !lookup.isAbandoned { release(lookup, from: &state.running) }
      release(lookup, from: &state.threads)
      return (lookup.waiters, begin(&state))
    }
    for waiter in waiters { waiter.fulfil(result) }
    return begun
  }

  private static let maxAnswers = 4_096
  /// Total threads per thread that a caller waits for.
  static let threadsForEach = 4
}

/// The lookup of one name. The queue's lock protects its variables.
private final class Lookup: @unchecked Sendable {
  let name: String
  var waiters: [OneShot<LookupResult>] = []
  /// The owners whose queues contain or contained this lookup.
  var owners: Set<Owner?> = []
  /// The owner whose capacity this lookup uses.
  var payer: Owner?
  var hasBegun = false
  /// Whether every caller stopped waiting after the lookup had begun.
  var isAbandoned = false

  var isAwaited: Bool { waiters.contains { !$0.isFinished } }

  init(name: String) { self.name = name }
}

private enum LookupResult: Sendable {
  case found([IPAddress])
  case failed(String)
}
