internal import Jobs
internal import Synchronization

/// Whether the network is constrained: low-data images are then loaded in place of the regular ones.
final class NetworkState: Sendable {
  private let constrained: Atomic<Bool>

  init(isConstrained: Bool) { constrained = Atomic(isConstrained) }

  var isConstrained: Bool { constrained.load(ordering: .relaxed) }

  /// - Returns: whether that is new.
  func set(_ isConstrained: Bool) -> Bool {
    constrained.exchange(isConstrained, ordering: .relaxed) != isConstrained
  }

  /// Which of its URLs a job begins with now.
  func firstCandidate(of submission: Submission) -> URLCandidate {
    guard case .url(_, _?) = submission.source, submission.savesData || isConstrained else {
      return .regular
    }
    return .lowData
  }
}
