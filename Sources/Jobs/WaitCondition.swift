/// What a long poll waits for.
public enum WaitCondition: Sendable, Equatable {
  /// The job has reached a phase in which it stays.
  case finished
  /// The job has another version than this.
  case versionOtherThan(Int)

  /// Whether the job meets it.
  public func isMet(by job: Job) -> Bool {
    switch self {
    case .finished: job.phase.isFinished
    case .versionOtherThan(let version): job.version != version
    }
  }
}
