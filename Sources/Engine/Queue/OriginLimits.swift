internal import DequeModule
internal import Jobs
internal import Synchronization
internal import Waiting

/// Limits the requests to each origin, and keeps slow origins from occupying the workers: decides which load may send a
/// request, and when.
final class OriginLimits: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// A load that waits until it may begin a transfer.
  private struct Waiter {
    let number: UInt64
    /// Fulfilled when the load should try again.
    var signal: OneShot<Void>
  }

  private struct State {
    var origins: [String: OriginState] = [:]
    /// Waiting loads by origin, in order of arrival. A load stays in line until it begins or gives up.
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

    /// Begins a transfer for a load that waits or would have to wait. Such loads are served in order, before jobs in
    /// the queue.
    /// - Returns: whether the load had waited; nil if it can't begin yet.
    mutating func tryBegin(
      _ origin: String, _ number: UInt64, for owner: Owner?, at now: Instant, _ rules: OriginRules
    ) -> Bool? {
      let known = (origins[origin] ?? OriginState()).forRedirectedLoads
      guard lines[origin]?.first.map({ $0.number == number }) ?? true,
        begin(origin, as: known, for: owner, at: now, rules)
      else { return nil }
      return removeWaiter(origin, number)
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

    /// Returns a number that identifies a load that may have to wait.
    mutating func number() -> UInt64 {
      count += 1
      return count
    }

    /// Adds the load to the line, or replaces its signal if it is already there.
    /// - Returns: whether it is the first in line.
    mutating func wait(_ origin: String, _ number: UInt64, for turn: OneShot<Void>) -> Bool {
      if let place = lines[origin]?.firstIndex(where: { $0.number == number }) {
        lines[origin]?[place].signal = turn
        return place == 0
      }
      lines[origin, default: []].append(Waiter(number: number, signal: turn))
      origins[origin, default: OriginState()].waiting += 1
      return lines[origin]?.count == 1
    }

    /// - Returns: whether the load was in line.
    mutating func removeWaiter(_ origin: String, _ number: UInt64) -> Bool {
      guard let place = lines[origin]?.firstIndex(where: { $0.number == number })
      else { return false }
      lines[origin]?.remove(at: place)
      if lines[origin]?.isEmpty == true { lines[origin] = nil }
      origins[origin]?.waiting -= 1
      return true
    }

    /// The signal of the first load in line.
    func firstSignal(at origin: String) -> OneShot<Void>? { lines[origin]?.first?.signal }
  }

  /// The result of an attempt to begin a transfer.
  private enum Admission {
    case begun(hasWaited: Bool)
    /// Wait until the load is first in line and a transfer ends, or until the given time, when the rate may allow it.
    case waits(Duration?)
  }

  private let rules: OriginRules
  private let state = Mutex(State())
  private let onRoom: @Sendable () -> Void
  private let onPause: @Sendable (String, Duration) -> Void
  private let clock: @Sendable () -> Instant

  /// - Parameters:
  ///   - onPause: called when an origin is paused for all owners.
  ///   - onRoom: called when a transfer can begin, unless only time made that possible.
  init(
    _ rules: OriginRules, clock: @escaping @Sendable () -> Instant = { .now },
    onPause: @escaping @Sendable (String, Duration) -> Void = { _, _ in },
    onRoom: @escaping @Sendable () -> Void
  ) {
    self.rules = rules
    self.clock = clock
    (self.onPause, self.onRoom) = (onPause, onRoom)
  }

  // MARK: For the dispatcher

  /// The current time.
  var now: Instant { clock() }

  /// Returns how many jobs of each origin may be claimed.
  /// - Parameters:
  ///   - isSpare: whether the workers would be idle otherwise.
  ///   - isShared: whether other instances send requests to the same origins.
  func room(at moment: Instant, isSpare: Bool, isShared: Bool = false) -> OriginCapacity {
    state.withLock { state in
      state.tidy(at: moment, rules)
      var room = OriginCapacity(usual: OriginState().room(at: moment, rules, isSpare: isSpare))
      for (origin, known) in state.origins {
        room.exceptions[origin] = known.room(at: moment, rules, isSpare: isSpare)
      }
      guard isShared else { return room }
      room.overall = OriginCapacity.Overall(
        transfers: rules.maxTransfers, requestsPerSecond: rules.requestsPerSecond,
        own: state.origins.mapValues { $0.running + $0.redirected }.filter { $0.value > 0 })
      return room
    }
  }

  /// Time after which other instances may have released room at an origin.
  var recheckInterval: Duration {
    let longest = Duration.milliseconds(500)
    guard rules.requestsPerSecond > 0 else { return longest }
    return min(longest, max(.milliseconds(10), .seconds(1 / rules.requestsPerSecond)))
  }

  /// Whether idle workers could try an origin that has no room as long as other jobs need the workers.
  func hasSpareRoom(at moment: Instant) -> Bool {
    state.withLock { state in
      state.origins.values.contains { origin in
        origin.room(at: moment, rules, isSpare: false) == 0
          && origin.room(at: moment, rules, isSpare: true) > 0
      }
    }
  }

  /// Returns when a pause or a rate next allows a transfer, as seen at `moment`. The result is in the past if that time
  /// has passed since.
  func nextChange(after moment: Instant) -> Instant? {
    state.withLock { state in
      state.origins.values.compactMap { $0.nextChange(at: moment, rules) }.min()
    }
  }

  // MARK: For displaying why a job waits

  /// Returns why no job of the origin is claimed, and for how long if only time matters; nil if one may be claimed.
  func waitReason(for origin: String) -> (reason: WaitingFor.Reason, time: Duration?)? {
    let now = clock()
    let hold = state.withLock { $0.origins[origin]?.waitReason(at: now, rules) }
    return hold.map { ($0.reason, $0.until.map { now.duration(to: $0) }) }
  }

  // MARK: For sending requests

  /// Begins a transfer for a job that was claimed with ``room(at:isSpare:isShared:)``.
  ///
  /// - Returns: nil if other loads have used the room since then. Call ``admit(_:for:within:)`` to wait for more.
  /// - Throws: `.unreachable` while the origin is paused.
  func enter(_ origin: String, for owner: Owner? = nil) throws(FetchError) -> OriginPermit? {
    let now = clock()
    let (hasBegun, refusal) = state.withLock { state -> (Bool, FetchError?) in
      state.origins[origin]?.recordUse(by: owner, at: now, rules)
      if let refusal = self.refusal(of: origin, to: owner, in: state, at: now) {
        return (false, refusal)
      }
      return (state.tryBegin(origin, for: owner, at: now, rules), nil)
    }
    if let refusal { throw refusal }
    return hasBegun ? OriginPermit(origin, owner, self) : nil
  }

  /// Records that an owner has jobs for these origins. If only another owner found an origin silent, the pause does not
  /// apply to this owner's jobs.
  func recordDemand(for origins: Set<String>, by owner: Owner) {
    let now = clock()
    let opened = state.withLock { state in
      origins.filter { origin in
        guard let before = state.origins[origin]?.pause(at: now) else { return false }
        state.origins[origin]?.recordUse(by: owner, at: now, rules)
        return state.origins[origin]?.pause(at: now) != before
      }
    }
    for origin in opened { signalRoom(at: origin) }
  }

  /// Begins a transfer once there is room, for a redirect or for a load whose room was used by another one. Each
  /// waiting load occupies a worker, so the number of workers limits how many wait.
  ///
  /// - Parameter timeout: for the wait; nil: the caller limits it.
  /// - Throws: `.unreachable` while the origin is paused, `.cancelled` if the task was cancelled, `.timeout`.
  func admit(
    _ origin: String, for owner: Owner? = nil, within timeout: Duration? = nil
  ) async throws(FetchError) -> OriginPermit {
    let (me, turn) = (state.withLock { $0.number() }, OneShot<Void>())
    guard case .waits(let time) = try enter(origin, me, for: owner, orWaitFor: turn)
    else { return OriginPermit(origin, owner, self) }
    return try await wait(at: origin, as: me, owner, for: turn, time, within: timeout)
  }

  /// Runs concurrently and not on the caller's lane. A lane may be busy with more urgent work, and the first load in
  /// line would then delay the others.
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
      // Only the first load needs a timer: the others are signaled when they become the first.
      guard state.wait(origin, me, for: turn) else { return .success(.waits(nil)) }
      let change = state.origins[origin]?.nextChange(at: now, rules)
      return .success(.waits(change.map { max(.milliseconds(1), now.duration(to: $0)) }))
    }
    let admission: Admission
    do { admission = try result.get() } catch {
      giveUp(origin, me)
      throw error
    }
    // Another load is the first in line now, and the dispatcher has to recompute when the rate allows the next request.
    if case .begun(hasWaited: true) = admission { signalRoom(at: origin) }
    return admission
  }

  private func giveUp(_ origin: String, _ me: UInt64) {
    _ = state.withLock { $0.removeWaiter(origin, me) }
    signalRoom(at: origin)
  }

  fileprivate func release(_ origin: String, _ owner: Owner?, _ outcome: OriginState.Outcome) {
    let now = clock()
    let pause = state.withLock { state -> Duration? in
      let before = state.origins[origin]?.pause(at: now)
      state.origins[origin]?.finish(outcome, by: owner, at: now, rules)
      // Other instances may reach the origin for other owners, so only a pause for all owners is published.
      guard before == nil, state.origins[origin]?.isSilentToOneOwner == false else { return nil }
      return state.origins[origin]?.pause(at: now)
    }
    if let pause { onPause(origin, pause) }
    signalRoom(at: origin)
  }

  fileprivate func recordRedirect(_ origin: String) {
    let now = clock()
    state.withLock { $0.origins[origin]?.recordRedirect(at: now, rules) }
    signalRoom(at: origin)
  }

  fileprivate func endRedirected(_ origin: String) {
    state.withLock { $0.origins[origin]?.endRedirected() }
    onRoom()  // for queued jobs only: a waiting load could already use this room
  }

  /// Signals the first load in line and the dispatcher that a transfer may begin.
  private func signalRoom(at origin: String) {
    state.withLock { $0.firstSignal(at: origin) }?.fulfil()
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

  /// Pauses an origin that another instance found unreachable.
  func pause(_ origin: String, for time: Duration) {
    let now = clock()
    state.withLock { state in
      state.tidy(at: now, rules)
      state.origins[origin, default: OriginState()].pause(until: now + time, rules)
    }
    // The loads that wait for it fail now.
    signalRoom(at: origin)
  }

  /// Number of origins that are paused.
  var paused: Int {
    let now = clock()
    return state.withLock { $0.origins.values.count { $0.pause(at: now) != nil } }
  }
}

