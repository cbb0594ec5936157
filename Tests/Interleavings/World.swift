import CInterleavings
import Engine
import Jobs
import Logging
import SQL
import TestSupport

/// The service, clients and origins of one seed.
final class World: Sendable {
  /// A planted fault, to check that it is found.
  enum Plant: String { case lostUpdate = "lost-update", miscount }

  let faults = Faults()
  let ledger: Ledger
  let origins: Origins
  /// Whether the service stops in the middle of the run and starts again.
  let stops: Bool
  private let store: MemoryJobStore
  private let images = MemoryImageStore()
  private let configuration: JobEngine.Configuration
  private let hasLowData: Bool
  private let numbers: Numbers
  private static let urls = 6

  /// - Parameter store: an empty store, with the clock ``now``.
  init(seed: UInt64, interrupts: Bool, plant: Plant?, store: MemoryJobStore) async {
    var numbers = Numbers(seed)
    stops = numbers.once(in: 3)
    hasLowData = numbers.once(in: 3)
    let limit = numbers.number(1...3)
    ledger = Ledger(faults)
    origins = Origins(
      Self.urls, limit: limit, &numbers, isStrict: !interrupts && !hasLowData,
      miscounts: plant == .miscount, faults)
    ledger.setRefusing(
      Set(
        origins.plans.filter { $0.failures.contains(.connectFailure) }.map(\.url.origin)))
    var configuration = JobEngine.Configuration()
    configuration.workers = numbers.number(1...4)
    configuration.maxPerOrigin = limit
    configuration.timeout = .seconds(2)
    // Long, because time advances by days while no job can run.
    configuration.retention = .seconds(100 * 86_400)
    configuration.retry.initialBackoff = .milliseconds(20)
    configuration.cache.isEnabled = !numbers.once(in: 3)
    configuration.isConstrained = hasLowData && numbers.once(in: 2)
    // Long, because a store with a single instance reuses the name of an image that is stored again. Work begun under
    // a lost lease must not end later.
    configuration.lease = .seconds(600)
    self.configuration = configuration
    self.store = store
    self.numbers = numbers
    await store.calls.show { [ledger] before, after in ledger.checkStored(before, after) }
    if plant == .lostUpdate { await store.calls.tear() }
  }

  private let calls = Later<[Int: String]>()

  /// Records the call that a client makes now; nil: none.
  func recordCall(_ number: Int, _ what: String?) {
    var calls = calls.value ?? [:]
    calls[number] = what
    self.calls.value = calls
  }

  /// Describes the calls and jobs that have not ended.
  var waiting: [String] {
    (calls.value ?? [:]).map { "client \($0.key) waits: \($0.value)" }
      + ledger.jobs.compactMap { id in
        guard let entry = ledger[id], !entry.phase.isFinished else { return nil }
        return "\(id) is \(entry.phase)"
      }
  }

  static var now: Timestamp {
    Timestamp(milliseconds: 1_800_000_000_000 + CInterleavings_now() / 1_000_000)
  }

  func newJob(_ numbers: inout Numbers) -> NewJob {
    let number = numbers.number(0...Self.urls - 1)
    // The cache mode depends on the URL, so that jobs with the same URL share its transfer.
    let other = origins.plans[(number + 3) % Self.urls].url
    var submission = Submission(
      source: .url(
        origins.plans[number].url, lowData: hasLowData && numbers.once(in: 2) ? other : nil))
    submission.cacheMode = number % 3 == 0 ? .noStore : .default
    if numbers.once(in: 5) { submission.alternatives = [other] }
    if numbers.once(in: 6) { submission.timeout = .milliseconds(numbers.number(1...200)) }
    if numbers.once(in: 3) { submission.maxAttempts = numbers.number(1...2) }
    return NewJob(
      submission: submission, priority: Priority.allCases.randomElement(using: &numbers)!)
  }

  private func makeEngine() -> JobEngine {
    let parts = JobEngine.Parts(
      store: store, images: images, spool: images.spool, fetcher: origins, codec: FakeCodec(),
      threads: ScheduledThreads())
    return JobEngine(
      configuration, parts, now: { World.now },
      log: Logger(label: "interleavings") { _ in SwiftLogNoOpLogHandler() })
  }

  /// Runs a service while the body runs, then stops it.
  private func serve(
    stopWithin limit: Duration, _ body: @escaping @Sendable (JobEngine) async -> Void
  ) async {
    let engine = makeEngine()
    let (ready, isReady) = AsyncStream.makeStream(of: Void.self)
    await withTaskGroup { group in
      group.addTask { [faults] in
        do { try await engine.run { isReady.finish() } } catch {
          faults.record("failed to start: \(error)")
        }
      }
      for await _ in ready {}
      await body(engine)
      await engine.drain(within: limit)
      await group.waitForAll()
    }
  }

  private func crowd(_ engine: JobEngine, _ numbers: Numbers) async {
    var numbers = numbers
    let count = numbers.number(2...4)
    await withTaskGroup { group in
      for number in 0..<count {
        let own = Numbers(numbers.next())
        let steps = numbers.number(2...10)
        group.addTask { [self] in
          var client = RandomClient(number, of: self, engine, own)
          await client.work(steps)
        }
      }
    }
  }

  /// Runs the clients until every job has ended.
  func run() async {
    var numbers = numbers
    let first = Numbers(numbers.next())
    if stops {
      let pause = Duration.milliseconds(numbers.number(0...300))
      let limit = Duration.milliseconds(numbers.number(0...200))
      let clients = Later<Task<Void, Never>>()
      await serve(stopWithin: limit) { [self] engine in
        clients.value = Task { await self.crowd(engine, first) }
        try? await Task.sleep(for: pause)
      }
      await clients.value?.value
    }
    let last = Numbers(numbers.next())
    await serve(stopWithin: .zero) { [self] engine in
      if !stops { await crowd(engine, first) }
      await crowd(engine, last)
      var client = RandomClient(0, of: self, engine, last)
      await client.finish()
    }
    await audit()
  }

  /// Checks that the stored state is exactly the reported one.
  private func audit() async {
    do {
      for held in try await store.leftovers { faults.record("\(held) was not cleaned up") }
    } catch { faults.record("the store failed: \(error)") }
    origins.expectIdle()
    for id in ledger.jobs {
      guard let entry = ledger[id] else { continue }
      let job = try? await store.job(id)
      guard let job else {
        faults.expect(entry.mayBePurged, "\(id) is lost")
        continue
      }
      faults.expect(job.phase.isFinished, "\(id) is still \(job.phase)")
      faults.expect(job.phase == entry.phase, "\(id) is \(job.phase), not \(entry.phase)")
      guard job.phase == .success, let image = job.image, image.isKept else { continue }
      let bytes = try? await images.open(image.digest)
      let plan = image.url.flatMap(origins.plan)
      let read = bytes.map { $0.read(at: 0, count: 1 << 20) }
      faults.expect(
        read == plan?.bytes,
        "\(id) has \(read.map { "\($0.count)" } ?? "no") bytes of \(image.url?.string ?? "nothing")"
      )
    }
  }
}
