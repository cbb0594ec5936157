internal import Synchronization
internal import Waiting

/// Rounds of tidying that somebody asked for: one serves all who asked before it began.
///
/// Who asks waits for its end, so that what was purged is gone when a client is told so; but not for as long as an object
/// store stands still: what is to be removed is noted in the job store.
final class TidyRounds: Sendable {
  private let asked = Mutex<[OneShot<Void>]>([])
  private let wake = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
  private static let patience = Duration.seconds(2)

  /// Has a round begin, and waits for nothing.
  func askSoon() { wake.continuation.yield() }

  /// Has a round begin; returns once it is over, or has taken long.
  func ask() async {
    let end = OneShot<Void>()
    asked.withLock { $0.append(end) }
    wake.continuation.yield()
    _ = await end.value(before: .now + Self.patience)
  }

  /// Makes rounds as they are asked for, until cancelled.
  func run(_ round: () async -> Void) async {
    for await _ in wake.stream {
      let served = asked.withLock { asked in
        defer { asked = [] }
        return asked
      }
      await round()
      for end in served { end.fulfil() }
    }
  }
}
