public import Logging
internal import Synchronization

/// The service's centre: takes jobs, has them worked on, and tells how they stand.
///
/// What a method promises is durable when it returns. Reading (``peek(_:for:)``) never suspends.
public final class JobEngine: Sendable {
  private let crew: Crew
  private let ids = JobIDSequence()
  private let lifecycle = Mutex(ServiceState.starting)

  /// - Parameters:
  ///   - executor: threads on which hashing, decoding and writing may compute and wait.
  ///   - now: the wall clock.
  public init(
    _ configuration: Configuration, store: any JobStore, images: any ImageStore,
    fetcher: any ImageFetcher, codec: any ImageCodec, executor: any TaskExecutor,
    now: @escaping WallClock, log: Logger
  ) {
    crew = Crew(
      configuration: configuration,
      dispatcher: Dispatcher(store: store, now: now, log: log),
      store: store, images: images, keeper: ImageKeeper(store: store, images: images),
      fetcher: fetcher,
      intake: ImageIntake(
        codec: codec, images: images, memory: DecodeMemory(bytes: configuration.limits.maxMemory)),
      executor: executor, board: JobBoard(capacity: configuration.shownJobs),
      running: RunningJobs(),
      network: NetworkState(isConstrained: configuration.isConstrained), metrics: JobMetrics(),
      now: now, log: log)
  }

  // MARK: Running

  /// Whether jobs are taken.
  public var state: ServiceState { lifecycle.withLock { $0 } }

  /// The wall clock's time.
  public func now() -> Timestamp { crew.now() }

  /// Picks up what an earlier run left behind, then works until ``drain(within:)`` is through.
  ///
  /// - Parameter onReady: called once jobs are taken.
  /// - Throws: when the store can't be read at the start.
  public func run(onReady: () -> Void = {}) async throws(StoreError) {
    let requeued = try await crew.store.recover()
    let removed = try await crew.images.sweep { digest throws(StoreError) in
      try await crew.store.refers(to: digest)
    }
    if requeued > 0 || removed > 0 {
      crew.log.notice(
        "picked up after an unclean stop",
        metadata: ["jobs": "\(requeued)", "removed_images": "\(removed)"])
    }
    lifecycle.withLock { if $0 == .starting { $0 = .ready } }
    onReady()
    await withTaskGroup { group in
      group.addTask { await self.housekeeping.run() }
      group.addTask { await self.crew.running.showProgress() }
      group.addTask { await self.followOthers() }
      await work()
      group.cancelAll()
    }
  }

  private func work() async {
    await withTaskGroup { group in
      group.addTask { await self.crew.dispatcher.run() }
      for _ in 0..<crew.configuration.workers {
        group.addTask { await Worker(self.crew).run() }
      }
    }
  }

  /// Shows what other services do to jobs, and stops work that they have taken away.
  private func followOthers() async {
    for await id in crew.store.changesByOthers() {
      let job = try? await crew.store.job(id)
      if let job { crew.board.publish(job) } else { crew.board.remove([id]) }
      if job?.phase != .loading { crew.running.cancel(id, before: job?.version ?? .max) }
    }
  }

  /// Takes no more jobs, lets the running ones finish for so long, and puts the rest back into the queue. ``run()``
  /// returns after that.
  public func drain(within limit: Duration) async {
    lifecycle.withLock { $0 = .draining }
    await crew.dispatcher.stop()
    let deadline = ContinuousClock.now + limit
    while crew.running.count > 0, ContinuousClock.now < deadline {
      try? await Task.sleep(for: .milliseconds(20))
    }
    crew.running.close()
    crew.board.close()
  }

  private var housekeeping: Housekeeping {
    Housekeeping(
      store: crew.store, keeper: crew.keeper, board: crew.board, now: crew.now, log: crew.log)
  }

  /// Sets the gauges that are only known by counting.
  public func observe() async {
    guard let counts = try? await crew.store.counts() else { return }
    crew.metrics.observe(counts, running: crew.running, at: crew.now())
  }

  // MARK: Submitting

  /// Accepts jobs, all or none; they survive a crash from then on.
  ///
  /// - Parameter key: the same key with the same request answers with the first request's jobs.
  public func submit(
    _ jobs: [NewJob], by owner: Owner, key: IdempotencyKey?
  ) async throws(JobsError) -> [JobSnapshot] {
    let moment = crew.now()
    return try await submit(
      jobs.map { Job($0, id: ids.next(at: moment), owner: owner, createdAt: moment) }, key: key)
  }

