internal import DequeModule
internal import Jobs
internal import Synchronization
internal import Waiting

/// Protects origins from us, and jobs from slow origins: who may send a request where, and when.
final class OriginLimits: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// A load that waits until it may begin a transfer.
  private struct Waiter {
    let number: UInt64
    /// Told when it is worth looking again.
    var turn: OneShot<Void>
  }

  private struct State {
    var origins: [String: OriginState] = [:]
    /// In the order in which they came: each keeps its place until it begins, or gives up.
    private var lines: [String: Deque<Waiter>] = [:]
    private var count: UInt64 = 0

    mutating func tidy(at now: Instant, _ rules: OriginRules) {
      origins = origins.filter { !$0.value.isForgettable(at: now, rules) }
      guard origins.count > rules.maxRemembered else { return }
      origins = origins.filter { !$0.value.isIdle || $0.value.pause(at: now) != nil }
      guard origins.count > rules.maxRemembered else { return }
      origins = origins.filter { !$0.value.isIdle }
    }

    /// Begins a transfer if there is room.
    mutating func tryBegin(
      _ origin: String, for owner: Owner?, at now: Instant, _ rules: OriginRules
    ) -> Bool {
      begin(origin, as: origins[origin] ?? OriginState(), for: owner, at: now, rules)
    }

    /// The same for one that waits, or would: such go in line, and before what is in the queue.
    /// - Returns: nil where it can't begin; else whether it has waited.
    mutating func tryBegin(
      _ origin: String, _ number: UInt64, for owner: Owner?, at now: Instant, _ rules: OriginRules
    ) -> Bool? {
      let known = (origins[origin] ?? OriginState()).forThoseLed
      guard lines[origin]?.first.map({ $0.number == number }) ?? true,
        begin(origin, as: known, for: owner, at: now, rules)
      else { return nil }
      return leave(origin, number)
    }

    private mutating func begin(
      _ origin: String, as known: OriginState, for owner: Owner?, at now: Instant,
      _ rules: OriginRules
    ) -> Bool {
      guard known.pause(at: now) == nil, known.refusal(of: owner, at: now, rules) == nil,
        known.room(at: now, rules, isSpare: true) > 0
      else { return false }
      origins[origin, default: OriginState()].begin(by: owner, at: now, rules)
      return true
    }

    /// A name for the next that may have to wait.
    mutating func number() -> UInt64 {
      count += 1
      return count
    }

    /// Waits in line, for another turn if it does already.
    /// - Returns: whether it is the first.
    mutating func wait(_ origin: String, _ number: UInt64, for turn: OneShot<Void>) -> Bool {
      if let place = lines[origin]?.firstIndex(where: { $0.number == number }) {
        lines[origin]?[place].turn = turn
        return place == 0
      }
      lines[origin, default: []].append(Waiter(number: number, turn: turn))
      origins[origin, default: OriginState()].waiting += 1
      return lines[origin]?.count == 1
    }

    /// - Returns: whether it was in line.
    mutating func leave(_ origin: String, _ number: UInt64) -> Bool {
      guard let place = lines[origin]?.firstIndex(where: { $0.number == number })
      else { return false }
      lines[origin]?.remove(at: place)
      if lines[origin]?.isEmpty == true { lines[origin] = nil }
      origins[origin]?.waiting -= 1
      return true
    }

    /// What the first in line waits for.
    func turn(at origin: String) -> OneShot<Void>? { lines[origin]?.first?.turn }
  }

  /// What becomes of one who wants to begin a transfer.
  private enum Admission {
    case begun(hasWaited: Bool)
    /// Until it is the first and a transfer ends, or a rate may have come to allow one.
    case waits(Duration?)
  }

  private let rules: OriginRules
  private let state = Mutex(State())
  private let onRoom: @Sendable () -> Void
  private let onPause: @Sendable (String, Duration) -> Void
  private let clock: @Sendable () -> Instant

  /// - Parameters:
  ///   - onPause: called when an origin turns out to be out of reach, for more than one owner.
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
  func enter(_ origin: String, for owner: Owner? = nil) throws(FetchError) -> OriginPermit? {
    let now = clock()
    let (hasBegun, refusal) = state.withLock { state -> (Bool, FetchError?) in
      state.origins[origin]?.use(by: owner, at: now, rules)
      if let refusal = self.refusal(of: origin, to: owner, in: state, at: now) {
        return (false, refusal)
      }
      return (state.tryBegin(origin, for: owner, at: now, rules), nil)
    }
    if let refusal { throw refusal }
    return hasBegun ? OriginPermit(origin, owner, self) : nil
  }

  /// An owner has jobs for these origins: if only another owner found one of them silent, that is no reason to hold them.
  func want(_ origins: Set<String>, by owner: Owner) {
    let now = clock()
    let opened = state.withLock { state in
      origins.filter { origin in
        guard let before = state.origins[origin]?.pause(at: now) else { return false }
        state.origins[origin]?.use(by: owner, at: now, rules)
        return state.origins[origin]?.pause(at: now) != before
      }
    }
    for origin in opened { passOn(origin) }
  }

  /// Begins a transfer that a redirect leads to, or one whose room went to another, once there is room: such waits hold a
  /// worker, which bounds them.
  ///
  /// - Parameter timeout: for the wait; nil: that is for the task's owner to bound.
  /// - Throws: `.unreachable` during a pause, `.cancelled` when the task was cancelled, `.timeout`.
  func admit(
    _ origin: String, for owner: Owner? = nil, within timeout: Duration? = nil
  ) async throws(FetchError) -> OriginPermit {
    let (me, turn) = (state.withLock { $0.number() }, OneShot<Void>())
    guard case .waits(let time) = try enter(origin, me, for: owner, orWaitFor: turn)
    else { return OriginPermit(origin, owner, self) }
    return try await wait(at: origin, as: me, owner, for: turn, time, within: timeout)
  }

  /// Not on the caller's lane: behind more urgent work there, the first would keep the others from what is free.
  @concurrent
  private func wait(
    at origin: String, as me: UInt64, _ owner: Owner?, for turn: OneShot<Void>,
    _ time: Duration?, within timeout: Duration?
  ) async throws(FetchError) -> OriginPermit {
    let deadline = timeout.map { ContinuousClock.now + $0 }
    var (turn, time) = (turn, time)
    while true {
      let end = [time.map { .now + $0 }, deadline].compactMap(\.self).min()
      if let end { _ = await turn.value(before: end) } else { _ = await turn.value() }
      if let timeout, let deadline, deadline <= .now {
        giveUp(origin, me)
        throw .timeout(seconds: timeout.inSeconds)
      }
      turn = OneShot<Void>()
      guard case .waits(let more) = try enter(origin, me, for: owner, orWaitFor: turn)
      else { return OriginPermit(origin, owner, self) }
      time = more
    }
  }

  private func enter(
    _ origin: String, _ me: UInt64, for owner: Owner?, orWaitFor turn: OneShot<Void>
  ) throws(FetchError) -> Admission {
    let now = clock()
    let result = state.withLock { state -> Result<Admission, FetchError> in
      if Task.isCancelled { return .failure(.cancelled) }
      if let hasWaited = state.tryBegin(origin, me, for: owner, at: now, rules) {
        return .success(.begun(hasWaited: hasWaited))
      }
      if let refusal = self.refusal(of: origin, to: owner, in: state, at: now) {
        return .failure(refusal)
      }
      // The others are told when they are the first: they need no clock.
      guard state.wait(origin, me, for: turn) else { return .success(.waits(nil)) }
      let change = state.origins[origin]?.nextChange(at: now, rules)
      return .success(.waits(change.map { max(.milliseconds(1), now.duration(to: $0)) }))
    }
    let admission: Admission
    do { admission = try result.get() } catch {
      giveUp(origin, me)
      throw error
    }
    // Somebody else is the first now; and with a rate the queue knows again when its next one is.
    if case .begun(hasWaited: true) = admission { passOn(origin) }
    return admission
  }

  private func giveUp(_ origin: String, _ me: UInt64) {
    _ = state.withLock { $0.leave(origin, me) }
    passOn(origin)
  }

  fileprivate func leave(_ origin: String, _ owner: Owner?, _ outcome: OriginState.Outcome) {
    let now = clock()
    let pause = state.withLock { state -> Duration? in
      let before = state.origins[origin]?.pause(at: now)
      state.origins[origin]?.end(outcome, by: owner, at: now, rules)
      // Other owners may use it elsewhere.
      guard before == nil, state.origins[origin]?.isSilentToOneOwner == false else { return nil }
      return state.origins[origin]?.pause(at: now)
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
    onRoom()  // for queued jobs alone: to those that wait here the place was free all along
  }

  /// Tells those who may begin a transfer there now.
  private func passOn(_ origin: String) {
    state.withLock { $0.turn(at: origin) }?.fulfil()
    onRoom()
  }

  private func refusal(
    of origin: String, to owner: Owner?, in state: State, at now: Instant
  ) -> FetchError? {
    guard let known = state.origins[origin] else { return nil }
    let all = known.pause(at: now).map { (failures: known.failures, time: $0) }
    return (all ?? known.refusal(of: owner, at: now, rules)).map {
      .unreachable(origin: origin, failures: $0.failures, seconds: $0.time.inSeconds)
    }
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
  private let owner: Owner?
  private let origins: OriginLimits
  private let use = Mutex(Use.transfer(.unknown))

  fileprivate init(_ origin: String, _ owner: Owner?, _ origins: OriginLimits) {
    (self.origin, self.owner, self.origins) = (origin, owner, origins)
  }

  deinit {
    switch use.withLock({ $0 }) {
    case .transfer(let outcome): origins.leave(origin, owner, outcome)
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
      .headerTooLarge,
      .truncated, .unsupportedCoding, .brokenCoding:
      self = .answered
    case .blocked, .badHost, .unreachable, .timeout, .cancelled: self = .unknown
    }
  }
}
