internal import Synchronization

/// Whether the network is one on which low-data images are to be preferred.
final class NetworkState: Sendable {
  private let constrained: Atomic<Bool>

  init(isConstrained: Bool) { constrained = Atomic(isConstrained) }

  var isConstrained: Bool { constrained.load(ordering: .relaxed) }
}
