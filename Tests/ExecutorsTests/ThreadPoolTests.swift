import Executors
import Foundation
import Glibc
import Synchronization
import Testing

@Suite("A pool of threads of our own")
struct ThreadPoolTests {
  @Test("runs a closure off the shared threads")
  func runsElsewhere() async {
    let pool = ThreadPool(name: "test-pool", threads: 1)
    let name = await pool.run {
      try? String(contentsOfFile: "/proc/thread-self/comm", encoding: .utf8)
    }
    #expect(name == "test-pool\n")
  }

  @Test("steps back by as much as it is told")
  func niceness() async {
    let which = __priority_which_t(PRIO_PROCESS.rawValue)
    let before = getpriority(which, 0)
    let pool = ThreadPool(name: "test-pool", threads: 1, niceness: 3)
    #expect(await pool.run { getpriority(which, 0) } == min(19, before + 3))
  }

  @Test("what waits is run by priority, and in order within one")
  func priorities() async {
    let pool = ThreadPool(name: "test-pool", threads: 1)
    let order = Order()
    let open = Gate()
    async let blocked: Void = pool.run { open.wait() }
    await open.entered()
    await withTaskGroup { group in
      for (name, priority) in [
        ("low 1", TaskPriority.low), ("low 2", .low), ("high 1", .high), ("high 2", .high),
      ] {
        let task = Task(executorPreference: pool, priority: priority) {
          order.names.withLock { $0.append(name) }
        }
        group.addTask { await task.value }
      }
      open.open()
      await group.waitForAll()
    }
    await blocked
    let got = order.names.withLock { $0 }
    #expect(got == ["high 1", "high 2", "low 1", "low 2"])
  }
}

private final class Order: Sendable {
  let names = Mutex<[String]>([])
}

/// Blocks a thread until opened, and tells when it is blocked.
private final class Gate: Sendable {
  private let state = Mutex((entered: false, open: false))
  func wait() {
    state.withLock { $0.entered = true }
    while !state.withLock({ $0.open }) { usleep(200) }
  }
  func entered() async {
    while !state.withLock({ $0.entered }) { await Task.yield() }
  }
  func open() { state.withLock { $0.open = true } }
}
