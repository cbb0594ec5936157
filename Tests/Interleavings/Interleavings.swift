import CInterleavings
import Glibc
import TestSupport

/// Runs the job engine with all its concurrency in an order that a seed decides: one seed, one order.
///
/// `Interleavings FIRST COUNT [PLANT]` runs COUNT seeds from FIRST on, each in a process of its own. If the
/// environment variable `SEED` is set, it runs only that seed. It prints the faults of each failed seed. At the end
/// it prints the counts and a digest of all decisions, which is the same for the same seeds. Exit status: 1 if a seed
/// failed, 3 if the program can't run here.
@main
enum Interleavings {
  static func main() {
    CInterleavings_fixAddresses()
    guard CInterleavings_isAvailable() else {
      print("not available with a sanitizer")
      exit(3)
    }
    // Before anything is allocated that depends on the arguments.
    let template = Template()
    var arguments = CommandLine.arguments.dropFirst().makeIterator()
    let first = arguments.next().flatMap { UInt64($0) } ?? 1
    let count = arguments.next().flatMap { UInt64($0) } ?? 1
    let plant = arguments.next().flatMap { World.Plant(rawValue: $0) }
    let seeds =
      getenv("SEED").flatMap { UInt64(String(cString: $0)) }.map { $0...$0 }
      ?? first...first + max(1, count) - 1
    var total = Report(seed: 0)
    var failures = 0
    for report in template.run(seeds, plant) {
      total.add(report)
      if !report.isRight { failures += 1 }
      if let end = report.end { print("SEED=\(report.seed): its process ended with \(end)") }
    }
    print(
      "seeds \(seeds.count) failed \(failures) decisions \(total.steps) interruptions \(total.interruptions) jobs \(total.jobs) digest \(total.trace)"
    )
    exit(failures == 0 ? 0 : 1)
  }

  /// The result of a seed.
  struct Report {
    let seed: UInt64
    var steps: UInt64 = 0
    var interruptions: UInt64 = 0
    var jobs: UInt64 = 0
    var trace: UInt64 = 0
    var isRight = false
    /// The status of a process that sent no report; otherwise 0.
    var status: Int32 = 0

    /// How a process ended that sent no report; otherwise nil.
    var end: String? {
      if status == 0 { return nil }
      return status & 127 == 0 ? "code \(status >> 8)" : "signal \(status & 127)"
    }

    /// Adds a report. The order does not matter.
    mutating func add(_ other: Report) {
      steps += other.steps
      interruptions += other.interruptions
      jobs += other.jobs
      trace &+= other.trace &* (2 &* other.seed &+ 1)
    }
  }

  /// A process whose copies run the seeds. Its memory is the same in every run of the program, and starting a copy does
  /// not change it. So a seed gives the same order whether it runs alone or after others.
  private struct Template {
    private struct Order {
      let seed: UInt64
      let plant: World.Plant?
    }

    private let orders: Int32
    private let reports: Int32

    init() {
      let (orders, reports) = (Pipe(), Pipe())
      (self.orders, self.reports) = (orders.input, reports.output)
      guard CInterleavings_fork() == 0 else {
        close(orders.output)
        close(reports.input)
        return
      }
      close(orders.input)
      Self.copy(orders.output, reports.input)
    }

    /// Runs the seeds, two at a time.
    func run(_ seeds: ClosedRange<UInt64>, _ plant: World.Plant?) -> [Report] {
      var done: [Report] = []
      var sent = 0
      func receive() {
        // A seed takes at most 120 seconds.
        var input = pollfd(fd: reports, events: Int16(POLLIN), revents: 0)
        guard poll(&input, 1, 150_000) == 1,
          let report = Interleavings.receive(Report.self, from: reports)
        else { fatalError("the process of a seed ended without a report") }
        done.append(report)
      }
      for seed in seeds {
        if sent - done.count == 2 { receive() }
        send(Order(seed: seed, plant: plant), to: orders)
        sent += 1
      }
      while done.count < sent { receive() }
      return done
    }

