internal import Synchronization
internal import Waiting

/// Runs rounds of cleaning up on request. One round serves all callers that requested it before it began.
///
/// A caller waits for the end of the round, so that purged data is deleted when the client gets its response. It waits
/// two seconds at most, in case an object store does not respond; the job store remembers what is still to be deleted.
final class CleanupRounds: Sendable {
  private let asked = Mutex<[OneShot<Void>]>([])
  private let wake = Signal()
  private static let maxWait = Duration.seconds(2)

  /// Requests a round without waiting for it.
  func request() { wake.send() }

  /// Requests a round. Returns when it is over, or after two seconds.
  func requestAndWait() async {
    let end = OneShot<Void>()
    asked.withLock { $0.append(end) }
    wake.send()
    _ = await end.value(before: .now + Self.maxWait)
  }

  /// Runs the requested rounds until cancelled.
  func run(_ round: () async -> Void) async {
    for await _ in wake.arrivals {
      let served = asked.withLock { asked in
        defer { asked = [] }
        return asked
      }
      await round()
      for end in served { end.fulfil() }
    }
  }
}
