internal import Synchronization
internal import Waiting

/// Turns at making a page of results: few at once, and one of each client's, so that whoever has many
/// streams has the others wait for no more than a page.
final class ResultTurns: Sendable {
  /// Where a client's streams wait: but one of them stands in the line of all, which so goes around
  /// among clients.
  private struct Line {
    let turns = AsyncSemaphore(1)
    var streams = 0
  }

  let all = AsyncSemaphore(2)
  private let lines = Mutex<[RateLimiter.Client: Line]>([:])

  /// Does something when the client's turn comes; nil when the task is cancelled before.
  func take<Value>(for client: RateLimiter.Client, _ body: () async -> Value?) async -> Value? {
    let turns = enter(client)
    defer { leave(client) }
    guard let own = await turns.acquire() else { return nil }
    defer { withExtendedLifetime(own) {} }
    guard let turn = await all.acquire() else { return nil }
    defer { withExtendedLifetime(turn) {} }
    return await body()
  }

  /// Clients whose streams have a turn or wait for one.
  var clients: Int { lines.withLock { $0.count } }

  private func enter(_ client: RateLimiter.Client) -> AsyncSemaphore {
    lines.withLock { lines in
      var line = lines[client] ?? Line()
      line.streams += 1
      lines[client] = line
      return line.turns
    }
  }

  private func leave(_ client: RateLimiter.Client) {
    lines.withLock { lines in
      lines[client]?.streams -= 1
      if lines[client]?.streams == 0 { lines[client] = nil }
    }
  }
}
