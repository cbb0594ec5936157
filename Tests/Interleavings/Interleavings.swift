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
    var arguments = CommandLine.arguments.dropFirst().makeIterator()
    let first = arguments.next().flatMap { UInt64($0) } ?? 1
    let count = arguments.next().flatMap { UInt64($0) } ?? 1
    let plant = arguments.next().flatMap { World.Plant(rawValue: $0) }
    let seeds =
      getenv("SEED").flatMap { UInt64(String(cString: $0)) }.map { $0...$0 }
      ?? first...first + max(1, count) - 1
    var total = Report()
    var failures = 0
    warmUp()
    // Each child process has a copy of it, which saves the time to create the tables.
    let store = MemoryJobStore { World.now }
    // One seed runs while the next one starts.
    var last: Child?
    func collect() {
      guard let report = last?.report() else { return }
      total.add(report)
      if !report.isRight { failures += 1 }
    }
    for seed in seeds {
      let child = Self.fork(seed, plant, store)
      collect()
      last = child
    }
    collect()
    print(
      "seeds \(seeds.count) failed \(failures) decisions \(total.steps) interruptions \(total.interruptions) jobs \(total.jobs) digest \(total.trace)"
    )
    exit(failures == 0 ? 0 : 1)
  }

  /// The result of a seed, sent by its process to the parent process.
  private struct Report {
    var steps: UInt64 = 0
    var interruptions: UInt64 = 0
    var jobs: UInt64 = 0
    var trace: UInt64 = 0
    var isRight = false

    mutating func add(_ other: Report) {
      steps += other.steps
      interruptions += other.interruptions
      jobs += other.jobs
      trace = (trace ^ other.trace) &* 0x9E37_79B9_7F4A_7C15
    }
  }

  /// The process of a seed.
  private struct Child {
    let seed: UInt64
    let process: Int32
    let pipe: Int32

    /// Waits for the end of the process.
    func report() -> Report {
      var report = Report()
      let count = withUnsafeMutableBytes(of: &report) { read(pipe, $0.baseAddress, $0.count) }
      close(pipe)
      var status: Int32 = 0
      while waitpid(process, &status, 0) == -1, errno == EINTR {}
      guard count == MemoryLayout<Report>.size else {
        let how = status & 127 == 0 ? "code \(status >> 8)" : "signal \(status & 127)"
        print("SEED=\(seed): its process ended with \(how)")
        return Report()
      }
      return report
    }
  }

  private static func fork(_ seed: UInt64, _ plant: World.Plant?, _ store: MemoryJobStore) -> Child
  {
    var ends: [Int32] = [-1, -1]
    guard pipe(&ends) == 0 else { fatalError("pipe() failed") }
    let child = CInterleavings_fork()
    guard child != 0 else {
      let report = run(seed, plant, store)
      _ = withUnsafeBytes(of: report) { write(ends[1], $0.baseAddress, $0.count) }
      fflush(nil)
      _exit(0)
    }
    close(ends[1])
    return Child(seed: seed, process: child, pipe: ends[0])
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
    var report = Report()
    report.steps = CInterleavings_steps()
    report.interruptions = CInterleavings_interruptions()
    report.jobs = UInt64(world?.ledger.jobs.count ?? 0)
    report.trace = CInterleavings_trace()
    report.isRight = faults.isEmpty
    return report
  }
}
