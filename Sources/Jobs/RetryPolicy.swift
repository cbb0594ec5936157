/// When a failed job is tried again.
public struct RetryPolicy: Sendable, Equatable {
  /// Tries in all, where the job says nothing else.
  public var maxAttempts = 3
  /// The back-off after the first try; doubled after each further one.
  public var initialBackoff: Duration = .milliseconds(500)
  /// No back-off, and no origin's `Retry-After`, is longer.
  public var maximumBackoff: Duration = .seconds(30)

  /// The configuration's defaults.
  public init() {}

  /// How long to wait before the next try; nil when there is to be none.
  ///
  /// - Parameters:
  ///   - tries: made so far, this one included.
  ///   - allowed: by the job, else by this policy.
  ///   - dice: 0…1; the back-off has full jitter, so that many jobs that failed together don't return together.
  package func delay(after failure: JobFailure, tries: Int, allowed: Int?, dice: Double)
    -> Duration?
  {
    guard failure.isRetryable, tries < allowed ?? maxAttempts else { return nil }
    let doublings = min(max(0, tries - 1), 30)
    let ceiling = min(initialBackoff * (1 << doublings), maximumBackoff)
    let backoff = ceiling * dice
    switch failure {
    // It was tried again already, and is there to be tried once more when its owner says so.
    case .delivery: return nil
    case .fetch(.originStatus(_, let retryAfter?)):
      return min(max(backoff, .seconds(retryAfter)), maximumBackoff)
    // Behind the request that finds out whether the origin is back.
    case .fetch(.unreachable(_, _, let seconds)):
      return min(backoff + .seconds(seconds), maximumBackoff)
    default: return backoff
    }
  }
}
