internal import DequeModule
internal import Jobs
internal import Synchronization
internal import Waiting

/// Protects origins from us, and jobs from slow origins: who may send a request where, and when.
final class OriginLimits: Sendable {
  typealias Instant = ContinuousClock.Instant

  private struct State {
    var origins: [String: OriginState] = [:]
    /// Loads that wait for a transfer's end, in the order in which they came.
    var waiters: [String: Deque<OneShot<Void>>] = [:]

    mutating func tidy(at now: Instant, _ rules: OriginRules) {
      origins = origins.filter { !$0.value.isForgettable(at: now, rules) }
      guard origins.count > rules.maxRemembered else { return }
      origins = origins.filter { !$0.value.isIdle || $0.value.pause(at: now) != nil }
      guard origins.count > rules.maxRemembered else { return }
      origins = origins.filter { !$0.value.isIdle }
    }

    /// Begins a transfer if there is room.
    /// - Parameter isWaiting: whether who asks is one of those that wait, which go first.
    mutating func tryBegin(
      _ origin: String, isWaiting: Bool = false, at now: Instant, _ rules: OriginRules
    ) -> Bool {
      guard hasRoom(origin, isWaiting: isWaiting, at: now, rules) else { return false }
      origins[origin, default: OriginState()].begin(at: now, rules)
      return true
    }

    func hasRoom(
      _ origin: String, isWaiting: Bool = true, at now: Instant, _ rules: OriginRules
    ) -> Bool {
      let state = origins[origin] ?? OriginState()
      let known = isWaiting ? state.forThoseLed : state
      return known.pause(at: now) == nil && known.room(at: now, rules, isSpare: true) > 0
    }

    mutating func nextWaiter(at origin: String) -> OneShot<Void>? {
      let waiter = waiters[origin]?.popFirst()
      if waiters[origin]?.isEmpty == true { waiters[origin] = nil }
      return waiter
    }
  }

  /// What becomes of one who wants to begin a transfer.
  private enum Admission {
    /// There is room for the next one that waits, too.
    case begun(next: OneShot<Void>?)
    case refused(FetchError)
    /// Until a transfer ends, or a rate may have come to allow one.
    case waits(Duration?)
  }

  private let rules: OriginRules
  private let state = Mutex(State())
  private let onRoom: @Sendable () -> Void
  private let onPause: @Sendable (String, Duration) -> Void
  private let clock: @Sendable () -> Instant

  /// - Parameters:
  ///   - onPause: called when an origin turns out to be out of reach.
  ///   - onRoom: called when a transfer may begin that could not before, unless only time brought that.
  init(
    _ rules: OriginRules, clock: @escaping @Sendable () -> Instant = { .now },
    onPause: @escaping @Sendable (String, Duration) -> Void = { _, _ in },
    onRoom: @escaping @Sendable () -> Void
  ) {
    self.rules = rules
    self.clock = clock
    (self.onPause, self.onRoom) = (onPause, onRoom)
  }

  // MARK: For who hands out jobs

  /// The clock's time.
  var now: Instant { clock() }

  /// Room by origin, for jobs that are about to be taken.
  /// - Parameters:
  ///   - isSpare: whether workers would else be idle.
  ///   - isShared: whether other instances ask the same origins.
  func room(at moment: Instant, isSpare: Bool, isShared: Bool = false) -> OriginRoom {
    state.withLock { state in
      state.tidy(at: moment, rules)
      var room = OriginRoom(usual: OriginState().room(at: moment, rules, isSpare: isSpare))
      for (origin, known) in state.origins {
        room.exceptions[origin] = known.room(at: moment, rules, isSpare: isSpare)
      }
      guard isShared else { return room }
      room.overall = OriginRoom.Overall(
        transfers: rules.maxTransfers, requestsPerSecond: rules.requestsPerSecond,
        own: state.origins.mapValues { $0.running + $0.led }.filter { $0.value > 0 })
      return room
    }
  }

