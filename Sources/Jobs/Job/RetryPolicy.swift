package import Settings

/// Decides when a failed job is tried again.
package struct RetryPolicy: Sendable, Equatable {
  /// The maximum number of tries of a job that does not set its own.
  package var maxAttempts = 3
  /// The back-off after the first try. It doubles with each further try.
  package var initialBackoff: Duration = .milliseconds(500)
  /// The limit of the back-off and of an origin's `Retry-After`.
  package var maximumBackoff: Duration = .seconds(30)

  /// The configuration's defaults.
  package init() {}

  /// Returns the wait before the next try; nil if there is none.
  ///
  /// - Parameters:
  ///   - tries: The number of tries so far.
  ///   - allowed: The job's maximum of tries; nil means this policy's.
  ///   - dice: A random number from 0 to 1. The back-off has full jitter, so that jobs that failed together
  ///     are not all retried at once.
  package func delay(after failure: JobFailure, tries: Int, allowed: Int?, dice: Double)
    -> Duration?
  {
    guard failure.isRetryable, tries < allowed ?? maxAttempts else { return nil }
    let backoff = longestBackoff(after: tries) * dice
    switch failure {
    // Permanent delivery errors are not retried.
    case .delivery(let error): return error.isPassing ? backoff : nil
    case .fetch(.originStatus(_, let retryAfter?)):
      return min(max(backoff, .seconds(retryAfter)), maximumBackoff)
    // The retry comes after the request that tests whether the origin is reachable again.
    case .fetch(.unreachable(_, _, let seconds)):
      return min(backoff + .seconds(seconds), maximumBackoff)
    default: return backoff
    }
  }

  /// The longest back-off after this number of tries, without `Retry-After`.
  package func longestBackoff(after tries: Int) -> Duration {
    let doublings = min(max(0, tries - 1), 30)
    return min(initialBackoff * (1 << doublings), maximumBackoff)
  }

  /// Returns the failure that decides about the next try when two of a job's URLs failed in one try: the one
  /// with the longer wait. A permanent failure never wins over a retryable one.
  package func decisive(_ failure: JobFailure, or earlier: JobFailure?) -> JobFailure {
    // The back-off is the same for both.
    func wait(after failure: JobFailure) -> Duration {
      delay(after: failure, tries: 0, allowed: 1, dice: 0) ?? .seconds(-1)
    }
    guard let earlier, wait(after: earlier) > wait(after: failure) else { return failure }
    return earlier
  }
}

extension RetryPolicy {
  /// The attempts that a job or the configuration may allow.
  package static let attemptBounds = 1...10

  /// The configuration keys of this policy.
  package static let settings: [Setting<RetryPolicy>] = [
    Setting(
      "jobs.max_attempts", \.maxAttempts, .integer(attemptBounds),
      "Maximum attempts of a job if its errors are temporary."),
    Setting(
      "jobs.retry_backoff.initial", \.initialBackoff, .duration(.milliseconds(1) ... .days(1)),
      "The longest wait before the second attempt."),
    Setting(
      "jobs.retry_backoff.maximum", \.maximumBackoff, .duration(.milliseconds(1) ... .days(1)),
      "The longest wait before any attempt."),
  ]
}
