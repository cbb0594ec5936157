package import Jobs
import Synchronization

/// A wall clock that a test sets.
package final class ManualClock: Sendable {
  private let moment: Mutex<Timestamp>

  /// Starts at this time.
  package init(_ moment: Timestamp = Timestamp(milliseconds: 1_800_000_000_000)) {
    self.moment = Mutex(moment)
  }

  /// The current time.
  package var now: Timestamp { moment.withLock { $0 } }

  /// Sets the time.
  package func set(_ moment: Timestamp) { self.moment.withLock { $0 = moment } }

  /// Advances the time.
  package func advance(by duration: Duration) { moment.withLock { $0 = $0 + duration } }
}
