/// Decides how long to retry while the service cannot be reached. A rule without a clock.
struct Backoff {
  /// The time to retry in total: enough for the restart of a service or a machine.
  static let limit: Duration = .seconds(120)

  private var since: ContinuousClock.Instant?
  private var tries = 0

  /// Records a failed attempt.
  /// - Parameter jitter: 0…1, so that the threads do not all retry at the same time.
  /// - Returns: The wait before the next attempt; nil if the time is over.
  mutating func failed(at now: ContinuousClock.Instant, jitter: Double) -> Duration? {
    let start = since ?? now
    since = start
    guard now - start < Self.limit else { return nil }
    tries += 1
    let longest = min(5, 0.25 * Double(1 << min(tries - 1, 10)))
    return .seconds(longest * (0.5 + jitter / 2))
  }

  /// Resets the rule after a response of the service.
  mutating func answered() { self = Backoff() }
}
