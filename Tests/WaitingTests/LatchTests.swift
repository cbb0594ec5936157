import Testing
import Waiting

@Suite("A latch", .timeLimit(.minutes(5)))
struct LatchTests {
  @Test("lets all pass once it is open, those who waited and those who come later")
  func opened() async {
    let latch = Latch()
    let waiters = (0..<3).map { _ in Task { await latch.wait() } }
    #expect(!latch.isOpen)
    latch.open()
    for waiter in waiters { await waiter.value }
    #expect(latch.isOpen)
    await latch.wait()
  }

  @Test("holds up neither a cancelled task nor one whose time is over")
  func left() async {
    let latch = Latch()
    let waiter = Task { await latch.wait() }
    waiter.cancel()
    await waiter.value
    await latch.wait(until: .now + .milliseconds(5))
    #expect(!latch.isOpen)
  }
}
