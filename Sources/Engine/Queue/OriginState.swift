internal import Jobs

/// Limits for requests to origins.
struct OriginRules: Sendable {
  /// Transfers at the same time.
  var maxTransfers = 6
  /// New requests per second; 0: no limit.
  var requestsPerSecond = 0.0
  /// ``requestsPerSecond``, evenly spread.
  var rate: TokenBucket.Rate { TokenBucket.Rate(perSecond: requestsPerSecond, burst: 1) }
  /// Transfers at the same time to an origin that has not answered yet, while other jobs need the workers.
  var unprovenTransfers = 2
  /// Number of failed requests in a row that open the circuit.
  var maxFailures = 5
  /// Number of one owner's silent paths that count as failures for all owners, while other owners use the origin too.
  var maxFailuresOfOwner: Int { (maxFailures + 1) / 2 }
  /// How long the circuit is open at first. The time doubles whenever the next attempt fails too.
  var firstPause: Duration = .seconds(5)
  /// The longest time that the circuit stays open.
  var longestPause: Duration = .seconds(60)
  /// How long a failure is remembered.
  var memory: Duration = .seconds(600)
  /// Number of origins to remember. Above it idle origins are forgotten, paused ones last.
  var maxRemembered = 2_048
}

/// A circuit breaker. Pure state: the caller passes the time.
struct Circuit: Sendable {
  typealias Instant = ContinuousClock.Instant

  private(set) var failures = 0
  fileprivate(set) var isProbing = false
  private(set) var openUntil: Instant?
  private var openings = 0

  /// Returns how long the circuit stays open; nil if requests may be sent.
  func pause(at now: Instant) -> Duration? {
    guard let openUntil, openUntil > now else { return nil }
    return now.duration(to: openUntil)
  }

  /// Counts a failed request.
  /// - Returns: whether it opened the circuit.
  fileprivate mutating func fail(at now: Instant, _ rules: OriginRules) -> Bool {
    failures += 1
    // Requests that were running when the circuit opened say nothing new.
    guard failures >= rules.maxFailures, pause(at: now) == nil else { return false }
    let pause = rules.firstPause * (1 << min(openings, 10))
    openUntil = now + min(pause, rules.longestPause)
    openings += 1
    isProbing = false
    return true
  }

  /// Ends an attempt whose result says nothing about the origin.
  fileprivate mutating func endProbe(at now: Instant) {
    if let openUntil, openUntil <= now { isProbing = false }
  }

  fileprivate mutating func open(until moment: Instant, _ rules: OriginRules) {
    failures = max(failures, rules.maxFailures)
    isProbing = false
    openings = max(openings, 1)
    openUntil = max(openUntil ?? moment, moment)
  }

  /// Closes the circuit and keeps at most `most` failures.
  fileprivate mutating func close(keeping most: Int) {
    let failures = min(failures, most)
    self = Circuit()
    self.failures = failures
  }
}

