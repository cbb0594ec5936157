import Jobs
import Synchronization
import Testing
import Waiting

@Suite("A semaphore that clients share", .timeLimit(.minutes(1)))
struct FairSemaphoreTests {
  @Test("a shared semaphore leaves a quarter of its permits to clients that hold none")
  func quarter() async throws {
    let semaphore = FairSemaphore<String>(.keepingQuarter(of: 4))
    var held: [FairSemaphore<String>.Permit] = []
    for _ in 0..<3 { held.append(try #require(await semaphore.acquire(for: "a"))) }
    #expect(await hasToWait(for: "a", semaphore))
    held.append(try #require(await semaphore.acquire(for: "b")))
    #expect(await hasToWait(for: "c", semaphore))
    held = []
    #expect(semaphore.isIdle)
  }

  @Test(
    "a shared semaphore grants the next permit to a waiting client that holds fewer, and serves each in order"
  )
  func turns() async throws {
    let semaphore = FairSemaphore<String>(2)
    var first = await semaphore.acquire(for: "a")
    var second = await semaphore.acquire(for: "a")
    // Immediate tasks are queued before the next statement.
    let third = Task.immediate { await semaphore.acquire(for: "a") }
    let other = Task.immediate { await semaphore.acquire(for: "b") }
    first = nil
    #expect(await other.value != nil && first == nil)
    second = nil
    #expect(await third.value != nil && second == nil)
  }

  private final class Log: Sendable {
    private let state = Mutex<[String]>([])
    var clients: [String] { state.withLock(\.self) }
    func append(_ client: String) { state.withLock { $0.append(client) } }
  }

  @Test("waiting clients are served round robin, and a client at its limit does not block others")
  func roundRobin() async throws {
    let semaphore = FairSemaphore<String>(ShareBounds(2, ofClient: 1))
    var held = [
      "x": try #require(await semaphore.acquire(for: "x")),
      "y": try #require(await semaphore.acquire(for: "y")),
    ]
    let served = Log()
    await withDiscardingTaskGroup { group in
      for client in ["a", "a", "a", "y", "b", "b"] {
        let before = semaphore.waiting
        group.addTask {
          _ = await semaphore.withPermit(for: client) { served.append(client) }
        }
        while semaphore.waiting == before { await Task.yield() }
      }
      // "y" holds its permit, so only the other one is passed on.
      held["x"] = nil
      while served.clients.count < 5 { await Task.yield() }
      #expect(served.clients == ["a", "b", "a", "b", "a"])
      held["y"] = nil
    }
    #expect(served.clients.last == "y" && semaphore.isIdle)
  }

  private final class Use: Sendable {
    struct Counts {
      var held: [Int: Int] = [:]
      var most = 0
      var mostOfClient = 0
      var finished = 0
    }

    private let state = Mutex(Counts())
    var counts: Counts { state.withLock(\.self) }

    func begin(_ client: Int) {
      state.withLock { counts in
        counts.held[client, default: 0] += 1
        counts.most = max(counts.most, counts.held.values.reduce(0, +))
        counts.mostOfClient = max(counts.mostOfClient, counts.held[client] ?? 0)
      }
    }

    func end(_ client: Int) {
      state.withLock { counts in
        counts.held[client]? -= 1
        counts.finished += 1
      }
    }
  }

  @Test(
    "many tasks, some of them cancelled, never exceed the bounds, and each of the others is served")
  func many() async {
    let semaphore = FairSemaphore<Int>(ShareBounds(6, ofClient: 3, reserved: 1))
    let use = Use()
    await withDiscardingTaskGroup { group in
      for number in 0..<400 {
        // Most tasks belong to the first client.
        let client = max(0, number % 8 - 4)
        group.addTask {
          let task = Task {
            _ = await semaphore.withPermit(for: client) {
              use.begin(client)
              for _ in 0..<number % 7 { await Task.yield() }
              use.end(client)
            }
          }
          if number % 5 == 0 { task.cancel() }
          await task.value
        }
      }
    }
    let result = use.counts
    #expect(result.most <= 6 && result.mostOfClient <= 3)
    #expect(result.finished >= 320 && semaphore.isIdle && semaphore.waiting == 0)
  }

  /// Whether a client has to wait. A free permit is granted even to a cancelled task.
  private func hasToWait(
    for client: String, _ semaphore: FairSemaphore<String>
  ) async -> Bool {
    let task = Task { await semaphore.acquire(for: client) }
    task.cancel()
    return await task.value == nil
  }
}
