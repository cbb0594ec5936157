import Logging
import SQL
import Synchronization
import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("Two instances that share a store", .timeLimit(.minutes(15)))
struct InstancesTests {
  private let url = "http://a.example/x.png"

  /// Two instances: one accepts jobs and has no workers, the other carries them out.
  private struct Pair {
    let front: Workshop
    let back: Workshop

    static func open(
      threads: TestThreads = TestThreads(), destinations: (any ImageDestinations)? = nil,
      _ adjust: (inout JobEngine.Configuration) -> Void = { _ in },
      _ body: (Pair) async throws -> Void
    ) async throws {
      let (store, images) = (MemoryJobStore(isExclusive: false), MemoryImageStore())
      try await Workshop.open(
        store: store, images: images,
        {
          adjust(&$0)
          $0.workers = 0
        }
      ) { front in
        // Each instance has its own partial transfers.
        try await Workshop.open(
          store: await store.another(), images: MemoryImageStore(), destinations: destinations,
          clock: front.clock, threads: threads, adjust
        ) { back in
          try await body(Pair(front: front, back: back))
        }
      }
    }

    /// Submits a job and returns it once it is loading and its first bytes are reported, as the loading
    /// instance sees it.
    func loading(_ url: String) async throws -> Job {
      back.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await front.submit(url)
      var job: Job?
      try await until {
        job = try await back.engine.job(id, for: Workshop.me).job
        return job?.progress.completed == ok.count
      }
      return try #require(job)
    }

    /// Waits until nothing is loaded and all workers are idle.
    func expectIdle() async throws {
      try await until { back.engine.loading.loads.count == 0 }
    }
  }

  @Test(
    "a job submitted at one instance runs at the other, and a client of the first sees its end")
  func submitted() async throws {
    try await Pair.open { pair in
      pair.back.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let job = try await pair.front.finished(pair.front.submit(url))
      #expect(job.phase == .success && pair.back.fetcher.requests.count == 1)
      #expect(pair.front.fetcher.requests.isEmpty)
      let there = try await pair.back.engine.job(job.id, for: Workshop.me).job
      #expect(there.version == job.version)
    }
  }

  @Test(
    "a subscriber at one instance receives phases, progress and the end from the other")
  func followed() async throws {
    try await Pair.open { pair in
      let there = try await pair.loading(url)
      let subscription = try await pair.front.engine.subscribe(
        to: there.id, for: Workshop.me, seen: nil, cancelsOnDisconnect: false)
      var shown: Job?
      try await until {
        if case .job(let snapshot, _) = subscription.next() { shown = snapshot.job }
        return shown?.progress.completed == ok.count
      }
      #expect(shown?.phase == .loading && shown?.version == there.version)
      let read = try await pair.front.engine.job(there.id, for: Workshop.me).job
      #expect(read.version == there.version)
      _ = try await pair.back.engine.cancel(there.id, for: Workshop.me)
      try await until {
        if case .job(let snapshot, _) = subscription.next() { shown = snapshot.job }
        return shown?.phase == .cancelled
      }
      #expect(shown?.progress.completed == ok.count)
    }
  }

  @Test("a subscriber to all jobs at one instance receives those of the other")
  func all() async throws {
    try await Pair.open { pair in
      let subscription = pair.front.engine.subscribe(SubscriptionQuery(caller: Workshop.me))
      pair.back.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let id = try await pair.back.submit(url)
      var phase: Phase?
      try await until {
        if case .job(let snapshot, _) = subscription.next(), snapshot.job.id == id {
          phase = snapshot.job.phase
        }
        return phase == .success
      }
    }
  }

  @Test("a job cancelled at one instance stops loading at the other")
  func cancelled() async throws {
    try await Pair.open { pair in
      let job = try await pair.loading(url)
      let cancelled = try await pair.front.engine.cancel(
        job.id, for: Workshop.me, ifVersion: [job.version])
      #expect(cancelled.job.phase == .cancelled && cancelled.job.version > job.version)
      try await pair.expectIdle()
      try await until {
        try await pair.back.engine.job(job.id, for: Workshop.me).job.phase == .cancelled
      }
    }
  }