/// The state of one origin: circuit breakers, request rate and running transfers. Pure state: the caller passes the
/// time.
///
/// An owner could open the circuit for all owners by requesting paths that never answer. So each owner also has a
/// circuit of its own. Only some of its silent paths count in the circuit of all owners, unless no other owner uses the
/// origin.
struct OriginState: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// The result of a request, as far as it concerns the origin.
  enum Outcome: Sendable, Equatable {
    /// The origin sent a response header, with any status.
    case answered
    /// No address was found or no connection was made.
    case unreached
    /// The origin accepted the connection but sent no response. The path may be the cause, so each path (identified by
    /// its hash) counts once.
    case silent(path: Int)
    /// The request ended before the origin could be judged.
    case unknown
  }

  private(set) var running = 0
  /// Loads that this origin redirected elsewhere and that have not ended. They run no transfer here, but each occupies
  /// a worker, so they count against the limit for claimed jobs.
  private(set) var redirected = 0
  /// Loads that wait for a transfer here. They go before claimed jobs.
  var waiting = 0
  /// The circuit of all owners.
  private var circuit = Circuit()
  /// Silent paths since the origin last answered or a circuit last opened.
  private var silent: Set<Int> = []
  /// Number of these silent paths by owner.
  private var silentOfOwner: [Owner: Int] = [:]
  /// Whether all failures since the last answer were silent paths.
  private var isOnlySilent = true
  /// Circuits of owners that found silent paths while other owners used the origin.
  private var circuits: [Owner: Circuit] = [:]
  /// The last two owners that used the origin or had jobs for it.
  private var users: [(owner: Owner, at: Instant)] = []
  private var lastFailure: Instant?
  private var isProven = false
  /// The rate of requests; nil before the first one.
  private var bucket: TokenBucket?

  /// Number of owners that can have a circuit of their own. Above it, circuits that are not open are forgotten.
  private static let maxCircuits = 64

  /// Number of owners that have a circuit of their own.
  var ownCircuits: Int { circuits.count }

  /// Failures in a row, as they count for all owners.
  var failures: Int { circuit.failures }

  /// Returns how long the origin is paused; nil if it may get requests.
  func pause(at now: Instant) -> Duration? { circuit.pause(at: now) }

  /// Returns why this owner may not use the origin although others may: the failures in a row, and the time until the
  /// next attempt.
  func refusal(
    of owner: Owner?, at now: Instant, _ rules: OriginRules
  ) -> (failures: Int, time: Duration)? {
    guard let owner, let own = circuits[owner] else { return nil }
    let time = own.pause(at: now) ?? (own.isProbing ? rules.firstPause : nil)
    return time.map { (own.failures, $0) }
  }

  /// Whether all failures were silent paths of one owner. Then the circuit of all owners is open only because of that
  /// owner.
  var isSilentToOneOwner: Bool { isOnlySilent && silentOfOwner.count == 1 }

  /// Records that an owner uses the origin or has jobs for it. Failures that only another owner caused then stop
  /// counting for all owners.
  mutating func recordUse(by owner: Owner?, at now: Instant, _ rules: OriginRules) {
    guard let owner else { return }
    users.removeAll { $0.owner == owner }
    users = users.suffix(1) + [(owner, now)]
    guard isSilentToOneOwner, let other = silentOfOwner.keys.first, other != owner,
      circuit.failures > rules.maxFailuresOfOwner
    else { return }
    if circuits[other] != nil || circuits.count < Self.maxCircuits { circuits[other] = circuit }
    circuit.close(keeping: rules.maxFailuresOfOwner)
  }

  private func isUsed(besides owner: Owner, at now: Instant, _ rules: OriginRules) -> Bool {
    users.contains { $0.owner != owner && $0.at.duration(to: now) <= rules.memory }
  }

  /// Returns how many more transfers may begin. During a pause it returns 0, or `.max` if the workers would be idle:
  /// such jobs fail at once.
  ///
  /// - Parameter isSpare: whether the workers would be idle otherwise.
  func room(at now: Instant, _ rules: OriginRules, isSpare: Bool) -> Int {
    if pause(at: now) != nil { return isSpare ? .max : 0 }
    if circuit.openUntil != nil { return circuit.isProbing ? 0 : 1 }
    let isTrusted = isProven || isSpare
    let limit = isTrusted ? rules.maxTransfers : min(rules.unprovenTransfers, rules.maxTransfers)
    let free = max(0, limit - running - redirected - waiting)
    guard rules.requestsPerSecond > 0 else { return free }
    return min(free, max(0, Int(tokens(at: now, rules)) - waiting))
  }

  /// Returns when the rate or the end of a pause next allows a transfer; nil if that does not depend on time.
  func nextChange(at now: Instant, _ rules: OriginRules) -> Instant? {
    if let end = circuit.openUntil, end > now { return end }
    guard rules.requestsPerSecond > 0 else { return nil }
    let wait = (bucket ?? TokenBucket(rules.rate, at: now)).wait(for: 1, at: now, rules.rate)
    return wait > 0 ? now + .seconds(wait) : nil
  }

  /// Records that a transfer begins.
  mutating func begin(by owner: Owner? = nil, at now: Instant, _ rules: OriginRules) {
    running += 1
    recordUse(by: owner, at: now, rules)
    if circuit.openUntil != nil { circuit.isProbing = true }
    if let owner, let own = circuits[owner], own.openUntil != nil, own.pause(at: now) == nil {
      circuits[owner]?.isProbing = true
    }
    guard rules.requestsPerSecond > 0 else { return }
    var bucket = bucket ?? TokenBucket(rules.rate, at: now)
    bucket.borrow(1, at: now, rules.rate)
    self.bucket = bucket
  }

  /// Records that a transfer ends.
  mutating func finish(
    _ outcome: Outcome, by owner: Owner? = nil, at now: Instant, _ rules: OriginRules
  ) {
    running -= 1
    switch outcome {
    case .answered: self = OriginState(answeredBy: self)
    case .unknown: endProbe(of: owner, at: now)
    case .unreached:
      isOnlySilent = false
      endProbe(of: owner, at: now)
      fail(at: now, rules)
    case .silent(let path): endSilent(path, by: owner, at: now, rules)
    }
  }

  private mutating func endSilent(
    _ path: Int, by owner: Owner?, at now: Instant, _ rules: OriginRules
  ) {
    lastFailure = now
    endProbe(of: owner, at: now)
    guard silent.insert(path).inserted else { return isProven = false }
    guard let owner else {
      isOnlySilent = false
      return fail(at: now, rules)
    }
    let isShared = isUsed(besides: owner, at: now, rules)
    if isShared { failOwn(owner, at: now, rules) }
    // An owner that is alone can open the circuit with all its failures. While other owners use the origin, only some
    // of them count.
    let count = silentOfOwner[owner] ?? 0
    guard !isShared || count < rules.maxFailuresOfOwner else { return }
    silentOfOwner[owner] = count + 1
    fail(at: now, rules)
  }

  private mutating func failOwn(_ owner: Owner, at now: Instant, _ rules: OriginRules) {
    if circuits[owner] == nil, circuits.count >= Self.maxCircuits {
      circuits = circuits.filter { $0.value.pause(at: now) != nil }
      guard circuits.count < Self.maxCircuits else { return }
    }
    if circuits[owner, default: Circuit()].fail(at: now, rules) { silent = [] }
  }

  private mutating func endProbe(of owner: Owner?, at now: Instant) {
    circuit.endProbe(at: now)
    if let owner { circuits[owner]?.endProbe(at: now) }
  }

  /// Records that a transfer ends with a redirect to another origin.
  mutating func recordRedirect(at now: Instant, _ rules: OriginRules) {
    finish(.answered, at: now, rules)
    redirected += 1
  }

  /// Records that a redirected load has ended or returned to this origin.
  mutating func endRedirected() { redirected -= 1 }

  /// The state as a redirected load sees it: without the loads that were redirected away and without those that wait.
  /// Otherwise two origins that redirect to each other would wait for each other.
  var forRedirectedLoads: OriginState {
    var state = self
    (state.redirected, state.waiting) = (0, 0)
    return state
  }

  /// Records that another instance could not reach the origin.
  mutating func pause(until moment: Instant, _ rules: OriginRules) {
    circuit.open(until: moment, rules)
    (lastFailure, isProven, isOnlySilent) = (moment, false, false)
  }

  /// Whether no load uses the origin or waits for it.
  var isIdle: Bool { running == 0 && redirected == 0 && waiting == 0 }

  /// Whether the state can be deleted: the origin is idle and has no recent failures.
  func isForgettable(at now: Instant, _ rules: OriginRules) -> Bool {
    guard isIdle, nextChange(at: now, rules) == nil else { return false }
    guard let lastFailure else { return true }
    return lastFailure.duration(to: now) > rules.memory
  }

  init() {}

  private init(answeredBy earlier: OriginState) {
    (running, redirected, waiting) = (earlier.running, earlier.redirected, earlier.waiting)
    (bucket, users) = (earlier.bucket, earlier.users)
    isProven = true
  }

  private mutating func fail(at now: Instant, _ rules: OriginRules) {
    (lastFailure, isProven) = (now, false)
    if circuit.fail(at: now, rules) { silent = [] }
  }

  private func tokens(at now: Instant, _ rules: OriginRules) -> Double {
    bucket?.tokens(at: now, rules.rate) ?? rules.rate.burst
  }
}

extension OriginState {
  /// Returns why no job of the origin is claimed, and until when if only time matters; nil if one may be claimed.
  func waitReason(at now: Instant, _ rules: OriginRules) -> (
    reason: WaitingFor.Reason, until: Instant?
  )? {
    guard room(at: now, rules, isSpare: false) <= 0 else { return nil }
    if failures >= rules.maxFailures {
      // After the pause, the first request decides whether the origin is paused again.
      return (.originPaused, pause(at: now).map { now + $0 })
    }
    var unrated = rules
    unrated.requestsPerSecond = 0
    guard room(at: now, unrated, isSpare: false) > 0 else { return (.originLimit, nil) }
    // Waiting loads go first.
    let next = nextChange(at: now, rules) ?? now
    return (.originRate, next + .seconds(Double(waiting) / rules.requestsPerSecond))
  }
}
