import Jobs
import Synchronization
import TestSupport
import Testing

@testable import Engine

@Suite("The gate of a full queue")
struct QueueGateTests {
  private static let patience = Duration.milliseconds(200)
  private let clock = Clock()
  private let gate: QueueGate
  private let anna = QueueGate.Client(Owner("anna"), 10)

  /// A monotonic clock that a test sets.
  private final class Clock: Sendable {
    private let moment = Mutex(ContinuousClock.now)
    var now: ContinuousClock.Instant { moment.withLock { $0 } }
    func advance(by duration: Duration) { moment.withLock { $0 += duration } }
  }

  init() { gate = QueueGate(patience: Self.patience, clients: 2) { [clock] in clock.now } }

  /// Asks the store, which refuses.
  private func refuse(_ client: QueueGate.Client, wanting places: Int = 1) throws {
    gate.recordRefusal(of: try #require(gate.admit(places, of: client)), slots: places)
  }

  private func dequeue(_ count: Int, of batch: BatchPosition? = nil) {
    let source = Source.url(SourceURL("http://a.example/")!, lowData: nil)
    gate.recordDepartures(
      (0..<count).map { _ in
        Job(
          NewJob(submission: Submission(source: source)),
          id: JobID(at: Timestamp(milliseconds: 1)),
          owner: Owner("ben"), createdAt: Timestamp(milliseconds: 1), batch: batch)
      })
  }

  @Test("the gate refuses after a refusal by the store, for as long as it is configured to")
  func moment() throws {
    #expect(!gate.isClosed(to: anna, for: 1))
    try refuse(anna)
    clock.advance(by: Self.patience - .nanoseconds(1))
    #expect(gate.isClosed(to: anna, for: 1) && gate.admit(1, of: anna) == nil)
    clock.advance(by: .nanoseconds(1))
    #expect(!gate.isClosed(to: anna, for: 1) && gate.admit(1, of: anna) != nil)
  }

  @Test(
    "a smaller submission asks the store, and its refusal then covers all larger ones")
  func places() throws {
    try refuse(anna, wanting: 3)
    #expect(gate.isClosed(to: anna, for: 3) && gate.isClosed(to: anna, for: 4))
    #expect(!gate.isClosed(to: anna, for: 2) && !gate.isClosed(to: anna, for: 0))
    try refuse(anna, wanting: 2)
    #expect(gate.isClosed(to: anna, for: 2) && !gate.isClosed(to: anna, for: 1))
    // A late refusal of more slots does not prolong the refusal of fewer.
    clock.advance(by: Self.patience / 2)
    gate.recordRefusal(of: gate.admitAnyway(anna), slots: 5)
    clock.advance(by: Self.patience / 2)
    #expect(!gate.isClosed(to: anna, for: 5))
  }

  @Test("the gate compares the slots that the store counts, which may be several per job")
  func longJob() throws {
    let admission = try #require(gate.admit(1, of: anna))
    gate.recordRefusal(of: admission, slots: 4)
    #expect(gate.admit(1, of: anna) != nil, "a short job may still fit")
    #expect(gate.admit(4, of: anna) == nil)
  }

  @Test("each job that leaves the queue lets one submission through, except jobs of batches")
  func departures() throws {
    try refuse(anna)
    dequeue(2, of: BatchPosition(id: BatchID(at: Timestamp(milliseconds: 1)), line: 1))
    #expect(gate.admit(1, of: anna) == nil)
    dequeue(3)
    for _ in 0..<3 {
      #expect(!gate.isClosed(to: anna, for: 1))
      #expect(gate.admit(1, of: anna) != nil)
    }
    #expect(gate.isClosed(to: anna, for: 1) && gate.admit(1, of: anna) == nil)
  }

  @Test(
    "a refusal covers only the departures that the store knew of"
  )
  func order() throws {
    try refuse(anna)
    let early = gate.admitAnyway(anna)
    dequeue(5)
    try refuse(anna)
    #expect(gate.admit(1, of: anna) == nil)
    dequeue(1)
    gate.recordRefusal(of: early, slots: 1)
    #expect(gate.admit(1, of: anna) != nil)
    #expect(gate.admit(1, of: anna) == nil)
  }

  @Test("a refusal does not apply to another owner or to another capacity")
  func clients() throws {
    try refuse(anna)
    let ben = QueueGate.Client(Owner("ben"), 10)
    #expect(gate.admit(1, of: ben) != nil)
    #expect(
      gate.admit(1, of: QueueGate.Client(Owner("anna"), QueueCapacity(10, ofOwner: 5))) != nil)
    try refuse(ben)
    // A submission of one client uses nothing that belongs to the other.
    dequeue(1)
    for client in [anna, ben] {
      #expect(gate.admit(1, of: client) != nil)
      #expect(gate.admit(1, of: client) == nil)
    }
  }

