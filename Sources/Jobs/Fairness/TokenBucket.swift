/// Limits a rate. The bucket holds tokens up to the burst, and is refilled at the rate; each operation removes some.
/// The caller passes the rate each time, because the configuration may change it.
package struct TokenBucket: Sendable {
  package typealias Instant = ContinuousClock.Instant

  /// How fast a bucket is refilled, and how many tokens it holds.
  package struct Rate: Sendable, Equatable {
    /// More than 0.
    package var perSecond: Double
    /// The tokens of a full bucket; 0 or more.
    package var burst: Double

    package init(perSecond: Double, burst: Double) {
      (self.perSecond, self.burst) = (perSecond, burst)
    }
  }

  private var tokens: Double
  private var updated: Instant

  /// A full bucket.
  package init(_ rate: Rate, at now: Instant) { (tokens, updated) = (rate.burst, now) }

  /// Returns the number of tokens; negative after ``borrow(_:at:_:)``.
  package func tokens(at now: Instant, _ rate: Rate) -> Double {
    let seconds = max(0, updated.duration(to: now).inSeconds)
    return min(rate.burst, tokens + seconds * rate.perSecond)
  }

  /// Returns the seconds until the bucket holds `count` tokens; 0 or less if it holds them now.
  package func wait(for count: Double, at now: Instant, _ rate: Rate) -> Double {
    (count - tokens(at: now, rate)) / rate.perSecond
  }

  /// Removes a token; returns false if there is none.
  package mutating func consume(at now: Instant, _ rate: Rate) -> Bool {
    guard tokens(at: now, rate) >= 1 else { return false }
    borrow(1, at: now, rate)
    return true
  }

  /// Removes tokens even if there are too few. Then the number of tokens is negative until the rate has made up
  /// for it.
  package mutating func borrow(_ count: Double, at now: Instant, _ rate: Rate) {
    tokens = tokens(at: now, rate) - count
    updated = max(updated, now)
  }
}
