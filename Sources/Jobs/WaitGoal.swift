/// What a client waits for.
public enum WaitGoal: Sendable, Equatable {
  /// Success, failure or cancelled.
  case finished
  /// Any version but the one that the client has.
  case versionOtherThan(Int)

  /// Whether the job is there.
  public func isMet(by job: Job) -> Bool {
    switch self {
    case .finished: job.phase.isFinished
    case .versionOtherThan(let version): job.version != version
    }
  }
}