  /// After so long it is worth asking whether others have left some room.
  var patience: Duration {
    let longest = Duration.milliseconds(500)
    guard rules.requestsPerSecond > 0 else { return longest }
    return min(longest, max(.milliseconds(10), .seconds(1 / rules.requestsPerSecond)))
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

  /// Begins a transfer for a job that was taken by ``room(at:isSpare:isShared:)``.
  ///
  /// - Returns: nil where the room has gone to others since: the store was asked meanwhile. ``admit(_:)`` waits for more.
  /// - Throws: `.unreachable` during a pause.
  func enter(_ origin: String) throws(FetchError) -> OriginPermit? {
    let now = clock()
    let (hasBegun, refusal) = state.withLock { state -> (Bool, FetchError?) in
      if let refusal = Self.refusal(of: origin, in: state, at: now) { return (false, refusal) }
      return (state.tryBegin(origin, at: now, rules), nil)
    }
    if let refusal { throw refusal }
    return hasBegun ? OriginPermit(origin, self) : nil
  }

  /// Begins a transfer that a redirect leads to, or one whose room went to another, once there is room: such waits hold a
  /// worker, which bounds them.
  ///
  /// - Parameter timeout: for the wait; nil: that is for the task's owner to bound.
  /// - Throws: `.unreachable` during a pause, `.cancelled` when the task was cancelled, `.timeout`.
  func admit(
    _ origin: String, within timeout: Duration? = nil
  ) async throws(FetchError) -> OriginPermit {
    let deadline = timeout.map { ContinuousClock.now + $0 }
    while true {
      let turn = OneShot<Void>()
      switch enter(origin, orWaitFor: turn) {
      case .begun(let next):
        next?.fulfil()
        return OriginPermit(origin, self)
      case .refused(let error):
        passOn(origin)  // what it waited for is somebody else's
        throw error
      case .waits(let time):
        let end = [time.map { .now + $0 }, deadline].compactMap(\.self).min()
        if let end { _ = await turn.value(before: end) } else { _ = await turn.value() }
      }
      leave(turn, at: origin)
      if let timeout, let deadline, deadline <= .now {
        passOn(origin)
        throw .timeout(seconds: timeout.inSeconds)
      }
    }
  }

  private func enter(_ origin: String, orWaitFor turn: OneShot<Void>) -> Admission {
    let now = clock()
    return state.withLock { state in
      if Task.isCancelled { return .refused(.cancelled) }
      if state.tryBegin(origin, isWaiting: true, at: now, rules) {
        return .begun(
          next: state.hasRoom(origin, at: now, rules) ? state.nextWaiter(at: origin) : nil)
      }
      if let refusal = Self.refusal(of: origin, in: state, at: now) { return .refused(refusal) }
      state.waiters[origin, default: []].append(turn)
      state.origins[origin, default: OriginState()].waiting += 1
      let change = state.origins[origin]?.nextChange(at: now, rules)
      return .waits(change.map { max(.milliseconds(1), now.duration(to: $0)) })
    }
  }

  private func leave(_ turn: OneShot<Void>, at origin: String) {
    state.withLock { state in
      state.origins[origin]?.waiting -= 1
      state.waiters[origin]?.removeAll { $0 === turn }
      if state.waiters[origin]?.isEmpty == true { state.waiters[origin] = nil }
    }
  }

  fileprivate func leave(_ origin: String, _ outcome: OriginState.Outcome) {
    let now = clock()
    let pause = state.withLock { state -> Duration? in
      let before = state.origins[origin]?.pause(at: now)
      state.origins[origin]?.end(outcome, at: now, rules)
      return before == nil ? state.origins[origin]?.pause(at: now) : nil
    }
    if let pause { onPause(origin, pause) }
    passOn(origin)
  }

  fileprivate func lead(_ origin: String) {
    let now = clock()
    state.withLock { $0.origins[origin]?.lead(at: now, rules) }
    passOn(origin)
  }

  fileprivate func endLed(_ origin: String) {
    state.withLock { $0.origins[origin]?.endLed() }
    // For queued jobs alone: to those that wait here the place was free all along, and the first of them, woken in
    // vain, would go behind the others.
    onRoom()
  }

  /// Tells those who may begin a transfer there now.
  private func passOn(_ origin: String) {
    state.withLock { $0.nextWaiter(at: origin) }?.fulfil()
    onRoom()
  }

  private static func refusal(of origin: String, in state: State, at now: Instant) -> FetchError? {
    guard let known = state.origins[origin], let pause = known.pause(at: now) else { return nil }
    return .unreachable(origin: origin, failures: known.failures, seconds: pause.inSeconds)
  }

  /// Another instance found an origin out of reach: it is not asked here either.
  func pause(_ origin: String, for time: Duration) {
    let now = clock()
    state.withLock { state in
      state.tidy(at: now, rules)
      state.origins[origin, default: OriginState()].pause(until: now + time, rules)
    }
    // What waits for it is refused.
    passOn(origin)
  }

  /// Origins that are not asked at the moment because so many requests reached nobody.
  var paused: Int {
    let now = clock()
    return state.withLock { $0.origins.values.count { $0.pause(at: now) != nil } }
  }
}

/// The right to one transfer to an origin, given back when let go.
final class OriginPermit: Sendable {
  private enum Use {
    /// What came of the transfer, as far as is known.
    case transfer(OriginState.Outcome)
    case led
  }

