import Testing
import Waiting

@Suite("A one-shot", .timeLimit(.minutes(15)))
struct OneShotTests {
  @Test("a one-shot passes its value to the waiting task, before or after it waits")
  func order() async {
    let before = OneShot<Int>()
    before.fulfil(1)
    #expect(await before.value() == 1)
    let after = OneShot<Int>()
    async let value = after.value()
    await Task.yield()
    after.fulfil(2)
    #expect(await value == 2)
  }

  @Test("a one-shot accepts only one value")
  func once() async {
    let shot = OneShot<Int>()
    #expect(shot.fulfil(1))
    #expect(!shot.fulfil(2))
    #expect(await shot.value() == 1)
    #expect(!shot.fulfil(3))
  }

  @Test("a one-shot resumes a cancelled task, and accepts no value after that")
  func cancelled() async {
    let shot = OneShot<Int>()
    let waiter = Task { await shot.value() }
    await Task.yield()
    waiter.cancel()
    #expect(await waiter.value == nil)
    #expect(!shot.fulfil(1))
  }

  @Test("a one-shot resumes a task that was cancelled before it started")
  func cancelledBefore() async {
    let shot = OneShot<Int>()
    let waiter = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      return await shot.value()
    }
    #expect(await waiter.value == nil)
  }

  @Test("a one-shot waits no longer than its deadline")
  func deadline() async {
    #expect(await OneShot<Int>().value(before: .now + .milliseconds(5)) == nil)
    let shot = OneShot<Int>()
    async let value = shot.value(before: .now + .seconds(120))
    shot.fulfil(1)
    #expect(await value == 1)
  }

  @Test("a one-shot loses no value if fulfilling and cancelling race")
  func race() async {
    for _ in 0..<500 {
      let shot = OneShot<Int>()
      let waiter = Task { await shot.value() }
      async let wasTaken = Task.detached { shot.fulfil(1) }.value
      waiter.cancel()
      #expect(await (waiter.value != nil) == wasTaken)
    }
  }
}