  private func submit(_ jobs: [Job], key: IdempotencyKey?) async throws(JobsError) -> [JobSnapshot]
  {
    try takeable()
    let capacity = crew.configuration.maxQueued
    let outcome = try await storing { () async throws(StoreError) in
      try await crew.store.submit(jobs, key: key, capacity: capacity)
    }
    switch outcome {
    case .accepted:
      crew.metrics.submitted(jobs.count)
      let snapshots = jobs.compactMap { crew.board.publish($0) }
      crew.dispatcher.wake()
      return snapshots
    case .repeated(let jobs): return jobs.compactMap { crew.board.publish($0) }
    case .keyReused: throw .keyReused
    case .queueFull: throw .queueFull
    case .imageGone: throw .store(.unavailable(detail: "no image was referred to"))
    }
  }

  /// Room for an image that a client is about to send.
  public func beginCapture() async throws(JobsError) -> any ImageCapture {
    try takeable()
    let staged = try await storing { () async throws(StoreError) in try await crew.images.stage() }
    return StagedCapture(staged, on: crew.executor)
  }

  /// Accepts a job over a finished capture, and makes its bytes durable with it. `new`'s source is the captured image
  /// that ``ImageCapture/finish()`` told.
  public func submit(
    captured capture: any ImageCapture, as new: NewJob, by owner: Owner, key: IdempotencyKey?
  ) async throws(JobsError) -> JobSnapshot {
    guard let capture = capture as? StagedCapture, let image = capture.image else {
      throw .store(.unavailable(detail: "not a finished capture of this engine"))
    }
    let moment = crew.now()
    let job = Job(new, id: ids.next(at: moment), owner: owner, createdAt: moment)
    do throws(JobsError) {
      try await publish(capture.staged, image.digest, bytes: image.bytes, for: job.id)
      let snapshot = try await submit([job], key: key)[0]
      if snapshot.job.id != job.id { try? await crew.store.release(job.id) }
      return snapshot
    } catch {
      try? await crew.store.release(job.id)
      throw error
    }
  }

  private func publish(
    _ staged: any StagedImage, _ digest: ImageDigest, bytes: Int, for id: JobID
  ) async throws(JobsError) {
    let isKept = try await storing { () async throws(StoreError) in
      try await crew.keeper.keep(
        staged, digest, bytes: bytes, as: id, limit: crew.configuration.maxStoredBytes)
    }
    guard isKept else { throw .store(.unavailable(detail: "the client left")) }
  }

  // MARK: Reading

  /// The job, if it is in memory and this caller may see it. Nil says nothing: ask ``job(_:for:)``.
  public func peek(_ id: JobID, for caller: Caller) -> JobSnapshot? {
    guard let snapshot = crew.board.peek(id), caller.sees(snapshot.job), isAlive(snapshot.job)
    else { return nil }
    return snapshot
  }

  /// The job as it is.
  public func job(_ id: JobID, for caller: Caller) async throws(JobsError) -> JobSnapshot {
    if let snapshot = crew.board.peek(id) { return try checked(snapshot, caller) }
    let found = try await storing { () async throws(StoreError) in try await crew.store.job(id) }
    guard let found, let snapshot = crew.board.publish(found) else { throw .unknownJob }
    return try checked(snapshot, caller)
  }

  /// The jobs that fit, newest first.
  public func jobs(_ query: JobQuery) async throws(JobsError) -> JobPage {
    var page = try await storing { () async throws(StoreError) in try await crew.store.jobs(query) }
    page.jobs = page.jobs.map { job in
      // Progress is known in memory only.
      guard let shown = crew.board.peek(job.id)?.job, shown.version > job.version else {
        return job
      }
      return shown
    }
    return page
  }

