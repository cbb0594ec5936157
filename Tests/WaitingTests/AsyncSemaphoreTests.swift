import Testing
import Waiting

@Suite("A semaphore", .timeLimit(.minutes(15)))
struct AsyncSemaphoreTests {
  @Test("a semaphore grants its number of permits, and another one when one is released")
  func atOnce() async {
    let semaphore = AsyncSemaphore(2)
    var held = [await semaphore.acquire(), await semaphore.acquire()]
    let third = Task { await semaphore.acquire() != nil }
    while semaphore.waiting < 1 { await Task.yield() }
    held.removeLast()
    #expect(await third.value)
    #expect(held.count == 1)
  }

  @Test("a semaphore grants permits in the order of the requests")
  func order() async {
    let semaphore = AsyncSemaphore(1)
    var held = [await semaphore.acquire()]
    let (passed, note) = AsyncStream<Int>.makeStream()
    var tasks: [Task<Void, Never>] = []
    for number in 0..<3 {
      tasks.append(
        Task {
          let permit = await semaphore.acquire()
          note.yield(number)
          _ = permit
        })
      while semaphore.waiting <= number { await Task.yield() }
    }
    held.removeAll()
    for task in tasks { await task.value }
    note.finish()
    var order: [Int] = []
    for await number in passed { order.append(number) }
    #expect(order == [0, 1, 2])
  }

  @Test("a semaphore grants all its permits to a request for more")
  func all() async {
    let semaphore = AsyncSemaphore(10)
    var all = await semaphore.acquire(100)
    #expect(all != nil)
    let other = Task { await semaphore.acquire() != nil }
    while semaphore.waiting < 1 { await Task.yield() }
    all = nil
    #expect(await other.value)
  }

  @Test("a semaphore may be overdrawn, and others wait until the deficit is released")
  func overdrawn() async {
    let semaphore = AsyncSemaphore(1)
    var first = await semaphore.acquire()
    var second: AsyncSemaphore.Permit? = semaphore.acquireImmediately(3)
    #expect((first != nil, second != nil) == (true, true))
    let third = Task { await semaphore.acquire() != nil }
    while semaphore.waiting < 1 { await Task.yield() }
    first = nil
    #expect(semaphore.waiting == 1)
    second = nil
    #expect(await third.value)
  }

  @Test("a semaphore resumes a cancelled waiter, and grants permits to those behind it")
  func cancelled() async {
    let semaphore = AsyncSemaphore(10)
    let first = await semaphore.acquire(6)
    let second = Task { await semaphore.acquire(6) == nil }
    while semaphore.waiting < 1 { await Task.yield() }
    let third = Task { await semaphore.acquire(4) != nil }
    while semaphore.waiting < 2 { await Task.yield() }
    second.cancel()
    #expect(await second.value)
    #expect(await third.value)
    _ = first
  }

  @Test("a semaphore loses no permit if releasing and cancelling race")
  func race() async {
    let semaphore = AsyncSemaphore(1)
    for _ in 0..<500 {
      var held = await semaphore.acquire()
      let waiter = Task { _ = await semaphore.acquire() }
      async let cancelled: Void = Task.detached { waiter.cancel() }.value
      #expect(held != nil)
      held = nil
      await cancelled
      await waiter.value
    }
    #expect(await semaphore.acquire() != nil)
  }
}
