import Executors
import Foundation
import Glibc
import Synchronization
import Testing

@Suite("A thread pool")
struct ThreadPoolTests {
  @Test("a thread pool runs a closure off the shared threads")
  func runsElsewhere() async {
    let pool = ThreadPool(name: "test-pool", threads: 1)
    let name = await pool.run {
      try? String(contentsOfFile: "/proc/thread-self/comm", encoding: .utf8)
    }
    #expect(name == "test-pool\n")
  }

  @Test("a thread pool lowers the priority of its threads by its niceness")
  func niceness() async {
    let which = __priority_which_t(PRIO_PROCESS.rawValue)
    let before = getpriority(which, 0)
    let pool = ThreadPool(name: "test-pool", threads: 1, niceness: 3)
    #expect(await pool.run { getpriority(which, 0) } == min(19, before + 3))
  }

  @Test("waiting work runs by priority, and in order within one priority")
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

  @Test(
    "an actor's jobs run one at a time on the pool's threads, after jobs of a higher priority"
  )
  func serialLane() async {
    let pool = ThreadPool(name: "test-pool", threads: 3)
    let worker = Counter(on: pool.serialLane(priority: 1))
    await withTaskGroup { group in
      for _ in 0..<100 { group.addTask { await worker.count() } }
    }
    #expect(await worker.total == 100)
    #expect(await worker.threads == ["test-pool\n"])

    let single = ThreadPool(name: "test-pool", threads: 1)
    let open = Gate()
    async let blocked: Void = single.run { open.wait() }
    await open.entered()
    let order = Order()
    let before = single.enqueuedCount
    let low = Namer("low", on: single.serialLane(priority: 1), order)
    let high = Namer("high", on: single.serialLane(priority: 2), order)
    let lane = single.serialLane(priority: 1)
    let raised = Namer("raised", on: lane, order)
    lane.setPriority(3)
    let tasks = [low, high, raised].map { namer in Task { await namer.tell() } }
    while single.enqueuedCount < before + 3 { await Task.yield() }
    open.open()
    for task in tasks { await task.value }
    await blocked
    #expect(order.names.withLock { $0 } == ["raised", "high", "low"])
  }

  @Test("an actor whose lane is raised while it waits for a thread runs first, and runs once")
  func raisedWhileWaiting() async {
    let pool = ThreadPool(name: "test-pool", threads: 1)
    let open = Gate()
    async let blocked: Void = pool.run { open.wait() }
    await open.entered()
    let order = Order()
    let before = pool.enqueuedCount
    let lane = pool.serialLane(priority: 1)
    let namers = [
      Namer("low", on: pool.serialLane(priority: 2), order), Namer("raised", on: lane, order),
    ]
    let tasks = namers.map { namer in Task { await namer.tell() } }
    while pool.enqueuedCount < before + 2 { await Task.yield() }
    lane.setPriority(1)
    #expect(pool.enqueuedCount == before + 2)
    for priority: UInt8 in [3, 2, 4] { lane.setPriority(priority) }
    #expect(pool.enqueuedCount == before + 4, "only a higher priority adds an entry")
    open.open()
    for task in tasks { await task.value }
    await blocked
    #expect(order.names.withLock { $0 } == ["raised", "low"])
    await namers[1].tell()
    #expect(order.names.withLock { $0 } == ["raised", "low", "raised"])
  }
}

/// Counts without a lock. The count would be wrong if two of its jobs ran at the same time.
private actor Counter {
  nonisolated let unownedExecutor: UnownedSerialExecutor
  private let lane: ThreadPool.SerialLane
  private(set) var total = 0
  private(set) var threads: Set<String> = []

  init(on lane: ThreadPool.SerialLane) {
    self.lane = lane
    unownedExecutor = lane.asUnownedSerialExecutor()
  }

  func count() {
    let before = total
    usleep(50)
    total = before + 1
    threads.insert((try? String(contentsOfFile: "/proc/thread-self/comm", encoding: .utf8)) ?? "")
  }
}

private actor Namer {
  nonisolated let unownedExecutor: UnownedSerialExecutor
  private let lane: ThreadPool.SerialLane
  private let name: String
  private let order: Order

  init(_ name: String, on lane: ThreadPool.SerialLane, _ order: Order) {
    self.lane = lane
    unownedExecutor = lane.asUnownedSerialExecutor()
    self.name = name
    self.order = order
  }

  func tell() { order.names.withLock { $0.append(name) } }
}

private final class Order: Sendable {
  let names = Mutex<[String]>([])
}

/// Blocks a thread until it is opened, and reports when the thread is blocked.
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
