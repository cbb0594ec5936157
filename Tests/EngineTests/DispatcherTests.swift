import Logging
import SQL
import Synchronization
import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("Claiming jobs for workers", .timeLimit(.minutes(15)))
struct DispatcherTests {
  /// A clock that a test can move ahead.
  private final class Clock: Sendable {
    private let ahead = Mutex(Duration.zero)
    private let step = Mutex(Duration.zero)
    var now: ContinuousClock.Instant { .now + ahead.withLock { $0 } }
    func move() { ahead.withLock { $0 += step.withLock { $0 } } }
    /// From now on each call of `move()` advances the clock by `step`.
    func begin(_ step: Duration) { self.step.withLock { $0 = step } }
  }

  private static let moment = Timestamp(milliseconds: 1_800_000_000_000)

  private static func queued(_ url: String) -> Job {
    Job(
      id: JobIDSequence().next(at: moment), owner: .anonymous,
      submission: Submission(source: .url(SourceURL(url)!, lowData: nil)), priority: .normal,
      tags: [], createdAt: moment)
  }

  @Test("an origin whose pause ends during a claim gets its job right after it")
  func pauseEnds() async throws {
    let clock = Clock()
    let room = CapacitySignal()
    let origins = OriginLimits(OriginRules(), clock: { clock.now }) { room.send() }
    let job = Self.queued("http://gone.example/")
    for _ in 0..<5 { try origins.enter("http://gone.example")?.record(.unreached) }
    #expect(origins.paused == 1)
    let store = MemoryJobStore {
      // Called right after the origins were checked for room, which still found a pause.
      clock.move()
      return Self.moment
    }
    #expect(try await store.submit([job], key: nil, capacity: 10) == .accepted)
    let lease = Lease(
      store: store, membership: Membership(store: store), duration: .seconds(3_600),
      loads: NoJobs(),
      clock: StoreClock { Self.moment },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    try await lease.begin()
    let dispatcher = Dispatcher(
      store: store, lease: lease, origins: origins, positions: QueuePositions(since: Self.moment),
      gate: QueueGate(patience: .zero),
      storage: StorageState(
        images: MemoryImageStore(), records: store,
        log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }), room: room,
      now: { Self.moment }, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    clock.begin(.seconds(6))
    let (works, handed) = AsyncStream.makeStream(of: Dispatcher.Work.self)
    let hand = Hand(to: handed)
    async let running: Void = dispatcher.run([hand])
    let work = await works.first { _ in true }
    #expect(work?.job.id == job.id && work?.permit != nil)
    dispatcher.stop()
    dispatcher.workerIsIdle(hand)
    await running
  }

  @Test("a silent origin with many jobs leaves workers for other origins")
  func reserve() async throws {
    let room = CapacitySignal()
    let origins = OriginLimits(OriginRules()) { room.send() }
    let store = MemoryJobStore()
    let silent = (0..<20).map { Self.queued("http://silent.example/\($0)") }
    #expect(try await store.submit(silent, key: nil, capacity: 100) == .accepted)
    let lease = Lease(
      store: store, membership: Membership(store: store), duration: .seconds(3_600),
      loads: NoJobs(),
      clock: StoreClock { Self.moment },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    try await lease.begin()
    let dispatcher = Dispatcher(
      store: store, lease: lease, origins: origins, positions: QueuePositions(since: Self.moment),
      gate: QueueGate(patience: .zero),
      storage: StorageState(
        images: MemoryImageStore(), records: store,
        log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }), room: room,
      now: { Self.moment },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    let taken = AsyncStream<Dispatcher.Work>.makeStream()
    let hands = (0..<8).map { _ in Hand(to: taken.continuation) }
    async let running: Void = dispatcher.run(hands)
    var works = taken.stream.makeAsyncIterator()
    // The permits are held, because a released one would end its transfer at once.
    var held: [Dispatcher.Work] = []
    for _ in 0..<4 { held += [await works.next()].compactMap(\.self) }
    #expect(held.allSatisfy { $0.job.origin == "http://silent.example" })
    let other = Self.queued("http://other.example/")
    #expect(try await store.submit([other], key: nil, capacity: 100) == .accepted)
    dispatcher.wake()
    let work = await works.next()
    #expect(work?.job.id == other.id)
    dispatcher.stop()
    // Five workers are busy.
    for hand in hands.prefix(5) { dispatcher.workerIsIdle(hand) }
    await running
    withExtendedLifetime(held) {}
  }

  @Test("an empty queue is checked again after a time if the store can lose answers")
  func untold() async throws {
    let room = CapacitySignal()
    let origins = OriginLimits(OriginRules()) { room.send() }
    let store = MemoryJobStore()
    let log = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    let lease = Lease(
      store: store, membership: Membership(store: store), duration: .seconds(3_600),
      loads: NoJobs(), clock: StoreClock { Self.moment }, log: log)
    try await lease.begin()
    let dispatcher = Dispatcher(
      store: store, lease: lease, origins: origins, positions: QueuePositions(since: Self.moment),
      gate: QueueGate(patience: .zero),
      storage: StorageState(
        images: MemoryImageStore(), records: store,
        log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }), room: room,
      patience: .milliseconds(5),
      now: { Self.moment }, log: log)
    let (works, handed) = AsyncStream.makeStream(of: Dispatcher.Work.self)
    let hand = Hand(to: handed)
    async let running: Void = dispatcher.run([hand])
    try await until { dispatcher.isEmpty }
    let job = Self.queued("http://a.example/")
    #expect(try await store.submit([job], key: nil, capacity: 10) == .accepted)
    let work = await works.first { _ in true }
    #expect(work?.job.id == job.id)
    dispatcher.stop()
    dispatcher.workerIsIdle(hand)
    await running
  }
}

/// A worker that only passes on the jobs it gets.
private final class Hand: QueueWorker {
  private let works: AsyncStream<Dispatcher.Work>.Continuation

  init(to works: AsyncStream<Dispatcher.Work>.Continuation) { self.works = works }

  func start(_ work: Dispatcher.Work) { works.yield(work) }
}
