internal import Jobs
internal import Synchronization

/// The result of a change, recorded inside the store's transaction.
final class ChangeOutcome: Sendable {
  enum Value: Equatable {
    case unchanged, changed, versionDiffers
    /// The change has to be announced first (``Announcer``).
    case unannounced
    case ended(from: Phase)

    var isEnd: Bool { if case .ended = self { true } else { false } }
  }

  private let state = Mutex((value: Value.unchanged, finished: Job?.none))

  var value: Value { state.withLock { $0.value } }

  /// Called at the start of each attempt of the transaction. The store may repeat it, so the result of an earlier
  /// attempt is discarded.
  /// - Returns: false if the job is already the finished job that an earlier attempt recorded: that attempt was
  ///   committed, and only the answer was lost.
  func beginAttempt(with job: Job) -> Bool {
    state.withLock { state in
      if let finished = state.finished, finished.phase == job.phase,
        finished.finishedAt == job.finishedAt, finished.revision == job.revision
      {
        return false
      }
      state = (.unchanged, nil)
      return true
    }
  }

  /// - Parameter finished: the job as this change leaves it, if the change finishes it or queues a finished job again.
  func record(_ value: Value, finished: Job? = nil) {
    state.withLock { $0 = (value, finished) }
  }
}
