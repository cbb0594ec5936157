internal import Jobs
internal import Synchronization

/// Protects origins from us, and jobs from slow origins: who may send a request where, and when.
final class OriginLimits: Sendable {
  typealias Instant = ContinuousClock.Instant

  private struct Waiter {
    let number: UInt64
    let continuation: CheckedContinuation<Bool, Never>
  }

  private struct State {
    var origins: [String: OriginState] = [:]
    var waiters: [String: [Waiter]] = [:]
    var count: UInt64 = 0

    mutating func tidy(at now: Instant, _ rules: OriginRules) {
      origins = origins.filter { !$0.value.isForgettable(at: now, rules) }
      guard origins.count > rules.maxRemembered else { return }
      origins = origins.filter { !$0.value.isIdle || $0.value.pause(at: now) != nil }
      guard origins.count > rules.maxRemembered else { return }
      origins = origins.filter { !$0.value.isIdle }
    }
  }

  private let rules: OriginRules
  private let state = Mutex(State())
  private let onRoom: @Sendable () -> Void
  private let clock: @Sendable () -> Instant

  /// - Parameter onRoom: called when a transfer may begin that could not before, unless only time brought that.
  init(
    _ rules: OriginRules, clock: @escaping @Sendable () -> Instant = { .now },
    onRoom: @escaping @Sendable () -> Void
  ) {
    self.rules = rules
    self.clock = clock
    self.onRoom = onRoom
  }

  // MARK: For who hands out jobs

  /// The clock's time.
  var now: Instant { clock() }

  /// Room by origin, for jobs that are about to be taken.
  /// - Parameter isSpare: whether workers would else be idle.
  func room(at moment: Instant, isSpare: Bool) -> OriginRoom {
    state.withLock { state in
      state.tidy(at: moment, rules)
      var room = OriginRoom(usual: OriginState().room(at: moment, rules, isSpare: isSpare))
      for (origin, known) in state.origins {
        room.exceptions[origin] = known.room(at: moment, rules, isSpare: isSpare)
      }
      return room
    }
  }

  /// Whether idle workers could do something for an origin that has no room while they are wanted elsewhere.
  func hasSpareRoom(at moment: Instant) -> Bool {
    state.withLock { state in
      state.origins.values.contains { origin in
        origin.room(at: moment, rules, isSpare: false) == 0
          && origin.room(at: moment, rules, isSpare: true) > 0
      }
    }
  }

  /// When, after the moment, the next pause or rate lets something begin: already past where that was since.
  func nextChange(after moment: Instant) -> Instant? {
    state.withLock { state in
      state.origins.values.compactMap { $0.nextChange(at: moment, rules) }.min()
    }
  }

  // MARK: For who asks why a job waits

  /// Why no job for the origin is claimed, and for how long if time decides; nil where one may be.
  func hold(on origin: String) -> (reason: WaitingFor.Reason, time: Duration?)? {
    let now = clock()
    let hold = state.withLock { $0.origins[origin]?.hold(at: now, rules) }
    return hold.map { ($0.reason, $0.until.map { now.duration(to: $0) }) }
  }

  // MARK: For who sends requests

  /// Begins a transfer for a job that was taken by ``room(at:isSpare:)``.
  /// - Throws: `.unreachable` during a pause.
  func enter(_ origin: String) throws(FetchError) -> OriginPermit {
    let now = clock()
    let refusal = state.withLock { state -> FetchError? in
      if let refusal = Self.refusal(of: origin, in: state, at: now) { return refusal }
      state.origins[origin, default: OriginState()].begin(at: now, rules)
      return nil
    }
    if let refusal { throw refusal }
    return OriginPermit(origin, self)
  }

  /// Begins a transfer if there is room.
  func tryEnter(_ origin: String) -> OriginPermit? {
    let now = clock()
    let mayEnter = state.withLock { state in
      var known = state.origins[origin] ?? OriginState()
      known.waiting = 0  // whoever asks is one of those
      guard known.pause(at: now) == nil, known.room(at: now, rules, isSpare: true) > 0 else {
        return false
      }
      state.origins[origin, default: OriginState()].begin(at: now, rules)
      return true
    }
    return mayEnter ? OriginPermit(origin, self) : nil
  }

  /// Begins a transfer that a redirect leads to, once there is room: such waits hold a worker, and one of the places at
  /// the origin that redirects, which bounds them.
  ///
  /// - Throws: `.unreachable` during a pause, `.cancelled` when the task was cancelled.
  func admit(_ origin: String) async throws(FetchError) -> OriginPermit {
    while true {
      let now = clock()
      if let permit = tryEnter(origin) { return permit }
      let refusal = state.withLock { Self.refusal(of: origin, in: $0, at: now) }
      if let error = refusal ?? (Task.isCancelled ? .cancelled : nil) {
        onRoom()  // what it waited for is somebody else's
        throw error
      }
      await wait(for: origin)
    }
  }