/// The right to one transfer to an origin, released when the object is destroyed.
final class OriginPermit: Sendable {
  private enum Use {
    /// The result of the transfer, as far as it is known.
    case transfer(OriginState.Outcome)
    case redirected
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
    case .transfer(let outcome): origins.release(origin, owner, outcome)
    case .redirected: origins.endRedirected(origin)
    }
  }

  /// Records the result of the transfer; the last call counts.
  func record(_ outcome: OriginState.Outcome) {
    use.withLock { if case .transfer = $0 { $0 = .transfer(outcome) } }
  }

  /// Records that the transfer ended with a redirect to another origin, so that another redirected load can use its
  /// slot.
  func recordRedirect() {
    let isFirst = use.withLock { use in
      guard case .transfer = use else { return false }
      use = .redirected
      return true
    }
    if isFirst { origins.recordRedirect(origin) }
  }
}

/// The permits of one load: for its job's origin and for the origins of redirects.
final class OriginPermits: Sendable {
  private let held: Mutex<[OriginPermit]>

  /// - Parameter first: nil if the load needs no origin, or still waits for room.
  init(_ first: OriginPermit?) { held = Mutex([first].compactMap(\.self)) }

  /// Whether the load has no permit yet.
  var isEmpty: Bool { held.withLock { $0.isEmpty } }

