public import Jobs
public import Logging
internal import Synchronization
internal import Waiting

/// The service's centre: takes jobs, has them worked on, and tells how they stand.
///
/// What a method promises is durable when it returns. Reading (``peek(_:for:)``) never suspends.
public final class JobEngine: Sendable {
  let crew: Crew
  private let lifecycle = Mutex(ServiceState.starting)
  private let room: StorageRoom

  /// What the engine works with.
  public struct Parts: Sendable {
    /// Keeps jobs, and what the cache knows.
    public var store: any JobStore & CacheStore
    /// Keeps images' bytes, and those of broken-off transfers.
    public var images: any ImageStore & PartialStore
    /// Brings images from origins.
    public var fetcher: any ImageFetcher
    /// Decodes them.
    public var codec: any ImageCodec
    /// Makes variants; nil: there are none.
    public var renderer: (any ImageRenderer)?
    /// Named images; nil: there are none.
    public var locals: (any LocalImages)?
    /// Where hashing, decoding and writing may compute and wait.
    public var threads: any ComputeThreads

    /// The parts.
    public init(
      store: any JobStore & CacheStore, images: any ImageStore & PartialStore,
      fetcher: any ImageFetcher, codec: any ImageCodec,
      renderer: (any ImageRenderer)? = nil, locals: (any LocalImages)? = nil,
      threads: any ComputeThreads
    ) {
      self.store = store
      self.images = images
      self.fetcher = fetcher
      self.codec = codec
      self.renderer = renderer
      self.locals = locals
      self.threads = threads
    }
  }

  /// - Parameter now: the wall clock.
  public init(
    _ configuration: Configuration, _ parts: Parts, now: @escaping WallClock, log: Logger
  ) {
    crew = Crew(configuration, parts, now: now, log: log)
    room = StorageRoom(images: parts.images, log: log)
  }

  /// Whether jobs are taken.
  public var state: ServiceState {
    let state = lifecycle.withLock { $0 }
    return state == .ready && room.isFull ? .full : state
  }

  /// The wall clock's time.
  public func now() -> Timestamp { crew.now() }

  /// Picks up what an earlier run left behind, then works until ``drain(within:)`` is through.
  ///
  /// - Parameter onReady: called once jobs are taken.
  /// - Throws: when the store can't be read at the start.
  public func run(onReady: () -> Void = {}) async throws(StoreError) {
    try await crew.lease.begin()
    let requeued = try await recover()
    let removed = try await crew.images.removeUnfinished()
    if requeued > 0 || removed > 0 {
      crew.log.notice(
        "picked up after an unclean stop",
        metadata: ["jobs": "\(requeued)", "unfinished_images": "\(removed)"])
    }
    if try await crew.store.counts().jobs[.queued] ?? 0 == 0 { crew.positions.clear() }
    lifecycle.withLock { if $0 == .starting { $0 = .ready } }
    onReady()
    if !crew.network.isConstrained { crew.background.replaceLowData() }
    await withTaskGroup { group in
      group.addTask { await self.housekeeping.run() }
      group.addTask { await self.housekeeping.sweep() }
      group.addTask { await self.crew.lease.keep() }
      group.addTask { for await id in self.crew.lease.lost { await self.follow(id) } }
      group.addTask { await self.room.watch() }
      group.addTask { await self.crew.watchLoads() }
      group.addTask { await self.followOthers() }
      group.addTask { await self.crew.snapshots.subscribers.deliverChanges() }
      group.addTask { await self.listForSubscribers() }
      group.addTask { await self.cancelAbandoned() }
      group.addTask { await self.crew.background.run(self.crew) }
      await work()
      crew.background.stop()
      group.cancelAll()
    }
    await crew.cache.noteUses()
    await crew.lease.end()
  }

  /// What an earlier run of a store for itself left is nobody's already; of a store that is shared this takes over what
  /// others lost by now.
  /// - Returns: how many jobs are queued again.
  private func recover() async throws(StoreError) -> Int {
    let batch = 500
    var count = 0
    while true {
      let jobs = try await crew.store.recoverExpired(batch)
      count += jobs.count
      if jobs.count < batch { return count }
    }
  }