  @Test("the gate remembers a limited number of clients, and forgotten ones ask the store")
  func forgotten() throws {
    for name in ["anna", "ben", "carl"] { try refuse(QueueGate.Client(Owner(name), 10)) }
    #expect(gate.admit(1, of: anna) != nil)
    #expect(gate.admit(1, of: QueueGate.Client(Owner("carl"), 10)) == nil)
  }
}

/// The engine in front of a full queue. Its only worker is busy for the whole test.
@Suite("A full queue", .timeLimit(.minutes(15)))
struct FullQueueTests {
  private static let anna = Caller(owner: Owner("anna"), isAdmin: false)
  private static let ben = Caller(owner: Owner("ben"), isAdmin: false)

  /// Submits jobs, each with a URL of its own that never responds.
  private final class Desk: Sendable {
    let shop: Workshop
    let busy: JobID
    private let count = Mutex(0)

    init(_ shop: Workshop, busy: JobID) { (self.shop, self.busy) = (shop, busy) }

    func new(_ mode: CacheMode) -> NewJob {
      let number = count.withLock { count in
        count += 1
        return count
      }
      let url = "http://silent.example/\(number)"
      shop.fetcher.answer(url, with: .hangs(after: ok))
      var submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
      submission.cacheMode = mode
      return NewJob(submission: submission)
    }

    func submit(
      by caller: Caller = anna, mode: CacheMode = .noStore, key: IdempotencyKey? = nil
    ) async throws -> JobID {
      try await shop.engine.submit([new(mode)], by: caller, key: key)[0].id
    }

    /// Submits one more job; returns whether it was refused, and by what.
    func refusal(
      by caller: Caller = anna, mode: CacheMode = .noStore, key: IdempotencyKey? = nil
    ) async throws -> Refusal {
      let before = await shop.store.calls.count(of: .submit)
      do throws(JobsError) {
        _ = try await shop.engine.submit([new(mode)], by: caller, key: key)
      } catch {
        #expect(error == .queueFull)
        return await shop.store.calls.count(of: .submit) == before ? .atTheGate : .byTheStore
      }
      return .none
    }
  }

  private enum Refusal { case none, byTheStore, atTheGate }

  private func open(
    places: Int = 2, stands: Duration = .seconds(3_600), _ body: (Desk) async throws -> Void
  ) async throws {
    try await Workshop.open({
      $0.workers = 1
      $0.maxQueued = places
      $0.refusalDuration = stands
    }) { shop in
      shop.fetcher.answer("http://busy.example/", with: .hangs(after: ok))
      let busy = try await shop.submit("http://busy.example/")
      _ = try await shop.reached(.loading, busy)
      try await body(Desk(shop, busy: busy))
    }
  }

