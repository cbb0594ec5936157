internal import Jobs
internal import Synchronization

/// The store's clock, as far as it is known here: this machine's, and by how much it is wrong.
final class StoreClock: Sendable {
  private let machine: WallClock
  private let offset = Mutex(Duration.zero)

  init(machine: @escaping WallClock) { self.machine = machine }

  /// What the store's clock shows, about.
  var now: Timestamp { machine() + offset.withLock { $0 } }

  /// What this machine's clock shows.
  var own: Timestamp { machine() }

  /// Takes over what the store's clock said at some moment between two of this machine's. Where that may be the same
  /// time it is: an answer's way would else be seen as a difference.
  func take(_ moment: Timestamp, saidBetween first: Timestamp, and last: Timestamp) {
    let difference =
      moment < first ? moment - first : moment > last ? moment - last : Duration.zero
    offset.withLock { $0 = difference }
  }
}
