public import Jobs
import Synchronization

/// A wall clock that a test sets.
public final class ManualClock: Sendable {
  private let moment: Mutex<Timestamp>

  /// Stands at that moment.
  public init(_ moment: Timestamp = Timestamp(milliseconds: 1_800_000_000_000)) {
    self.moment = Mutex(moment)
  }

  /// What it shows.
  public var now: Timestamp { moment.withLock { $0 } }

  /// Shows that moment from now on.
  public func set(_ moment: Timestamp) { self.moment.withLock { $0 = moment } }

  /// Moves on.
  public func advance(by duration: Duration) { moment.withLock { $0 = $0 + duration } }
}
