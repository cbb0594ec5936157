internal import Executors
internal import Jobs
internal import Waiting

/// Parses long request bodies: one at a time, on a thread of its own, round robin between clients.
///
/// Parsing the longest body takes up to a second. On Swift's shared threads it would delay the requests of all other
/// clients.
final class BodyParser: Sendable {
  /// In bytes. Longer bodies wait for their turn; shorter ones are parsed at once.
  static let threshold = 64 << 10

  let turns = FairSemaphore<RateLimiter.Client>(1)
  private let thread = ThreadPool(name: "json", threads: 1)

  /// Runs `body`. If `count`, the bytes to parse, is above the threshold, waits for the client's turn first.
  /// - Throws: the errors of `body`; also when the client disconnected before its turn.
  func parse<Value: Sendable>(
    _ count: Int, for client: RateLimiter.Client,
    _ body: @escaping @Sendable () throws(Problem) -> Value
  ) async throws(Problem) -> Value {
    guard count > Self.threshold else { return try body() }
    let result = await turns.withPermit(for: client) {
      await thread.run { Result<Value, Problem> { () throws(Problem) in try body() } }
    }
    guard let result else { throw Problem(JobsError.abandoned) }
    return try result.get()
  }
}
