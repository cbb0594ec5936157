internal import Jobs
internal import Synchronization

/// Estimates the store's clock: this machine's clock plus the last known offset.
final class StoreClock: Sendable {
  private let machine: WallClock
  private let offset = Mutex(Duration.zero)

  init(machine: @escaping WallClock) { self.machine = machine }

  /// The estimated time of the store's clock.
  var now: Timestamp { machine() + offset.withLock { $0 } }

  /// The time of this machine's clock.
  var own: Timestamp { machine() }

  /// Updates the offset from a time that the store reported between two times of this machine's clock. If the reported
  /// time lies between them, the offset is zero, because the difference may only be the transfer time.
  func synchronize(_ moment: Timestamp, reportedBetween first: Timestamp, and last: Timestamp) {
    let difference =
      moment < first ? moment - first : moment > last ? moment - last : Duration.zero
    offset.withLock { $0 = difference }
  }
}
