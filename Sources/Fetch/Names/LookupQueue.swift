internal import Executors
internal import Jobs
internal import Synchronization
internal import Waiting

/// Looks names up on a bounded number of threads of its own, since `getaddrinfo` can neither be
/// cancelled nor given a deadline: who waits leaves in time, the lookup ends when it ends.
///
/// Equal names share one lookup, so that a name whose servers are dead holds one thread, not all;
/// once nobody waits for it that thread is no longer one of those that others wait for. Threads are
/// a resource: those have a bound, too. They come and go with the work, but for one, which does it
/// where no more can be had.
final class LookupQueue: Sendable {
  private struct State {
    var waiting: [Lookup] = []
    /// Threads, but for those whose lookup was abandoned.
    var running = 0
    var abandoned = 0
    var underWay: [String: Lookup] = [:]
    var answers: [String: Answer] = [:]
  }

  private struct Answer {
    let addresses: [IPAddress]
    let expires: ContinuousClock.Instant
  }

  private let state = Mutex(State())
  private let resolver: any NameResolver
  private let threads: Int
  private let last = ThreadPool(name: "fetch-names", threads: 1)
  private let cacheTime: Duration

  init(resolver: any NameResolver, threads: Int, cacheTime: Duration) {
    self.resolver = resolver
    self.threads = max(1, threads)
    self.cacheTime = cacheTime
  }

  /// The addresses of a name.
  /// - Throws: `.dnsFailure`, also when there is no answer within the time; `.cancelled`.
  func addresses(
    of name: String, within limit: Duration
  ) async throws(FetchError) -> [IPAddress] {
    let waiter: OneShot<LookupResult>
    switch join(name) {
    case .answer(let addresses): return addresses
    case .waiter(let joined): waiter = joined
    }
    switch await waiter.value(before: .now + limit) {
    case .found(let addresses): return addresses
    case .failed(let detail): throw .dnsFailure(host: name, detail: detail)
    case nil where Task.isCancelled:
      leave(name)
      throw .cancelled
    case nil:
      leave(name)
      throw .dnsFailure(host: name, detail: "no answer within \(limit)")
    }
  }

  private enum Joined {
    case answer([IPAddress])
    case waiter(OneShot<LookupResult>)
  }

  private func join(_ name: String) -> Joined {
    let (joined, startsThread) = state.withLock { state -> (Joined, Bool) in
      if let answer = state.answers[name] {
        if answer.expires > .now { return (.answer(answer.addresses), false) }
        state.answers[name] = nil
      }
      let waiter = OneShot<LookupResult>()
      if let lookup = state.underWay[name] {
        lookup.waiters.append(waiter)
        return (.waiter(waiter), false)
      }
      let lookup = Lookup(name: name, first: waiter)
      state.underWay[name] = lookup
      state.waiting.append(lookup)
      return (.waiter(waiter), takesThread(&state))
    }
    if startsThread { startThread() }
    return joined
  }

  /// The name's lookup is abandoned where nobody else waits for it, and stays so whoever joins it:
  /// it has had its time.
  private func leave(_ name: String) {
    let startsThread = state.withLock { state in
      guard let lookup = state.underWay[name], lookup.hasBegun, !lookup.isAbandoned,
        !lookup.isAwaited
      else { return false }
      lookup.isAbandoned = true
      state.running -= 1
      state.abandoned += 1
      return takesThread(&state)
    }
    if startsThread { startThread() }
  }

  /// - Returns: whether a thread is to be started, which counts already.
  private func takesThread(_ state: inout State) -> Bool {
    guard !state.waiting.isEmpty, state.running < threads,
      state.running + state.abandoned < threads * Self.threadsForEach
    else { return false }
    state.running += 1
    return true
  }

  private func startThread() {
    if !startThreadIfPossible(named: "fetch-names", { self.work() }) {
      Task(executorPreference: last) { self.work() }
    }
  }

  private func work() {
    while let name = nextName() {
      let result: LookupResult
      do throws(ResolutionError) {
        result = .found(try resolver.addresses(of: name))
      } catch {
        result = .failed(error.detail)
      }
      finish(name, with: result)
    }
  }

  /// The next name that somebody still waits for; nil ends the thread.
  private func nextName() -> String? {
    state.withLock { state in
      // A thread whose lookup was abandoned may be one too many.
      while state.running <= threads, !state.waiting.isEmpty {
        let lookup = state.waiting.removeFirst()
        if lookup.isAwaited {
          lookup.hasBegun = true
          return lookup.name
        }
        state.underWay[lookup.name] = nil
      }
      state.running -= 1
      return nil
    }
  }

  private func finish(_ name: String, with result: LookupResult) {
    let waiters = state.withLock { state -> [OneShot<LookupResult>] in
      if case .found(let addresses) = result, cacheTime > .zero {
        let now = ContinuousClock.now
        if state.answers.count >= Self.maxAnswers {
          state.answers = state.answers.filter { $0.value.expires > now }
        }
        if state.answers.count < Self.maxAnswers {
          state.answers[name] = Answer(addresses: addresses, expires: now + cacheTime)
        }
      }
      guard let lookup = state.underWay.removeValue(forKey: name) else { return [] }
      if lookup.isAbandoned {
        state.abandoned -= 1
        state.running += 1
      }
      return lookup.waiters
    }
    for waiter in waiters { waiter.fulfil(result) }
  }

  private static let maxAnswers = 4_096
  /// Threads in all for each of those whose lookup somebody waits for.
  private static let threadsForEach = 4
}

/// One name being looked up; what changes is the queue's, behind its lock.
private final class Lookup: @unchecked Sendable {
  let name: String
  var waiters: [OneShot<LookupResult>]
  var hasBegun = false
  /// Whether all that had waited left after it had begun.
  var isAbandoned = false

  var isAwaited: Bool { waiters.contains { !$0.isOver } }

  init(name: String, first: OneShot<LookupResult>) {
    self.name = name
    waiters = [first]
  }
}

private enum LookupResult: Sendable {
  case found([IPAddress])
  case failed(String)
}
