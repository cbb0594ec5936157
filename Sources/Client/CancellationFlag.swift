internal import Synchronization

/// A flag that stops a run: threads begin nothing new and stop waiting.
final class CancellationFlag: Sendable {
  private let isUp = Atomic(false)

  /// Whether the flag was raised. It is never lowered.
  var isRaised: Bool { isUp.load(ordering: .acquiring) }

  func raise() { isUp.store(true, ordering: .releasing) }
}