  private func work() async {
    let worker = Worker(crew: crew)
    await crew.dispatcher.run(workers: crew.configuration.workers) { worker.take($0) }
  }

  /// Shows what other instances do to jobs, stops work that they have taken away, and looks for what they queued.
  private func followOthers() async {
    while !Task.isCancelled {
      let instance = crew.lease.instance
      for await news in crew.store.news(for: instance) { await follow(news) }
      // It ends with the lease; there may be another one by now.
      if crew.lease.instance == instance { return }
    }
  }

  private func follow(_ news: News) async {
    switch news {
    case .queued: crew.dispatcher.wake()
    case .changed(let id): await follow(id)
    case .removed(let ids):
      crew.snapshots.remove(ids)
      for id in ids { crew.loads.leave(id, before: .max) }
    case .progress(let id, let report): crew.snapshots.report(id, report)
    case .lost:
      crew.dispatcher.wake()
      for id in crew.snapshots.dropUnheld() { await follow(id) }
    }
  }

  /// A store that does not answer says nothing of the job: it is asked until it does.
  private func follow(_ id: JobID) async {
    var wait = Duration.milliseconds(50)
    while !Task.isCancelled {
      do throws(StoreError) {
        let job = try await crew.store.job(id)
        if let job { crew.snapshots.publish(job) } else { crew.snapshots.remove([id]) }
        if job?.phase != .loading { crew.loads.leave(id, before: job?.version ?? .max) }
        return
      } catch {
        crew.log.error(
          "another instance's change can't be read",
          metadata: ["job": "\(id)", "error": "\(error)"])
        if case .unreadable = error { return }
      }
      try? await Task.sleep(for: wait)
      wait = min(wait * 2, .seconds(5))
    }
  }

  /// Takes no more jobs, lets the running ones finish for so long, and puts the rest back into the queue. ``run()``
  /// returns within a second after that, whatever is queued: what can't be put back by then the next start does.
  public func drain(within limit: Duration) async {
    let deadline = ContinuousClock.now + limit
    lifecycle.withLock { $0 = .draining }
    crew.background.stop()
    crew.dispatcher.stop()
    crew.loads.stop()
    await crew.loads.emptied.wait(until: deadline)
    crew.loads.close()
    crew.snapshots.close()
    await crew.variants?.close()
  }

  var housekeeping: Housekeeping {
    Housekeeping(
      store: crew.store, lease: crew.lease, dispatcher: crew.dispatcher, images: crew.images,
      keeper: crew.keeper, snapshots: crew.snapshots,
      cache: crew.cache, idempotencyTTL: crew.configuration.idempotencyTTL,
      log: crew.log)
  }

  /// Sets the gauges that are only known by counting.
  public func observe() async {
    do throws(StoreError) {
      crew.metrics.observe(try await crew.store.counts(), try await crew.cache.counts(), crew)
    } catch {
      crew.log.error("the store can't be counted", metadata: ["error": "\(error)"])
    }
  }

  // MARK: Rules that every method shares

  /// Work is taken between the start's tidying up, which would take new work for what a crash left, and the stop.
  func takeable() throws(JobsError) {
    switch state {
    case .starting: throw .starting
    // The next one may find room, or need none.
    case .ready, .full: return
    case .draining: throw .draining
    }
  }

  func isAlive(_ job: Job) -> Bool { job.expiresAt.map { $0 > crew.now() } ?? true }

  func checked(_ snapshot: JobSnapshot, _ caller: Caller) throws(JobsError) -> JobSnapshot {
    guard caller.sees(snapshot.job), isAlive(snapshot.job) else { throw .unknownJob }
    return snapshot
  }

  func storing<Value>(
    _ body: () async throws(StoreError) -> Value
  ) async throws(JobsError) -> Value {
    do throws(StoreError) { return try await body() } catch {
      crew.log.error("the store failed", metadata: ["error": "\(error)"])
      room.note(error)
      throw .store(error)
    }
  }
}
