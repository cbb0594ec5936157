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
  /// How long it stays open at first; doubled each time that the request which tries again reaches nobody either.
  var firstPause: Duration = .seconds(5)
  /// The longest.
  var longestPause: Duration = .seconds(60)
  /// How long a failure is remembered.
  var memory: Duration = .seconds(600)
  /// Origins remembered: the failures of whoever makes up more than that are not worth it.
  var maxRemembered = 2_048
}

/// What is known of one origin: a circuit breaker, a rate and the transfers under way. It looks at no clock.
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
  private(set) var failures = 0
  /// The paths that were silent since it last answered, or since the circuit last opened; fewer than open it.
  private var silent: Set<Int> = []
  private var lastFailure: Instant?
  private var isProven = false
  private var openings = 0
  private var openUntil: Instant?
  private var isProbing = false
  private var tokens = 1.0
  private var refilled: Instant?

  /// Nil while it may be asked; else in how long it is tried again.
  func pause(at now: Instant) -> Duration? {
    guard let openUntil, openUntil > now else { return nil }
    return now.duration(to: openUntil)
  }

  /// How many more transfers may begin. A request that could only fail has room where nobody else wants the worker.
  ///
  /// - Parameter isSpare: whether workers would else be idle.
  func room(at now: Instant, _ rules: OriginRules, isSpare: Bool) -> Int {
    if pause(at: now) != nil { return isSpare ? .max : 0 }
    if openUntil != nil { return isProbing ? 0 : 1 }
    let isTrusted = isProven || isSpare
    let limit = isTrusted ? rules.maxTransfers : min(rules.unprovenTransfers, rules.maxTransfers)
    let free = max(0, limit - running - led - waiting)
    guard rules.requestsPerSecond > 0 else { return free }
    return min(free, max(0, Int(tokens(at: now, rules)) - waiting))
  }

  /// When a rate or a pause next lets something begin; nil when that is for other reasons to decide.
  func nextChange(at now: Instant, _ rules: OriginRules) -> Instant? {
    if let openUntil, openUntil > now { return openUntil }
    guard rules.requestsPerSecond > 0 else { return nil }
    let missing = 1 - tokens(at: now, rules)
    return missing > 0 ? now + .seconds(missing / rules.requestsPerSecond) : nil
  }

  /// A transfer begins.
  mutating func begin(at now: Instant, _ rules: OriginRules) {
    running += 1
    if openUntil != nil { isProbing = true }
    guard rules.requestsPerSecond > 0 else { return }
    tokens = tokens(at: now, rules) - 1
    refilled = now
  }

  /// A transfer ends.
  mutating func end(_ outcome: Outcome, at now: Instant, _ rules: OriginRules) {
    running -= 1
    switch outcome {
    case .answered: self = OriginState(answeredBy: self)
    case .unknown: if isOver(openUntil, at: now) { isProbing = false }
    case .unreached: fail(at: now, rules)
    case .silent(let path):
      if silent.insert(path).inserted { return fail(at: now, rules) }
      (lastFailure, isProven) = (now, false)
      if isOver(openUntil, at: now) { isProbing = false }
    }
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
    failures = max(failures, rules.maxFailures)
    (lastFailure, isProven, isProbing) = (moment, false, false)
    openings = max(openings, 1)
    openUntil = max(openUntil ?? moment, moment)
  }

  private func isOver(_ moment: Instant?, at now: Instant) -> Bool {
    moment.map { $0 <= now } ?? false
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
    isProven = true
  }

  private mutating func fail(at now: Instant, _ rules: OriginRules) {
    failures += 1
    lastFailure = now
    isProven = false
    // Those that were under way when it opened say nothing new.
    guard failures >= rules.maxFailures, pause(at: now) == nil else { return }
    silent = []
    let pause = rules.firstPause * (1 << min(openings, 10))
    openUntil = now + min(pause, rules.longestPause)
    openings += 1
    isProbing = false
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
