/// What an unfinished job waits for, as far as memory tells. It changes without the job's version.
public struct WaitingFor: Sendable, Equatable {
  /// What it is that lets the job run.
  public enum Reason: String, Sendable, CaseIterable {
    /// A worker that is free.
    case worker
    /// The end of a transfer to the origin, which gets no more at once.
    case originLimit = "origin_limit"
    /// The next moment at which the origin may be asked once more.
    case originRate = "origin_rate"
    /// The end of a pause: too many requests in a row reached nobody there.
    case originPaused = "origin_paused"
    /// Room on the disk: until there is some, no job begins.
    case storage
    /// The end of the back-off after a try that failed.
    case retry
    /// Its variants, which are made one job after the other in turns of their owners. The job is `loading`.
    case render
    /// Its deliveries: a destination takes few at once. The job is `loading`.
    case deliver
  }

  /// What it is.
  public var reason: Reason
  /// The origin (RFC 6454) that its next request goes to; nil where there will be none.
  public var origin: String?
  /// When that ends or comes round, if time decides.
  public var until: Timestamp?
  /// Jobs that get a worker before it, about; nil where nobody knows.
  public var ahead: Int?

  /// What a job waits for.
  public init(
    _ reason: Reason, origin: String?, until: Timestamp? = nil, ahead: Int? = nil
  ) {
    self.reason = reason
    self.origin = origin
    self.until = until
    self.ahead = ahead
  }
}
