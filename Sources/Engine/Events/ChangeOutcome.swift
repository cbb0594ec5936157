internal import Jobs
internal import Synchronization

/// What the store found when it came to make a change.
final class ChangeOutcome: Sendable {
  enum Value: Equatable {
    case unchanged, changed, versionDiffers
    case ended(from: Phase)

    var isEnd: Bool { if case .ended = self { true } else { false } }
  }

  private let state = Mutex((value: Value.unchanged, finished: Job?.none))

  var value: Value { state.withLock { $0.value } }

  /// The store comes to make the change, perhaps once more: what it found before was not committed.
  /// - Returns: false where this is the finished job that was noted: it was, and only the answer was lost.
  func begins(with job: Job) -> Bool {
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

  /// - Parameter finished: the job, where the change finishes it or is made of what has finished.
  func note(_ value: Value, finished: Job? = nil) {
    state.withLock { $0 = (value, finished) }
  }
}