  @Test("a full queue is asked again only after a job was cancelled, purged or started")
  func departures() async throws {
    try await open { desk in
      let (first, second) = (try await desk.submit(), try await desk.submit())
      #expect(try await desk.refusal() == .byTheStore)
      for _ in 0..<3 { #expect(try await desk.refusal() == .atTheGate) }

      _ = try await desk.shop.engine.cancel(first, for: Self.anna)
      #expect(try await desk.refusal() == .none)
      #expect(try await desk.refusal() == .atTheGate)

      try await desk.shop.engine.purge(second, for: Self.anna)
      #expect(try await desk.refusal() == .none)
      #expect(try await desk.refusal() == .atTheGate)

      // This job was not queued, so it frees no slot.
      _ = try await desk.shop.engine.cancel(first, for: Self.anna)
      #expect(try await desk.refusal() == .atTheGate)

      // The free worker starts one of the queued jobs.
      let before = await desk.shop.store.calls.count(of: .submit)
      _ = try await desk.shop.engine.cancel(desk.busy, for: Workshop.me)
      var taken = 0
      try await until {
        if try await desk.refusal() == .none { taken += 1 }
        return taken > 0
      }
      for _ in 0..<3 { #expect(try await desk.refusal() == .atTheGate) }
      #expect(await desk.shop.store.calls.count(of: .submit) == before + 1)
    }
  }

  @Test("a full queue is asked each time if refusals are not remembered")
  func expiry() async throws {
    try await open(stands: .zero) { desk in
      for _ in 0..<2 { _ = try await desk.submit() }
      for _ in 0..<3 { #expect(try await desk.refusal() == .byTheStore) }
    }
  }

  @Test("a known idempotency key is answered while the queue is full, a new one asks the store")
  func keys() async throws {
    func key(_ name: String) -> IdempotencyKey {
      IdempotencyKey(
        owner: Self.anna.owner, key: name, fingerprint: MemoryImageStore.digest(of: [1]))
    }
    try await open { desk in
      let first = try await desk.submit(key: key("k"))
      _ = try await desk.submit()
      #expect(try await desk.refusal(key: key("l")) == .byTheStore)
      // The refusal also applies to submissions without a key.
      #expect(try await desk.refusal() == .atTheGate)
      #expect(try await desk.submit(key: key("k")) == first)
      #expect(try await desk.refusal(key: key("l")) == .byTheStore)
    }
  }

  @Test("an owner with free slots is accepted, however often another owner asks")
  func fairness() async throws {
    try await open { desk in
      let mine = [try await desk.submit(), try await desk.submit()]
      #expect(try await desk.refusal(by: Self.anna) == .byTheStore)
      #expect(try await desk.refusal(by: Self.ben) == .byTheStore)
      for _ in 0..<5 { #expect(try await desk.refusal(by: Self.anna) == .atTheGate) }
      _ = try await desk.shop.engine.cancel(mine[0], for: Self.anna)
      // Anna asks first, but she already has half of the queue; the slot is for another owner.
      #expect(try await desk.refusal(by: Self.anna) == .byTheStore)
      for _ in 0..<5 { #expect(try await desk.refusal(by: Self.anna) == .atTheGate) }
      #expect(try await desk.refusal(by: Self.ben) == .none)
    }
  }

  @Test("an owner that reached its own limit does not stop other owners")
  func ownPart() async throws {
    try await open(places: 10) { desk in
      let bound = Caller(
        owner: Owner("anna"), isAdmin: false, limits: OwnerLimits(maxQueued: 1))
      _ = try await desk.submit(by: bound)
      #expect(try await desk.refusal(by: bound) == .byTheStore)
      #expect(try await desk.refusal(by: bound) == .atTheGate)
      #expect(try await desk.refusal(by: Self.ben) == .none)
      #expect(try await desk.refusal(by: Self.anna) == .none, "her other token has no limit")
    }
  }

  @Test(
    "a full queue refuses neither cached answers nor, after a long batch, a shorter one")
  func others() async throws {
    try await open { desk in
      _ = try await desk.shop.engine.cancel(desk.busy, for: Workshop.me)
      desk.shop.fetcher.answer("http://cached.example/", with: .pieces([ok], total: nil))
      _ = try await desk.shop.finished(desk.shop.submit("http://cached.example/"))
      let again = try await desk.shop.submit("http://busy.example/")
      _ = try await desk.shop.reached(.loading, again)

      let three = (0..<3).map { _ in desk.new(.noStore) }
      await #expect(throws: JobsError.queueFull) {
        try await desk.shop.engine.submit(three, by: Self.anna, key: nil)
      }
      for _ in 0..<2 { #expect(try await desk.refusal() == .none) }
      #expect(try await desk.refusal() == .byTheStore)

      // The stored response states no freshness, so it is used with force-cache.
      var stored = Submission(
        source: .url(SourceURL("http://cached.example/")!, lowData: nil))
      stored.cacheMode = .forceCache
      let answered = try await desk.shop.engine.submit(
        [NewJob(submission: stored)], by: Self.anna, key: nil)[0].snapshot?.job
      #expect(answered?.phase == .success && answered?.cache?.status == .hit)
      #expect(try await desk.refusal(mode: .forceCache) == .atTheGate)
    }
  }

  @Test("an uploaded image is not stored if its job is refused")
  func captured() async throws {
    try await open { desk in
      for _ in 0..<2 { _ = try await desk.submit() }
      func upload(_ bytes: [UInt8]) async throws {
        let capture = try await desk.shop.engine.beginCapture(by: Self.anna.owner)
        try await capture.write(bytes)
        let image = try await capture.finish()
        let source = Source.captured(image.digest, bytes: image.bytes, contentType: "image/png")
        _ = try await desk.shop.engine.submit(
          captured: capture, as: NewJob(submission: Submission(source: source)), by: Self.anna,
          key: nil)
      }
      await #expect(throws: JobsError.queueFull) { try await upload(ok) }
      let (asked, kept) = (await desk.shop.store.calls.count(of: .submit), desk.shop.images.digests)
      await #expect(throws: JobsError.queueFull) { try await upload(ok + [1]) }
      #expect(await desk.shop.store.calls.count(of: .submit) == asked)
      #expect(desk.shop.images.digests.isSubset(of: kept))
    }
  }
}
