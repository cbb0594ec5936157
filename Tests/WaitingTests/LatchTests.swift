import Testing
import Waiting

@Suite("A latch", .timeLimit(.minutes(15)))
struct LatchTests {
  @Test("a latch resumes all waiting tasks when it opens, and later tasks do not wait")
  func opened() async {
    let latch = Latch()
    let waiters = (0..<3).map { _ in Task { await latch.wait() } }
    #expect(!latch.isOpen)
    latch.open()
    for waiter in waiters { await waiter.value }
    #expect(latch.isOpen)
    await latch.wait()
  }

  @Test("a latch delays neither a cancelled task nor one whose deadline has passed")
  func left() async {
    let latch = Latch()
    let waiter = Task { await latch.wait() }
    waiter.cancel()
    await waiter.value
    await latch.wait(until: .now + .milliseconds(5))
    #expect(!latch.isOpen)
  }
}