  fileprivate let origin: String
  private let origins: OriginLimits
  private let use = Mutex(Use.transfer(.unknown))

  fileprivate init(_ origin: String, _ origins: OriginLimits) {
    self.origin = origin
    self.origins = origins
  }

  deinit {
    switch use.withLock({ $0 }) {
    case .transfer(let outcome): origins.leave(origin, outcome)
    case .led: origins.endLed(origin)
    }
  }

  /// What came of the transfer; the last note counts.
  func note(_ outcome: OriginState.Outcome) {
    use.withLock { if case .transfer = $0 { $0 = .transfer(outcome) } }
  }

  /// The transfer ended with a redirect to another origin: others that were led here may have its place.
  func lead() {
    let isFirst = use.withLock { use in
      guard case .transfer = use else { return false }
      use = .led
      return true
    }
    if isFirst { origins.lead(origin) }
  }
}

/// The rights of one load: to ask its job's origin, and those that redirects lead to.
final class OriginPermits: Sendable {
  private let held: Mutex<[OriginPermit]>

  /// - Parameter first: nil where no origin is asked, or its room has yet to come.
  init(_ first: OriginPermit?) { held = Mutex([first].compactMap(\.self)) }

  /// Whether no origin may be asked yet.
  var isEmpty: Bool { held.withLock { $0.isEmpty } }

  /// Whether no redirect led to another origin.
  var areOfFirst: Bool { held.withLock { $0.count <= 1 } }

  /// A right to ask an origin to which a redirect leads back takes the earlier one's place there: there is one worker.
  func add(_ permit: OriginPermit) {
    let earlier = held.withLock { held in
      let index = held.firstIndex { $0.origin == permit.origin }
      defer { held.append(permit) }
      return index.map { held.remove(at: $0) }
    }
    _ = consume earlier  // its end takes another lock
  }

  /// The origin that was asked last redirects to another one.
  func lead() { last?.lead() }

  /// A response came.
  func noteAnswer() { last?.note(.answered) }

  /// No response came: it is the last origin's doing.
  ///
  /// - Parameter path: asked for at the first origin. What a redirect led to isn't known here; whoever redirects must not
  ///   make one silent path of another origin look like many.
  func note(_ error: FetchError, path: String) {
    last?.note(OriginState.Outcome(error, path: areOfFirst ? path : ""))
  }

  private var last: OriginPermit? { held.withLock { $0.last } }

  /// The transfer is over.
  func release() {
    let permits = held.withLock { held in
      defer { held = [] }
      return held
    }
    _ = consume permits  // their ends take another lock
  }

  /// The first origin is about to be asked again, by its turn where redirects had led elsewhere.
  func releaseRedirects() { if !areOfFirst { release() } }
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
