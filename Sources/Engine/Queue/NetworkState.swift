internal import Jobs
internal import Synchronization

/// Whether the network is constrained. If it is, low-data images are loaded instead of the regular ones.
final class NetworkState: Sendable {
  private let constrained: Atomic<Bool>

  init(isConstrained: Bool) { constrained = Atomic(isConstrained) }

  var isConstrained: Bool { constrained.load(ordering: .relaxed) }

  /// - Returns: whether the state changed.
  func set(_ isConstrained: Bool) -> Bool {
    constrained.exchange(isConstrained, ordering: .relaxed) != isConstrained
  }

  /// Returns which of its URLs a job fetches first.
  func firstCandidate(of submission: Submission) -> URLCandidate {
    guard case .url(_, _?) = submission.source, submission.savesData || isConstrained else {
      return .regular
    }
    return .lowData
  }
}
