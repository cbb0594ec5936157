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
    let backoff = longestBackoff(after: tries) * dice
    switch failure {
    // What refuses it does so the next time, too.
    case .delivery(let error): return error.isPassing ? backoff : nil
    case .fetch(.originStatus(_, let retryAfter?)):
      return min(max(backoff, .seconds(retryAfter)), maximumBackoff)
    // Behind the request that finds out whether the origin is back.
    case .fetch(.unreachable(_, _, let seconds)):
      return min(backoff + .seconds(seconds), maximumBackoff)
    default: return backoff
    }
  }

  /// The most that is waited after so many tries, where nobody asks for more time.
  package func longestBackoff(after tries: Int) -> Duration {
    let doublings = min(max(0, tries - 1), 30)
    return min(initialBackoff * (1 << doublings), maximumBackoff)
  }

  /// Of two of a job's URLs that failed in one try, the failure that decides whether and when all are asked again: the
  /// one that is to be waited for longer. One that does not pass decides nothing beside one that may.
  package func decisive(_ failure: JobFailure, or earlier: JobFailure?) -> JobFailure {
    // The back-off is the same after each.
    func wait(after failure: JobFailure) -> Duration {
      delay(after: failure, tries: 0, allowed: 1, dice: 0) ?? .seconds(-1)
    }
    guard let earlier, wait(after: earlier) > wait(after: failure) else { return failure }
    return earlier
  }
}
