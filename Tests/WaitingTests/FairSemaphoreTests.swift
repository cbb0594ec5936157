import Testing
import Waiting

@Suite("A semaphore that clients share", .timeLimit(.minutes(1)))
struct FairSemaphoreTests {
  @Test("a shared semaphore leaves a quarter of its permits to clients that hold none")
  func quarter() async throws {
    let semaphore = FairSemaphore<String>(4)
    var held: [FairSemaphore<String>.Permit] = []
    for _ in 0..<3 { held.append(try #require(await semaphore.acquire(for: "a"))) }
    #expect(await hasToWait(for: "a", semaphore))
    held.append(try #require(await semaphore.acquire(for: "b")))
    #expect(await hasToWait(for: "c", semaphore))
    held = []
    #expect(semaphore.isIdle)
  }

  @Test(
    "a shared semaphore grants the next permit to the client that holds the fewest, and serves each in order"
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

  /// Whether a client has to wait. A free permit is granted even to a cancelled task.
  private func hasToWait(
    for client: String, _ semaphore: FairSemaphore<String>
  ) async -> Bool {
    let task = Task { await semaphore.acquire(for: client) }
    task.cancel()
    return await task.value == nil
  }
}
