/// What an unfinished job waits for, according to this instance's memory. It changes without a new version of
/// the job.
package struct WaitingFor: Sendable, Equatable {
  /// The reason for the wait.
  package enum Reason: String, Sendable, CaseIterable {
    /// No worker is free.
    case worker
    /// The limit of concurrent transfers to the origin is reached.
    case originLimit = "origin_limit"
    /// The rate limit of requests to the origin is reached.
    case originRate = "origin_rate"
    /// The origin is paused, because several requests in a row could not reach it.
    case originPaused = "origin_paused"
    /// The disk is full. No job starts until there is space.
    case storage
    /// The back-off after a failed try.
    case retry
    /// Its variants have to wait for those of other jobs. The job is `loading`.
    case render
    /// Its deliveries have to wait, because the number of concurrent uploads to a destination is limited. The
    /// job is `loading`.
    case deliver
  }

  package var reason: Reason
  /// The origin (RFC 6454) of the next request; nil if there will be no request.
  package var origin: String?
  /// When the wait ends, if that depends on time.
  package var until: Timestamp?
  /// The approximate number of jobs ahead of it in the queue; nil if unknown.
  package var ahead: Int?

  package init(
    _ reason: Reason, origin: String?, until: Timestamp? = nil, ahead: Int? = nil
  ) {
    self.reason = reason
    self.origin = origin
    self.until = until
    self.ahead = ahead
  }
}