  /// The job as it is when the goal is met, or when the time is over.
  public func wait(
    _ id: JobID, for caller: Caller, until goal: WaitGoal, atMost limit: Duration
  ) async throws(JobsError) -> JobSnapshot {
    let deadline = ContinuousClock.now + limit
    while true {
      let snapshot = try await job(id, for: caller)
      let left = deadline - ContinuousClock.now
      if goal.isMet(by: snapshot.job) || left <= .zero || Task.isCancelled || crew.board.isClosed {
        return snapshot
      }
      await withTaskGroup { group in
        group.addTask { await self.crew.board.wait(for: goal, of: id) }
        group.addTask { try? await Task.sleep(for: left) }
        await group.next()
        group.cancelAll()
      }
    }
  }

  /// An image's bytes; nil when they are no longer kept.
  public func openImage(_ digest: ImageDigest) async throws(JobsError) -> StoredBytes? {
    try await storing { () async throws(StoreError) in try await crew.images.open(digest) }
  }

  // MARK: Changing

  /// Cancels the job; one that has finished stays as it is.
  public func cancel(_ id: JobID, for caller: Caller) async throws(JobsError) -> JobSnapshot {
    let job = try await job(id, for: caller).job
    let retention = job.submission.retention ?? crew.configuration.retention
    let moment = crew.now()
    let snapshot = try await change(id) { $0.cancel(at: moment, keptFor: retention) }
    if snapshot.job.phase == .cancelled {
      crew.running.cancel(id, before: snapshot.job.version)
      if job.phase != .cancelled { crew.metrics.finished(snapshot.job) }
    }
    return snapshot
  }

  /// Forgets the job and, unless another one has the same, its image.
  public func purge(_ id: JobID, for caller: Caller) async throws(JobsError) {
    _ = try await job(id, for: caller)
    let existed = try await storing { () async throws(StoreError) in try await crew.store.remove(id)
    }
    crew.board.purge(id)
    crew.running.cancel(id, before: .max)
    guard existed else { throw .unknownJob }
    await housekeeping.tidy()
  }

  /// Changes priority and tags; nil leaves them.
  public func edit(
    _ id: JobID, for caller: Caller, priority: Priority?, tags: [String]?
  ) async throws(JobsError) -> JobSnapshot {
    _ = try await job(id, for: caller)
    let snapshot = try await change(id) { $0.edit(priority: priority, tags: tags) }
    if let priority { crew.running.raise(id, to: priority) }
    return snapshot
  }

  /// Queues a failed or cancelled job again, and a success whose image is gone; others stay as they are.
  public func fetchAgain(_ id: JobID, for caller: Caller) async throws(JobsError) -> JobSnapshot {
    _ = try await job(id, for: caller)
    try takeable()
    let moment = crew.now()
    let snapshot = try await change(id) { $0.fetchAgain(at: moment, from: .regular) }
    crew.dispatcher.wake()
    return snapshot
  }

  private func change(
    _ id: JobID, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(JobsError) -> JobSnapshot {
    let shown = crew.board.peek(id)?.job
    let job = try await storing { () async throws(StoreError) in
      try await crew.store.update(id, under: nil) { job in
        var changed = job
        changed.keepWhatIsShown(shown)
        guard change(&changed) else { return false }
        job = changed
        return true
      }
    }
    guard let job, let snapshot = crew.board.publish(job) else { throw .unknownJob }
    return snapshot
  }

  // MARK: Rules that every method shares

  /// Work is taken between the start's tidying up, which would take new work for what a crash left, and the stop.
  private func takeable() throws(JobsError) {
    switch state {
    case .starting: throw .starting
    case .ready: return
    case .draining: throw .draining
    }
  }

  private func isAlive(_ job: Job) -> Bool { job.expiresAt.map { $0 > crew.now() } ?? true }

  private func checked(_ snapshot: JobSnapshot, _ caller: Caller) throws(JobsError) -> JobSnapshot {
    guard caller.sees(snapshot.job), isAlive(snapshot.job) else { throw .unknownJob }
    return snapshot
  }

  private func storing<Value>(
    _ body: () async throws(StoreError) -> Value
  ) async throws(JobsError) -> Value {
    do throws(StoreError) { return try await body() } catch {
      crew.log.error("the store failed", metadata: ["error": "\(error)"])
      throw .store(error)
    }
  }
}

extension Job {
  init(_ new: NewJob, id: JobID, owner: Owner, createdAt: Timestamp) {
    self.init(
      id: id, owner: owner, submission: new.submission, priority: new.priority, tags: new.tags,
      createdAt: createdAt)
  }
}