  /// Whether no redirect led to another origin.
  var hasNoRedirect: Bool { held.withLock { $0.count <= 1 } }

  /// Adds a permit. If a redirect leads back to an earlier origin, the new permit replaces the earlier one, because the
  /// load occupies one worker only.
  func add(_ permit: OriginPermit) {
    let earlier = held.withLock { held in
      let index = held.firstIndex { $0.origin == permit.origin }
      defer { held.append(permit) }
      return index.map { held.remove(at: $0) }
    }
    _ = consume earlier  // its deinit takes another lock
  }

  /// Records that the last origin redirected to another one.
  func recordRedirect() { last?.recordRedirect() }

  /// Records that a response arrived.
  func recordAnswer() { last?.record(.answered) }

  /// Records that no response arrived, which counts against the last origin.
  ///
  /// - Parameter path: the path requested at the first origin. It is ignored after a redirect: otherwise a redirecting
  ///   origin could make one silent path of another origin look like many.
  func recordFailure(_ error: FetchError, path: String) {
    last?.record(OriginState.Outcome(error, path: hasNoRedirect ? path : ""))
  }

  private var last: OriginPermit? { held.withLock { $0.last } }

  /// Releases all permits at the end of the load.
  func release() {
    let permits = held.withLock { held in
      defer { held = [] }
      return held
    }
    _ = consume permits  // their deinits take another lock
  }

  /// Releases the permits if redirects led to other origins, before the first origin is asked again.
  func releaseRedirects() { if !hasNoRedirect { release() } }
}

extension OriginState.Outcome {
  /// The outcome that a failed fetch stands for.
  ///
  /// A job's own timeout says nothing: otherwise a job with a short timeout could pause an origin for all other jobs.
  ///
  /// - Parameter path: the requested path.
  init(_ error: FetchError, path: String) {
    switch error {
    case .dnsFailure, .connectFailure: self = .unreached
    case .stalled, .noResponse: self = .silent(path: path.hashValue)
    case .blocked, .badHost, .unreachable, .timeout, .cancelled: self = .unknown
    // All other errors are found in what the origin sent.
    default: self = .answered
    }
  }
}
