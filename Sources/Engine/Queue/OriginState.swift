internal import Jobs

/// How we treat origins.
struct OriginRules: Sendable {
  /// Transfers at once.
  var maxTransfers = 6
  /// New requests a second; 0 is no limit.
  var requestsPerSecond = 0.0
  /// Transfers at once to an origin that has not answered yet, while others want the workers.
  var unprovenTransfers = 2
  /// So many requests in a row that reach nobody open the circuit.
  var maxFailures = 5
  /// How many silent paths of one owner count as failures for all owners, while others use the origin, too.
  var mostOfOwner: Int { (maxFailures + 1) / 2 }
  /// How long it stays open at first; doubled each time that the request which tries again reaches nobody either.
  var firstPause: Duration = .seconds(5)
  /// The longest.
  var longestPause: Duration = .seconds(60)
  /// How long a failure is remembered.
  var memory: Duration = .seconds(600)
  /// Origins remembered: the failures of whoever makes up more than that are not worth it.
  var maxRemembered = 2_048
}

/// A circuit breaker. It looks at no clock.
struct Circuit: Sendable {
  typealias Instant = ContinuousClock.Instant

  private(set) var failures = 0
  fileprivate(set) var isProbing = false
  private(set) var openUntil: Instant?
  private var openings = 0

  /// Nil while requests may be sent; else in how long one is tried again.
  func pause(at now: Instant) -> Duration? {
    guard let openUntil, openUntil > now else { return nil }
    return now.duration(to: openUntil)
  }

  /// A request failed.
  /// - Returns: whether the circuit opened by it.
  fileprivate mutating func fail(at now: Instant, _ rules: OriginRules) -> Bool {
    failures += 1
    // Those that were under way when it opened say nothing new.
    guard failures >= rules.maxFailures, pause(at: now) == nil else { return false }
    let pause = rules.firstPause * (1 << min(openings, 10))
    openUntil = now + min(pause, rules.longestPause)
    openings += 1
    isProbing = false
    return true
  }

  /// A request ended that says nothing.
  fileprivate mutating func endProbe(at now: Instant) {
    if let openUntil, openUntil <= now { isProbing = false }
  }

  fileprivate mutating func open(until moment: Instant, _ rules: OriginRules) {
    failures = max(failures, rules.maxFailures)
    isProbing = false
    openings = max(openings, 1)
    openUntil = max(openUntil ?? moment, moment)
  }

  /// Closes it, with at most so many failures.
  fileprivate mutating func close(keeping most: Int) {
    let failures = min(failures, most)
    self = Circuit()
    self.failures = failures
  }
}