  @Test("a job that joins a load of the other instance is delivered")
  func delivered() async throws {
    let receiver = SlowReceiver()
    try await Pair.open(destinations: receiver, { $0.workers = 1 }) { pair in
      pair.back.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      pair.back.codec.hangs(true)
      let first = try await pair.front.submit(url)
      _ = try await pair.back.reached(.loading, first)
      // The only worker is busy, so these jobs join the load at its end.
      var ids: [JobID] = []
      for _ in 0..<2 {
        ids.append(
          try await pair.front.submit(url) {
            $0.deliveries = [
              DeliveryRequest(
                .put(SourceURL("http://receiver.example/x")!, headers: []), variant: nil)
            ]
          })
      }
      pair.back.codec.hangs(false)
      try await until { receiver.begun == 2 }
      let snapshots = pair.back.engine.events.snapshots
      for id in ids {
        #expect(snapshots.peek(id)?.job.phase == .loading && snapshots.isPinned(id))
      }
      #expect(receiver.brokenOff == 0)
      _ = try await pair.front.engine.cancel(ids[0], for: Workshop.me)
      try await until { receiver.brokenOff == 1 }
      receiver.open()
      #expect(try await pair.front.finished(ids[1]).phase == .success)
      #expect(try await pair.front.engine.job(ids[0], for: Workshop.me).job.phase == .cancelled)
      #expect(receiver.begun == 2 && pair.back.fetcher.requests.count == 1)
      try await until { !ids.contains { snapshots.isPinned($0) } }
    }
  }

