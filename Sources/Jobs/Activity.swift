/// The figures of a service for the last quarter of an hour, in equal steps of time.
public struct Activity: Sendable, Equatable {
  /// One step.
  public struct Step: Sendable, Equatable {
    /// Jobs in these phases at the step's end.
    public var queued = 0
    public var loading = 0
    /// Jobs that ended in these phases within the step.
    public var succeeded = 0
    public var failed = 0

    /// A step in which nothing happened.
    public init() {}

    /// Adds what happened in a later part of the same step.
    public mutating func add(_ later: Step) {
      (queued, loading) = (later.queued, later.loading)
      succeeded += later.succeeded
      failed += later.failed
    }
  }

  /// Length of a step, in seconds. Steps begin at whole multiples of it since 1970, so that the same jobs are in the same
  /// step whenever, and at whichever instance, a client asks.
  public static let interval = 5
  /// Steps that are kept at most.
  public static let most = 180

  /// When the last step ended.
  public var end: Timestamp
  /// The oldest first; fewer than ``most`` where the service started later.
  public var steps: [Step]

  public init(end: Timestamp, steps: [Step] = []) { (self.end, self.steps) = (end, steps) }

  /// The number of the step that ended last at a moment, give or take half a step: timers are late.
  public static func number(at moment: Timestamp) -> Int64 {
    let length = Int64(interval) * 1_000
    let shifted = moment.milliseconds - length / 2
    return shifted / length - (shifted % length < 0 ? 1 : 0)
  }

  /// The end of the step with that number.
  public static func end(of number: Int64) -> Timestamp {
    let (milliseconds, overflow) = (number + 1).multipliedReportingOverflow(
      by: Int64(interval) * 1_000)
    return Timestamp(milliseconds: overflow ? .max : milliseconds)
  }
}