/// What is known of one origin: circuit breakers, a rate and the transfers under way. It looks at no clock.
///
/// A path that does not answer may be chosen by an owner so that the circuit opens for others. So an owner has a circuit
/// of its own, and only some of its silent paths count in the circuit of all, unless no other owner uses the origin.
struct OriginState: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// What came of a request.
  enum Outcome: Sendable, Equatable {
    /// A response's header section, whatever it said.
    case answered
    /// Nothing: no address or no connection.
    case unreached
    /// A connection, and no response on it. That may be the path's fault: each path, known by its hash, counts once.
    case silent(path: Int)
    /// It ended before anything was known of the origin.
    case unknown
  }

  private(set) var running = 0
  /// Loads that it led elsewhere, until they end or are led back: no transfer of theirs is under way here, but each
  /// holds a worker, which a job of the queue would take besides.
  private(set) var led = 0
  /// Loads that wait for a transfer here: they go first.
  var waiting = 0
  /// The circuit of all owners.
  private var circuit = Circuit()
  /// The paths that were silent since it last answered, or since a circuit last opened.
  private var silent: Set<Int> = []
  /// How many of these failures each owner caused, since it last answered.
  private var silentOfOwner: [Owner: Int] = [:]
  /// Whether all failures since it last answered were silent paths.
  private var isOnlySilent = true
  /// The circuits of owners that were silent while others used the origin.
  private var circuits: [Owner: Circuit] = [:]
  /// The last two owners that used the origin, or wanted to.
  private var users: [(owner: Owner, at: Instant)] = []
  private var lastFailure: Instant?
  private var isProven = false
  private var tokens = 1.0
  private var refilled: Instant?

  /// Owners with a circuit of their own: of more, those without a pause are forgotten.
  private static let mostCircuits = 64

  /// How many owners have a circuit of their own.
  var ownCircuits: Int { circuits.count }

  /// The failures in a row, as they count for all owners.
  var failures: Int { circuit.failures }

  /// Nil while it may be asked; else in how long it is tried again.
  func pause(at now: Instant) -> Duration? { circuit.pause(at: now) }

  /// Why an owner may not ask it though others may: the failures in a row, and in how long it may.
  func refusal(
    of owner: Owner?, at now: Instant, _ rules: OriginRules
  ) -> (failures: Int, time: Duration)? {
    guard let owner, let own = circuits[owner] else { return nil }
    let time = own.pause(at: now) ?? (own.isProbing ? rules.firstPause : nil)
    return time.map { (own.failures, $0) }
  }

  /// Whether all failures were silent paths of one owner: then the circuit of all opens for that owner's sake alone.
  var isSilentToOneOwner: Bool { isOnlySilent && silentOfOwner.count == 1 }

  /// An owner uses the origin, or wants to. What another one alone failed at does not count for it.
  mutating func use(by owner: Owner?, at now: Instant, _ rules: OriginRules) {
    guard let owner else { return }
    users.removeAll { $0.owner == owner }
    users = users.suffix(1) + [(owner, now)]
    guard isSilentToOneOwner, let other = silentOfOwner.keys.first, other != owner,
      circuit.failures > rules.mostOfOwner
    else { return }
    if circuits[other] != nil || circuits.count < Self.mostCircuits { circuits[other] = circuit }
    circuit.close(keeping: rules.mostOfOwner)
  }

  private func isUsed(besides owner: Owner, at now: Instant, _ rules: OriginRules) -> Bool {
    users.contains { $0.owner != owner && $0.at.duration(to: now) <= rules.memory }
  }

  /// How many more transfers may begin. A request that could only fail has room where nobody else wants the worker.
  ///
  /// - Parameter isSpare: whether workers would else be idle.
  func room(at now: Instant, _ rules: OriginRules, isSpare: Bool) -> Int {
    if pause(at: now) != nil { return isSpare ? .max : 0 }
    if circuit.openUntil != nil { return circuit.isProbing ? 0 : 1 }
    let isTrusted = isProven || isSpare
    let limit = isTrusted ? rules.maxTransfers : min(rules.unprovenTransfers, rules.maxTransfers)
    let free = max(0, limit - running - led - waiting)
    guard rules.requestsPerSecond > 0 else { return free }
    return min(free, max(0, Int(tokens(at: now, rules)) - waiting))
  }

  /// When a rate or a pause next lets something begin; nil when that is for other reasons to decide.
  func nextChange(at now: Instant, _ rules: OriginRules) -> Instant? {
    if let end = circuit.openUntil, end > now { return end }
    guard rules.requestsPerSecond > 0 else { return nil }
    let missing = 1 - tokens(at: now, rules)
    return missing > 0 ? now + .seconds(missing / rules.requestsPerSecond) : nil
  }

  /// A transfer begins.
  mutating func begin(by owner: Owner? = nil, at now: Instant, _ rules: OriginRules) {
    running += 1
    use(by: owner, at: now, rules)
    if circuit.openUntil != nil { circuit.isProbing = true }
    if let owner, let own = circuits[owner], own.openUntil != nil, own.pause(at: now) == nil {
      circuits[owner]?.isProbing = true
    }
    guard rules.requestsPerSecond > 0 else { return }
    tokens = tokens(at: now, rules) - 1
    refilled = now
  }

  /// A transfer ends.
  mutating func end(
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
    // An owner alone may open the circuit as often as it fails. While others use the origin only some of that counts.
    let count = silentOfOwner[owner] ?? 0
    guard !isShared || count < rules.mostOfOwner else { return }
    silentOfOwner[owner] = count + 1
    fail(at: now, rules)
  }

  private mutating func failOwn(_ owner: Owner, at now: Instant, _ rules: OriginRules) {
    if circuits[owner] == nil, circuits.count >= Self.mostCircuits {
      circuits = circuits.filter { $0.value.pause(at: now) != nil }
      guard circuits.count < Self.mostCircuits else { return }
    }
    if circuits[owner, default: Circuit()].fail(at: now, rules) { silent = [] }
  }

  private mutating func endProbe(of owner: Owner?, at now: Instant) {
    circuit.endProbe(at: now)
    if let owner { circuits[owner]?.endProbe(at: now) }
  }

  /// A transfer ends with a redirect to another origin.
  mutating func lead(at now: Instant, _ rules: OriginRules) {
    end(.answered, at: now, rules)
    led += 1
  }

  /// One that it led elsewhere has ended, or is back.
  mutating func endLed() { led -= 1 }

  /// As whoever was led here sees it: the first to have a place, and beside those that wait elsewhere for one. Two
  /// origins that lead to each other would else wait for each other.
  var forThoseLed: OriginState {
    var state = self
    (state.led, state.waiting) = (0, 0)
    return state
  }

  /// Others reached nobody there.
  mutating func pause(until moment: Instant, _ rules: OriginRules) {
    circuit.open(until: moment, rules)
    (lastFailure, isProven, isOnlySilent) = (moment, false, false)
  }

  /// Whether nobody asks it at the moment.
  var isIdle: Bool { running == 0 && led == 0 && waiting == 0 }

  /// Whether nothing is worth remembering: no failures, or none for long.
  func isForgettable(at now: Instant, _ rules: OriginRules) -> Bool {
    guard isIdle, nextChange(at: now, rules) == nil else { return false }
    guard let lastFailure else { return true }
    return lastFailure.duration(to: now) > rules.memory
  }

  init() {}

  private init(answeredBy earlier: OriginState) {
    (running, led, waiting) = (earlier.running, earlier.led, earlier.waiting)
    (tokens, refilled) = (earlier.tokens, earlier.refilled)
    users = earlier.users
    isProven = true
  }

  private mutating func fail(at now: Instant, _ rules: OriginRules) {
    (lastFailure, isProven) = (now, false)
    if circuit.fail(at: now, rules) { silent = [] }
  }

  private func tokens(at now: Instant, _ rules: OriginRules) -> Double {
    guard let refilled else { return 1 }
    let added = refilled.duration(to: now).inSeconds * rules.requestsPerSecond
    return min(1, tokens + added)
  }
}

extension OriginState {
  /// Why no job for the origin is claimed, and until when if time decides; nil where one may be.
  func hold(at now: Instant, _ rules: OriginRules) -> (reason: WaitingFor.Reason, until: Instant?)?
  {
    guard room(at: now, rules, isSpare: false) <= 0 else { return nil }
    if failures >= rules.maxFailures {
      // After the pause the request that tries again decides.
      return (.originPaused, pause(at: now).map { now + $0 })
    }
    var unrated = rules
    unrated.requestsPerSecond = 0
    guard room(at: now, unrated, isSpare: false) > 0 else { return (.originLimit, nil) }
    // Those that wait go first.
    let next = nextChange(at: now, rules) ?? now
    return (.originRate, next + .seconds(Double(waiting) / rules.requestsPerSecond))
  }
}
