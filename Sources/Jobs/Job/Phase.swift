/// The phase of a job. ``canBecome(_:)`` defines the legal transitions.
package enum Phase: String, Sendable, CaseIterable, Codable {
  case queued, loading, success, failure, cancelled

  /// Whether the phase is final. A job leaves it only if its owner queues the job again.
  package var isFinished: Bool {
    switch self {
    case .queued, .loading: false
    case .success, .failure, .cancelled: true
    }
  }

  /// Whether a job may go from this phase to `next`.
  package func canBecome(_ next: Phase) -> Bool {
    switch (self, next) {
    case (.queued, .loading), (.queued, .cancelled), (.queued, .failure), (.queued, .success): true
    case (.loading, .success), (.loading, .failure), (.loading, .cancelled), (.loading, .queued):
      true
    case (.failure, .queued), (.cancelled, .queued), (.success, .queued): true
    default: false
    }
  }
}

extension Phase {
  /// The number in store tables. It must not change.
  package var code: Int {
    switch self {
    case .queued: 0
    case .loading: 1
    case .success: 2
    case .failure: 3
    case .cancelled: 4
    }
  }

  package init?(code: Int) {
    guard let phase = Phase.allCases.first(where: { $0.code == code }) else { return nil }
    self = phase
  }
}
