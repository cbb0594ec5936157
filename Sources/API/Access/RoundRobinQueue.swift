internal import Synchronization
internal import Waiting

/// A fair queue for work that takes long: at most one task of each client has a permit or waits for one,
/// so the permits go round robin between clients.
final class RoundRobinQueue: Sendable {
  private struct Client {
    let turns = AsyncSemaphore(1)
    var tasks = 0
  }

  /// The permits, shared by all clients.
  let all: AsyncSemaphore
  private let queues = Mutex<[RateLimiter.Client: Client]>([:])

  /// - Parameter atOnce: the number of tasks that run at the same time.
  init(atOnce: Int) { all = AsyncSemaphore(atOnce) }

  /// Runs `body` when it is the client's turn.
  /// - Returns: what `body` returns; nil when the task is cancelled before its turn.
  func run<Value>(for client: RateLimiter.Client, _ body: () async -> Value?) async -> Value? {
    let turns = addTask(of: client)
    defer { removeTask(of: client) }
    guard let own = await turns.acquire() else { return nil }
    defer { withExtendedLifetime(own) {} }
    guard let turn = await all.acquire() else { return nil }
    defer { withExtendedLifetime(turn) {} }
    return await body()
  }

  /// The number of clients that have a permit or wait for one.
  var clients: Int { queues.withLock { $0.count } }

  private func addTask(of client: RateLimiter.Client) -> AsyncSemaphore {
    queues.withLock { queues in
      var queue = queues[client] ?? Client()
      queue.tasks += 1
      queues[client] = queue
      return queue.turns
    }
  }

  private func removeTask(of client: RateLimiter.Client) {
    queues.withLock { queues in
      queues[client]?.tasks -= 1
      if queues[client]?.tasks == 0 { queues[client] = nil }
    }
  }
}
