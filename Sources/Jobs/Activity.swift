/// The service's activity in the last 15 minutes, as a series of five-second steps.
public struct Activity: Sendable, Equatable {
  /// The activity of one step.
  public struct Step: Sendable, Equatable {
    /// Jobs in these phases when the step ended.
    public var queued = 0
    public var loading = 0
    /// Jobs that finished in these phases during the step.
    public var succeeded = 0
    public var failed = 0

    /// A step without activity.
    public init() {}

    /// Adds a later part of the same step: adds its finished jobs, and replaces the numbers of queued and
    /// loading jobs.
    public mutating func add(_ later: Step) {
      (queued, loading) = (later.queued, later.loading)
      succeeded += later.succeeded
      failed += later.failed
    }
  }

  /// Length of a step, in seconds. Every step starts at a multiple of this length since 1970-01-01T00:00:00Z.
  /// Therefore all instances agree on the step that a job belongs to.
  public static let interval = 5
  /// The number of steps that are kept.
  public static let most = 180

  /// When the last step ended.
  public var end: Timestamp
  /// The oldest step first; fewer than ``most`` if the service started recently.
  public var steps: [Step]

  public init(end: Timestamp, steps: [Step] = []) { (self.end, self.steps) = (end, steps) }

  /// Returns the number of the last step that ended at `moment`. Tolerates half a step of error, because
  /// timers fire late.
  public static func number(at moment: Timestamp) -> Int64 {
    let length = Int64(interval) * 1_000
    let shifted = moment.milliseconds - length / 2
    return shifted / length - (shifted % length < 0 ? 1 : 0)
  }

  /// Returns the end of step `number`.
  public static func end(of number: Int64) -> Timestamp {
    let (milliseconds, overflow) = (number + 1).multipliedReportingOverflow(
      by: Int64(interval) * 1_000)
    return Timestamp(milliseconds: overflow ? .max : milliseconds)
  }
}
