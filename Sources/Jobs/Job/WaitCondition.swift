/// The condition that a long poll waits for.
package enum WaitCondition: Sendable, Equatable {
  /// The job has finished.
  case finished
  /// The job's version differs from this one.
  case versionOtherThan(Int)

  /// Whether the job meets the condition.
  package func isMet(by job: Job) -> Bool {
    switch self {
    case .finished: job.phase.isFinished
    case .versionOtherThan(let version): job.version != version
    }
  }
}
