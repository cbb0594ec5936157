public import Jobs
import Synchronization

/// A wall clock that a test sets.
public final class ManualClock: Sendable {
  private let moment: Mutex<Timestamp>

  /// Starts at this time.
  public init(_ moment: Timestamp = Timestamp(milliseconds: 1_800_000_000_000)) {
    self.moment = Mutex(moment)
  }

  /// The current time.
  public var now: Timestamp { moment.withLock { $0 } }

  /// Sets the time.
  public func set(_ moment: Timestamp) { self.moment.withLock { $0 = moment } }

  /// Advances the time.
  public func advance(by duration: Duration) { moment.withLock { $0 = $0 + duration } }
}
