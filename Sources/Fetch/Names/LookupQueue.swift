internal import Executors
internal import Jobs
internal import Synchronization
internal import Waiting

/// Looks names up on a bounded number of threads of its own, since `getaddrinfo` can neither be
/// cancelled nor given a deadline: who waits leaves in time, the lookup ends when it ends.
///
/// Equal names share one lookup, so that a name whose servers are dead holds one thread, not all.
/// The threads come and go with the work, but for one, which does it where no more can be had.
final class LookupQueue: Sendable {
  private struct State {
    var waiting: [Lookup] = []
    var running = 0
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
    case nil where Task.isCancelled: throw .cancelled
    case nil: throw .dnsFailure(host: name, detail: "no answer within \(limit)")
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
      guard state.running < threads else { return (.waiter(waiter), false) }
      state.running += 1
      return (.waiter(waiter), true)
    }
    if startsThread, !startThreadIfPossible(named: "fetch-names", { self.work() }) {
      Task(executorPreference: last) { self.work() }
    }
    return joined
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
      while !state.waiting.isEmpty {
        let lookup = state.waiting.removeFirst()
        if lookup.waiters.contains(where: { !$0.isOver }) { return lookup.name }
        state.underWay[lookup.name] = nil
      }
      state.running -= 1
      return nil
    }
  }

  private func finish(_ name: String, with result: LookupResult) {
    let waiters = state.withLock { state in
      if case .found(let addresses) = result, cacheTime > .zero {
        let now = ContinuousClock.now
        if state.answers.count >= Self.maxAnswers {
          state.answers = state.answers.filter { $0.value.expires > now }
        }
        if state.answers.count < Self.maxAnswers {
          state.answers[name] = Answer(addresses: addresses, expires: now + cacheTime)
        }
      }
      return state.underWay.removeValue(forKey: name)?.waiters ?? []
    }
    for waiter in waiters { waiter.fulfil(result) }
  }

  private static let maxAnswers = 4_096
}

/// One name being looked up; `waiters` is the queue's, behind its lock.
private final class Lookup: @unchecked Sendable {
  let name: String
  var waiters: [OneShot<LookupResult>]

  init(name: String, first: OneShot<LookupResult>) {
    self.name = name
    waiters = [first]
  }
}

private enum LookupResult: Sendable {
  case found([IPAddress])
  case failed(String)
}