  @Test(
    "a job edited at one instance gets its new priority at the other, and is read correctly at once"
  )
  func changed() async throws {
    let threads = TestThreads()
    try await Pair.open(threads: threads) { pair in
      let job = try await pair.loading(url)
      let edited = try await pair.front.engine.edit(
        job.id, for: Workshop.me, priority: .veryHigh, tags: ["new"], ifVersion: [job.version])
      #expect(edited.job.tags == ["new"] && edited.job.version > job.version)
      try await until {
        threads.workerLanes.contains { $0.priorities == [.normal, .veryHigh] }
      }
      await #expect(throws: JobsError.versionDiffers) {
        try await pair.back.engine.edit(
          job.id, for: Workshop.me, priority: .low, tags: nil, ifVersion: [job.version])
      }
      // The instance that does not load the job never returns an older state.
      for number in 0..<20 {
        _ = try await pair.back.engine.edit(
          job.id, for: Workshop.me, priority: nil, tags: ["\(number)"])
        let read = try await pair.front.engine.job(job.id, for: Workshop.me).job
        #expect(read.tags == ["\(number)"])
      }
      #expect(pair.back.engine.loading.loads.count == 1)
    }
  }

  @Test(
    "a job purged at one instance is unknown at the other, with its load and partial transfer gone")
  func purged() async throws {
    try await Pair.open({ $0.retry.maxAttempts = 1 }) { pair in
      let job = try await pair.loading(url)
      try await pair.front.engine.purge(job.id, for: Workshop.me)
      try await pair.expectIdle()
      #expect(pair.back.images.spool.partialBytes == 0)
      await #expect(throws: JobsError.unknownJob) {
        try await pair.back.engine.job(job.id, for: Workshop.me)
      }
      let broken = "http://broken.example/"
      pair.back.fetcher.answer(broken, with: .breaks(after: ok, .stalled(seconds: 1)))
      let failed = try await pair.front.finished(pair.front.submit(broken))
      #expect(failed.phase == .failure)
      let partial = try #require(failed.partial)
      let known = PartialResponse(url: failed.url!, validator: "\"1\"", total: nil)
      pair.back.images.spool.keep(ok, of: known, for: partial)
      try await pair.front.engine.purge(failed.id, for: Workshop.me)
      try await until { pair.back.images.spool.partialBytes == 0 }
    }
  }

  @Test(
    "a purge whose answer from the store was lost is still published to the other instance",
    arguments: [false, true])
  func purgedWithLostAnswer(fails: Bool) async throws {
    try await Pair.open({
      $0.retry.maxAttempts = 1
      $0.announcements.pause = .zero
    }) { pair in
      let failure = StoreError.unavailable(detail: "late")
      func purge(_ id: JobID) async throws {
        if fails {
          await pair.front.store.calls.fail(with: [failure], of: .remove.answer)
          await #expect(throws: JobsError.store(failure)) {
            try await pair.front.engine.purge(id, for: Workshop.me)
          }
        } else {
          await pair.front.store.calls.makeAgain(.afterCommit)
          try await pair.front.engine.purge(id, for: Workshop.me)
        }
      }
      pair.back.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let id = try await pair.front.finished(pair.front.submit(url)).id
      try await until {
        pair.front.store.publish(.heartbeat(until: .now), from: .none)
        _ = try await pair.back.engine.job(id, for: Workshop.me)
        return pair.back.engine.peek(id, for: Workshop.me) != nil
      }
      try await purge(id)
      for shop in [pair.front, pair.back] {
        try await until { shop.engine.peek(id, for: Workshop.me) == nil }
      }
      let broken = "http://broken.example/"
      pair.back.fetcher.answer(broken, with: .breaks(after: ok, .stalled(seconds: 1)))
      let failed = try await pair.front.finished(pair.front.submit(broken))
      let known = PartialResponse(url: failed.url!, validator: "\"1\"", total: nil)
      pair.back.images.spool.keep(ok, of: known, for: try #require(failed.partial))
      try await purge(failed.id)
      try await until { pair.back.images.spool.partialBytes == 0 }
    }
  }

  @Test("a purge of an unknown job fails and is not published")
  func purgedNothing() async throws {
    try await Pair.open { pair in
      let store = pair.front.store
      let heard = store.events(for: Instance(number: 1_000))
      let id = JobID(at: pair.front.clock.now)
      await #expect(throws: JobsError.unknownJob) {
        try await pair.front.engine.purge(id, for: Workshop.me)
      }
      store.publish(.cacheDeleted, from: .none)
      for await news in heard {
        if news == .cacheDeleted { break }
        #expect(news != .purged(id, partial: nil) && news != .changed(id))
      }
    }
  }

  @Test("a batch purged at one instance shows no job at the other while they are deleted")
  func purgedList() async throws {
    try await Pair.open { pair in
      let store = pair.front.store
      pair.back.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let batch = try await pair.front.engine.createBatch(NewBatch(), by: Workshop.me, key: nil)
        .batch
      let submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
      var lines = NewLines(after: 0)
      lines.jobs.append(NewLines.Job(line: 1, job: NewJob(submission: submission)))
      lines.count = 1
      _ = try await pair.front.engine.add(lines, to: batch, by: Workshop.me)
      try await until { try await store.batch(batch.id)?.counts[.success] == 1 }
      let query = JobQuery(owner: nil, now: pair.back.clock.now, limit: 1)
      #expect(try await pair.back.engine.jobs(query).jobs.count == 1)
      await store.calls.hold(.endStopped)
      let purged: Void? = try? await pair.front.engine.purge(
        batch: batch.id, refusedAfter: nil, for: Workshop.me)
      let hidden: Void? = try? await until { try await pair.back.engine.jobs(query).jobs.isEmpty }
      #expect(purged != nil && hidden != nil)
      // Otherwise the service would never stop.
      await store.calls.letGo()
    }
  }

  @Test("a purge at one instance deletes cache entries that the other has just stored")
  func purgedFromCache() async throws {
    try await Pair.open { pair in
      // The instance that submits has just looked the response up and found none.
      pair.back.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let id = try await pair.front.finished(pair.front.submit(url)).id
      #expect(try await pair.front.store.cacheCounts().entries == 1)
      try await pair.front.engine.purge(id, for: Workshop.me)
      #expect(try await pair.front.store.cacheCounts().entries == 0)
    }
  }

  @Test("a job that expired at one instance disappears from the other")
  func expired() async throws {
    try await Pair.open({ $0.retention = .seconds(60) }) { pair in
      pair.back.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let id = try await pair.front.finished(pair.front.submit(url)).id
      _ = try await pair.back.engine.job(id, for: Workshop.me)
      pair.front.clock.advance(by: .seconds(61))
      try await until {
        pair.front.engine.events.snapshots.peek(id) == nil
          && pair.back.engine.events.snapshots.peek(id) == nil
      }
    }
  }

  @Test("many expired jobs are published in several events of limited size")
  func manyExpired() async throws {
    let store = MemoryJobStore(isExclusive: false)
    // This listener has no lease, so it never leads and deletes nothing.
    let heard = store.events(for: Instance(number: 1_000))
    try await Workshop.open(store: store, { $0.retention = .seconds(60) }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
      let jobs = try await shop.engine.submit(
        [NewJob](repeating: NewJob(submission: submission), count: 300), by: Workshop.me,
        key: nil)
      for job in jobs { #expect(try await shop.finished(job.id).phase == .success) }
      shop.clock.advance(by: .seconds(61))
      var parts: [[JobID]] = []
      for await news in heard {
        guard case .removed(let ids) = news else { continue }
        parts.append(ids)
        if parts.joined().count >= jobs.count { break }
      }
      #expect(parts.allSatisfy { $0.count <= InstanceEvent.mostIDs }, "\(parts.map(\.count))")
      #expect(parts.joined().count == jobs.count && Set(parts.joined()) == Set(jobs.map(\.id)))
    }
  }

  @Test("the network state and the clearing of the cache apply to both instances")
  func settings() async throws {
    try await Pair.open { pair in
      pair.back.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      let job = try await pair.front.finished(pair.front.submit(url))
      _ = try await pair.back.engine.openImage(#require(job.image).digest)
      #expect(pair.back.engine.caching.responses.memory.bytes == ok.count)
      _ = try await pair.front.engine.deleteFromCache(nil)
      try await until { pair.back.engine.caching.responses.memory.bytes == 0 }
      try await pair.front.engine.setConstrained(true)
      try await until { pair.back.engine.isConstrained }
      try await pair.back.engine.setConstrained(false)
      try await until { !pair.front.engine.isConstrained }
    }
  }

  @Test("after lost events, followed jobs are read again and other jobs are removed from memory")
  func lost() async throws {
    try await Pair.open { pair in
      let job = try await pair.loading(url)
      let subscription = try await pair.front.engine.subscribe(
        to: job.id, for: Workshop.me, seen: nil, cancelsOnDisconnect: false)
      let store = pair.front.store
      _ = try await store.update(job.id, under: nil) { $0.edit(priority: nil, tags: ["unheard"]) }
      store.publish(.lost, from: .none)
      var tags: [String]?
      try await until {
        tags = pair.front.engine.events.snapshots.peek(job.id)?.job.tags
        return tags == ["unheard"]
          && pair.back.engine.events.snapshots.peek(job.id)?.job.tags == tags
      }
      withExtendedLifetime(subscription) {}
    }
  }

  @Test("after lost events, a subscriber to all jobs receives the changes and ends that it missed")
  func lostOfAll() async throws {
    try await Pair.open { pair in
      let subscription = pair.front.engine.subscribe(SubscriptionQuery(caller: Workshop.me))
      var heard: [JobID: Phase] = [:]
      func hears(_ phase: Phase, of id: JobID) async throws {
        try await until {
          if case .job(let snapshot, _) = subscription.next() {
            heard[snapshot.job.id] = snapshot.job.phase
          }
          return heard[id] == phase
        }
      }
      let job = try await pair.loading(url)
      try await hears(.loading, of: job.id)
      let store = pair.front.store
      let moment = pair.front.clock.now
      _ = try await store.update(job.id, under: nil) {
        $0.cancel(at: moment, keptFor: .seconds(60))
      }
      var missed = Job(
        NewJob(submission: job.submission), id: JobID(at: moment), owner: Workshop.me.owner,
        createdAt: moment)
      missed.fail(.internal, at: moment, keptFor: .seconds(60))
      _ = try await store.submit([missed], key: nil, capacity: .max)
      store.publish(.lost, from: .none)
      try await hears(.cancelled, of: job.id)
      try await hears(.failure, of: missed.id)
    }
  }

  @Test("a subscriber to all jobs is up to date only as far as the other instance's events arrived")
  func horizon() async throws {
    try await Pair.open({ $0.lease = .seconds(3_600) }) { pair in
      let (store, clock) = (pair.front.store, pair.front.clock)
      let subscribers = pair.front.engine.events.snapshots.subscribers
      let start = clock.now
      try await until { subscribers.horizon(at: start + .seconds(9)) == start }
      clock.advance(by: .seconds(100))
      #expect(subscribers.horizon(at: clock.now) == start)
      store.publish(.heartbeat(until: .now), from: .none)
      try await until { subscribers.horizon(at: clock.now) > start + .seconds(80) }
      clock.advance(by: .seconds(100))
      // After lost events all jobs are read again, so the subscriber is up to date.
      store.publish(.lost, from: .none)
      try await until { subscribers.horizon(at: clock.now) == clock.now }
    }
  }

  @Test("a claim undone by a crash of the store is replaced by the job's end for all subscribers")
  func undoneClaim() async throws {
    try await Pair.open({ $0.lease = .milliseconds(300) }) { pair in
      let job = try await pair.loading(url)
      let subscription = try await pair.back.engine.subscribe(
        to: job.id, for: Workshop.me, seen: nil, cancelsOnDisconnect: false)
      let moment = pair.front.clock.now
      // The versions of the earlier claim are lower.
      let ended = try await pair.front.store.undoClaim(
        of: job.id, for: pair.front.engine.instance
      ) {
        $0.fail(.internal, at: moment, keptFor: .seconds(60))
        return true
      }
      let version = try #require(ended?.version)
      #expect(version < job.version)
      for shop in [pair.back, pair.front] {
        let shown = try await shop.finished(job.id)
        #expect(shown.phase == .failure && shown.version > job.version)
      }
      var phase: Phase?
      try await until {
        if case .job(let snapshot, _) = subscription.next() { phase = snapshot.job.phase }
        return phase == .failure
      }
      try await pair.expectIdle()
    }
  }

  @Test("an instance that lost its lease registers once and receives events again")
  func leaseLost() async throws {
    try await Pair.open { pair in
      let first = pair.back.engine.sharing.lease.instance
      try await pair.front.store.loseInstances()
      pair.back.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      // The claim fails because the lease is lost.
      #expect(try await pair.front.finished(pair.back.submit(url)).phase == .success)
      #expect(pair.back.engine.sharing.lease.instance.number > first.number)
      let job = try await pair.loading("http://b.example/")
      _ = try await pair.front.engine.cancel(job.id, for: Workshop.me)
      try await pair.expectIdle()
    }
  }

  @Test("many tasks that notice a lost lease begin one new lease")
  func oneLease() async throws {
    let store = MemoryJobStore()
    let membership = Membership(store: store)
    let lease = Lease(
      store: store, membership: membership, duration: .seconds(9), loads: NoJobs(),
      clock: StoreClock { ManualClock().now },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    try await lease.begin()
    try await store.loseInstances()
    await store.calls.hold()
    try await withThrowingTaskGroup { group in
      for _ in 0..<20 {
        group.addTask {
          try await lease.withLease { instance throws(StoreError) in
            _ = try await store.claim(1, for: instance, room: .unlimited)
          }
        }
      }
      try await until { await store.calls.heldCalls == 20 }
      await store.calls.letGo()
      try await group.waitForAll()
    }
    #expect(lease.instance.number == 2, "numbers are consecutive")
    #expect(try await store.register(for: .zero).number == 3)
  }

  @Test("a lease that is half over is renewed before work begins under it")
  func halfOver() async throws {
    let clock = ManualClock()
    let store = MemoryJobStore { clock.now }
    let duration = Duration.milliseconds(100)
    let lease = Lease(
      store: store, membership: Membership(store: store), duration: duration, loads: NoJobs(),
      clock: StoreClock { clock.now },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    try await lease.begin()
    let first = lease.instance
    // Real time passes; the store's clock is moved to just before the end of the lease.
    try await Task.sleep(for: duration)
    clock.advance(by: duration - .milliseconds(1))
    try await lease.withFreshLease { instance throws(StoreError) in
      _ = try await store.claim(1, for: instance, room: .unlimited)
    }
    clock.advance(by: duration / 2)
    _ = try await store.claim(1, for: first, room: .unlimited)
    #expect(lease.instance == first)

    try await store.loseInstances()
    try await Task.sleep(for: duration)
    let later = try await lease.withFreshLease { instance throws(StoreError) in instance }
    #expect(later.number > first.number && lease.instance == later)
  }

  @Test("no task can begin a new lease after the lease was ended")
  func endedLease() async throws {
    let store = MemoryJobStore()
    let lease = Lease(
      store: store, membership: Membership(store: store), duration: .seconds(9), loads: NoJobs(),
      clock: StoreClock { ManualClock().now },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    try await lease.begin()
    await lease.retire()
    await #expect(throws: StoreError.leaseLost) {
      try await lease.withLease { instance throws(StoreError) in
        _ = try await store.claim(1, for: instance, room: .unlimited)
      }
    }
    #expect(try await store.register(for: .zero).number == 2, "no new lease was begun")
  }
}

/// Accepts deliveries only after `open()`.
final class SlowReceiver: ImageDestinations {
  private struct State {
    var (begun, brokenOff) = (0, 0)
    var isOpen = false
  }
  private let state = Mutex(State())
  /// Only deliveries to this host have to wait; nil: all.
  private let host: String?

  init(host: String? = nil) { self.host = host }

  var begun: Int { state.withLock { $0.begun } }
  var brokenOff: Int { state.withLock { $0.brokenOff } }

  func open() { state.withLock { $0.isOpen = true } }

  func deliver(_ parcel: DeliveryUpload) async throws(DeliveryError) -> String? {
    state.withLock { $0.begun += 1 }
    guard host == nil || parcel.target.name == host else { return nil }
    while !state.withLock({ $0.isOpen }) {
      do { try await Task.sleep(for: .milliseconds(2)) } catch {
        state.withLock { $0.brokenOff += 1 }
        throw .cancelled
      }
    }
    return nil
  }
}
