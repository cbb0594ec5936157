internal import Executors
internal import Jobs

/// Reads long request bodies: on a thread of its own, one at a time, round robin between clients.
///
/// Parsing computes, up to a second for the longest body. On Swift's shared threads it would delay the
/// requests of all other clients.
final class LongReading: Sendable {
  /// Longer bodies wait for their turn; shorter ones are read at once. In bytes.
  static let threshold = 64 << 10

  let turns = ClientTurns(atOnce: 1)
  private let thread = ThreadPool(name: "json", threads: 1)

  /// Runs `body`, where `count` bytes are long when it is the client's turn.
  /// - Throws: what `body` throws; also when the client left before its turn.
  func read<Value: Sendable>(
    _ count: Int, for client: RateLimiter.Client,
    _ body: @escaping @Sendable () throws(Problem) -> Value
  ) async throws(Problem) -> Value {
    guard count > Self.threshold else { return try body() }
    let result = await turns.take(for: client) {
      await thread.run { Result<Value, Problem> { () throws(Problem) in try body() } }
    }
    guard let result else { throw Problem(JobsError.abandoned) }
    return try result.get()
  }
}
