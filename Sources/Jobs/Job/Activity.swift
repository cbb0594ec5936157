/// The service's activity in the last 15 minutes, as a series of five-second steps.
package struct Activity: Sendable, Equatable {
  /// The activity of one step.
  package struct Step: Sendable, Equatable {
    /// Jobs in these phases when the step ended.
    package var queued = 0
    package var loading = 0
    /// Jobs that finished in these phases during the step.
    package var succeeded = 0
    package var failed = 0

    /// A step without activity.
    package init() {}

    /// Adds a later part of the same step: adds its finished jobs, and replaces the numbers of queued and
    /// loading jobs.
    package mutating func add(_ later: Step) {
      (queued, loading) = (later.queued, later.loading)
      succeeded += later.succeeded
      failed += later.failed
    }
  }

  /// Length of a step, in seconds. Every step starts at a multiple of this length since 1970-01-01T00:00:00Z.
  /// Therefore all instances agree on the step that a job belongs to.
  package static let interval = 5
  /// The number of steps that are kept.
  package static let most = 180

  /// When the last step ended.
  package var end: Timestamp
  /// The oldest step first; fewer than ``most`` if the service started recently.
  package var steps: [Step]

  package init(end: Timestamp, steps: [Step] = []) { (self.end, self.steps) = (end, steps) }

  /// Returns the number of the last step that ended at `moment`. Tolerates half a step of error, because
  /// timers fire late.
  package static func number(at moment: Timestamp) -> Int64 {
    let length = Int64(interval) * 1_000
    let shifted = moment.milliseconds - length / 2
    return shifted / length - (shifted % length < 0 ? 1 : 0)
  }

  /// Returns the end of step `number`.
  package static func end(of number: Int64) -> Timestamp {
    let (milliseconds, overflow) = (number + 1).multipliedReportingOverflow(
      by: Int64(interval) * 1_000)
    return Timestamp(milliseconds: overflow ? .max : milliseconds)
  }
}

/// Whether the service accepts jobs.
package enum ServiceState: Sendable, Equatable {
  /// The service is recovering the jobs of an earlier run, or waits for its store.
  case starting
  /// The service accepts jobs.
  case ready
  /// The service accepts jobs, but currently cannot decode images.
  case stuck
  /// A disk is full: the service refuses new jobs, but still serves stored images.
  case full
  /// The service finishes running jobs and refuses new ones.
  case draining
}
