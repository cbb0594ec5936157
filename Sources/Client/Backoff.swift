/// How long a service that is out of reach is waited for: a rule without a clock.
struct Backoff {
  /// What a restart may take, and a machine's may too.
  static let limit: Duration = .seconds(120)

  private var since: ContinuousClock.Instant?
  private var tries = 0

  /// Notes another failure.
  /// - Parameter jitter: within 0…1, so that not all threads come back at once.
  /// - Returns: how long to wait before the next try; nil when it has been long enough.
  mutating func failed(at now: ContinuousClock.Instant, jitter: Double) -> Duration? {
    let start = since ?? now
    since = start
    guard now - start < Self.limit else { return nil }
    tries += 1
    let longest = min(5, 0.25 * Double(1 << min(tries - 1, 10)))
    return .seconds(longest * (0.5 + jitter / 2))
  }

  /// The service answered.
  mutating func answered() { self = Backoff() }
}