    /// The program of the template. Its loop allocates nothing.
    private static func copy(_ orders: Int32, _ reports: Int32) -> Never {
      warmUp()
      let store = MemoryJobStore { World.now }
      var status: Int32 = 0
      while let order = receive(Order.self, from: orders) {
        while waitpid(-1, &status, WNOHANG) > 0 {}
        // A process in between reports a crash, so that the template need not wait.
        let middle = CInterleavings_fork()
        if middle < 0 { _exit(1) }
        if middle > 0 { continue }
        let copy = CInterleavings_fork()
        if copy < 0 { _exit(1) }
        if copy == 0 {
          let report = Interleavings.run(order.seed, order.plant, store)
          fflush(nil)
          send(report, to: reports)
          _exit(0)
        }
        while waitpid(copy, &status, 0) == -1, errno == EINTR {}
        if status != 0 { send(Report(seed: order.seed, status: status), to: reports) }
        _exit(0)
      }
      _exit(0)
    }
  }

  /// A pipe between processes.
  private struct Pipe {
    let output: Int32
    let input: Int32

    init() {
      var ends: [Int32] = [-1, -1]
      guard pipe(&ends) == 0 else { fatalError("pipe() failed") }
      (output, input) = (ends[0], ends[1])
    }
  }

  private static func send<Value: BitwiseCopyable>(_ value: Value, to pipe: Int32) {
    _ = withUnsafeBytes(of: value) { write(pipe, $0.baseAddress, $0.count) }
  }

  /// - Returns: nil at the end.
  private static func receive<Value: BitwiseCopyable>(
    _ type: Value.Type, from pipe: Int32
  ) -> Value? {
    withUnsafeTemporaryAllocation(of: Value.self, capacity: 1) { buffer in
      let size = MemoryLayout<Value>.size
      return read(pipe, buffer.baseAddress, size) == size ? buffer[0] : nil
    }
  }

  /// Fills the caches of the Swift runtime before the first fork. Otherwise each child would fill its own.
  private static func warmUp() {
    CInterleavings_begin(CInterleavings_Rules(seed: 0, interrupts: false))
    let root = Task.detached {
      let store = MemoryJobStore { World.now }
      await World(seed: 0, interrupts: false, plant: nil, store: store).run()
      CInterleavings_stop()
    }
    _ = CInterleavings_run(3_000_000, 4 * 3600)
    withExtendedLifetime(root) {}
    CInterleavings_reset()
  }

  private static func run(_ seed: UInt64, _ plant: World.Plant?, _ store: MemoryJobStore) -> Report
  {
    // Every other seed also interrupts jobs between suspension points.
    let interrupts = seed % 2 == 1
    // Kills the process if it hangs outside the scheduler.
    alarm(120)
    CInterleavings_begin(CInterleavings_Rules(seed: seed, interrupts: interrupts))
    let known = Later<World>()
    let root = Task.detached {
      let world = await World(
        seed: seed, interrupts: interrupts, plant: plant, store: store)
      known.value = world
      await world.run()
      CInterleavings_stop()
    }
    let outcome = CInterleavings_run(3_000_000, 4 * 3600)
    withExtendedLifetime(root) {}
    let world = known.value
    var faults = world?.faults.all ?? []
    switch outcome {
    case CInterleavings_finished: break
    case CInterleavings_stuck: faults.append("deadlock")
    default: faults.append("too many steps or too much time")
    }
    if outcome != CInterleavings_finished { faults += world?.waiting ?? [] }
    for fault in faults { print("SEED=\(seed): \(fault)") }
    var report = Report(seed: seed)
    report.steps = CInterleavings_steps()
    report.interruptions = CInterleavings_interruptions()
    report.jobs = UInt64(world?.ledger.jobs.count ?? 0)
    report.trace = CInterleavings_trace()
    report.isRight = faults.isEmpty
    return report
  }
}