  /// Waits until a transfer there ends, or for a moment, as a rate may have come to allow one.
  private func wait(for origin: String) async {
    let number = state.withLock { state in
      state.count += 1
      state.origins[origin, default: OriginState()].waiting += 1
      return state.count
    }
    await withTaskGroup { group in
      group.addTask { await self.turn(number, at: origin) }
      group.addTask { try? await Task.sleep(for: .milliseconds(100)) }
      await group.next()
      group.cancelAll()
    }
    state.withLock { $0.origins[origin]?.waiting -= 1 }
  }

  private func turn(_ number: UInt64, at origin: String) async {
    _ = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let isOver = state.withLock { state in
          if Task.isCancelled { return true }
          state.waiters[origin, default: []].append(
            Waiter(number: number, continuation: continuation))
          return false
        }
        if isOver { continuation.resume(returning: false) }
      }
    } onCancel: {
      let waiter = state.withLock { state -> Waiter? in
        guard let index = state.waiters[origin]?.firstIndex(where: { $0.number == number }) else {
          return nil
        }
        defer { if state.waiters[origin]?.isEmpty == true { state.waiters[origin] = nil } }
        return state.waiters[origin]?.remove(at: index)
      }
      waiter?.continuation.resume(returning: false)
    }
  }

  fileprivate func leave(_ origin: String, _ outcome: OriginState.Outcome) {
    let now = clock()
    let waiter = state.withLock { state -> Waiter? in
      state.origins[origin]?.end(outcome, at: now, rules)
      guard state.waiters[origin]?.isEmpty == false else { return nil }
      defer { if state.waiters[origin]?.isEmpty == true { state.waiters[origin] = nil } }
      return state.waiters[origin]?.removeFirst()
    }
    waiter?.continuation.resume(returning: true)
    onRoom()
  }

  private static func refusal(of origin: String, in state: State, at now: Instant) -> FetchError? {
    guard let known = state.origins[origin], let pause = known.pause(at: now) else { return nil }
    return .unreachable(origin: origin, failures: known.failures, seconds: pause.inSeconds)
  }

  /// Origins that are not asked at the moment because so many requests reached nobody.
  var paused: Int {
    let now = clock()
    return state.withLock { $0.origins.values.count { $0.pause(at: now) != nil } }
  }
}

/// The right to one transfer to an origin, given back when let go.
final class OriginPermit: Sendable {
  private let origin: String
  private let origins: OriginLimits
  private let outcome = Mutex(OriginState.Outcome.unknown)

  fileprivate init(_ origin: String, _ origins: OriginLimits) {
    self.origin = origin
    self.origins = origins
  }

  deinit { origins.leave(origin, outcome.withLock { $0 }) }

  /// What came of the transfer; the last note counts.
  func note(_ outcome: OriginState.Outcome) { self.outcome.withLock { $0 = outcome } }
}

/// The rights of one load: to ask its job's origin, and those that redirects lead to.
final class OriginPermits: Sendable {
  private let held: Mutex<[OriginPermit]>

  /// - Parameter first: nil where no origin is asked.
  init(_ first: OriginPermit?) { held = Mutex([first].compactMap(\.self)) }

  func add(_ permit: OriginPermit) { held.withLock { $0.append(permit) } }

  /// A response came: those before the last origin have answered by redirecting.
  func noteAnswer() { note { _ in .answered } }

  /// No response came: it is the last origin's doing.
  ///
  /// - Parameter path: asked for at the first origin. What a redirect led to isn't known here; whoever redirects must not
  ///   make one silent path of another origin look like many.
  func note(_ error: FetchError, path: String) {
    note { isFirst in OriginState.Outcome(error, path: isFirst ? path : "") }
  }

  private func note(_ outcome: (_ isFirst: Bool) -> OriginState.Outcome) {
    held.withLock { held in
      for permit in held.dropLast() { permit.note(.answered) }
      held.last?.note(outcome(held.count == 1))
    }
  }

  /// The transfer is over.
  func release() {
    let permits = held.withLock { held in
      defer { held = [] }
      return held
    }
    _ = consume permits  // their ends take another lock
  }
}

extension OriginState.Outcome {
  /// What a fetch that failed before its response came says of the origin.
  ///
  /// A job's own timeout says nothing: else a job in a hurry could close an origin to all others.
  ///
  /// - Parameter path: asked for.
  init(_ error: FetchError, path: String) {
    switch error {
    case .dnsFailure, .connectFailure: self = .unreached
    case .stalled, .noResponse: self = .silent(path: path.hashValue)
    case .tlsFailure, .originStatus, .tooManyRedirects, .badRedirect, .noData, .tooLarge,
      .truncated, .unsupportedCoding, .brokenCoding:
      self = .answered
    case .blocked, .unreachable, .timeout, .cancelled: self = .unknown
    }
  }
}
