internal import Synchronization

/// Says to every thread that nothing new shall begin and what waits shall not wait any longer.
final class CancellationFlag: Sendable {
  private let isUp = Atomic(false)

  /// Whether it was raised; it never falls.
  var isRaised: Bool { isUp.load(ordering: .acquiring) }

  func raise() { isUp.store(true, ordering: .releasing) }
}
