public import Jobs
internal import Logging
internal import Synchronization

/// What changes a job.
extension JobEngine {
  /// Cancels the job; one that has finished stays as it is.
  public func cancel(
    _ id: JobID, for caller: Caller, ifVersion expected: [Int]? = nil
  ) async throws(JobsError) -> JobSnapshot {
    let job = try await job(id, for: caller).job
    let retention = job.submission.retention ?? configuration.retention
    let moment = now()
    let snapshot = try await change(id, ifVersion: expected) {
      $0.cancel(at: moment, keptFor: retention)
    }
    if snapshot.job.phase == .cancelled { loads.leave(id, before: snapshot.job.version) }
    return snapshot
  }

  /// Forgets the job, its kept bytes and, unless another job has the same, its image, also in the cache.
  public func purge(
    _ id: JobID, for caller: Caller, ifVersion expected: [Int]? = nil
  ) async throws(JobsError) {
    let seen = try await job(id, for: caller).job
    let removal = try await storing { () async throws(StoreError) in
      try await forgetCached(andRemove: seen, if: expected)
    }
    if case .kept = removal { throw .versionDiffers }
    guard case .removed(let job) = removal else {
      // Who removed it may have heard that this failed, and have told nobody.
      await forget(purged: seen)
      throw .unknownJob
    }
    await record(purged: job)
  }

  /// A job was purged from here: it is counted, and told of.
  private func record(purged job: Job) async {
    if job.phase == .queued { queueGate.left([job]) }
    publisher.recordPurge(of: job, at: now())
    await forget(purged: job)
    await tidying.ask()
  }

  /// Forgets a job that was purged, here and elsewhere.
  private func forget(purged job: Job) async {
    snapshots.purge(job.id)
    loads.leave(job.id, before: .max, forgetting: true)
    await forgetPartial(of: job)
  }

  /// Removes the job after what the cache has of it: who is told that this failed asks again, for which the job has to be
  /// there. Where it comes to another image meanwhile, so does this.
  private func forgetCached(
    andRemove seen: Job, if expected: [Int]?
  ) async throws(StoreError) -> Removal {
    var seen = seen
    while true {
      // As it was seen here may be long ago.
      let isWanted = seen.isAt(expected)
      if isWanted { try await forgetCached(of: seen) }
      let removal = try await remove(seen.id) { [image = seen.image] job in
        isWanted && job.isAt(expected) && job.image == image
      }
      guard case .kept(let job) = removal, job.isAt(expected) else { return removal }
      seen = job
    }
  }

  /// Removes the job, and notes how it was: where the answer is lost the store tries again, and finds none, or says that
  /// it failed.
  private func remove(
    _ id: JobID, if condition: @escaping @Sendable (Job) -> Bool
  ) async throws(StoreError) -> Removal {
    let found = Mutex<Job?>(nil)
    do throws(StoreError) {
      let removal = try await store.remove(id) { job in
        let isRemoved = condition(job)
        found.withLock { $0 = isRemoved ? job : nil }
        return isRemoved
      }
      guard case .unknown = removal, let job = found.withLock(\.self) else { return removal }
      return .removed(job)
    } catch {
      if let job = found.withLock(\.self) {
        let patience = store.losesAnswers ? Self.longestDelay : .zero
        doubtfulPurges.continuation.yield((job, ContinuousClock.now + patience))
      }
      throw error
    }
  }

  /// After which a store does no more what it was asked and did not answer.
  private static let longestDelay = Duration.seconds(30)

  /// Looks whether the store has made purges that it did not answer, and tells of those: whoever knows the job would go on
  /// showing it. Until cancelled.
  func settlePurges() async {
    for await (job, limit) in doubtfulPurges.stream { await settle(job, until: limit) }
  }

  private func settle(_ job: Job, until limit: ContinuousClock.Instant) async {
    while !Task.isCancelled {
      do throws(StoreError) {
        guard try await store.job(job.id) != nil else { return await record(purged: job) }
        if limit <= .now { return }
      } catch {
        if case .unreadable = error { return }
      }
      try? await Task.sleep(for: .seconds(1))
    }
  }

  /// Forgets what the cache has of a job's image.
  private func forgetCached(of job: Job) async throws(StoreError) {
    forgetInMemory(job)
    guard let image = ResponseCache.image(of: loads.rules.sharing(job)) else { return }
    try await cache.forget(image)
  }

  /// Forgets the bytes that are in memory of a purged job's image.
  func forgetInMemory(_ job: Job) {
    guard let image = job.image else { return }
    for digest in [image.digest, image.keptDigest] { cache.memory.remove(digest) }
  }

  /// Forgets the bytes at which a purged job broke off, in whichever instance they are kept.
  func forgetPartial(of job: Job) async {
    let partial = job.phase == .success ? nil : loads.rules.sharing(job).partial
    if let partial { await kept.forget(partial) }
    membership.tell(.purged(job.id, partial: partial))
  }

  /// Changes priority and tags; nil leaves them.
  public func edit(
    _ id: JobID, for caller: Caller, priority: Priority?, tags: [String]?,
    ifVersion expected: [Int]? = nil
  ) async throws(JobsError) -> JobSnapshot {
    _ = try await job(id, for: caller)
    let snapshot = try await change(id, ifVersion: expected) {
      $0.edit(priority: priority, tags: tags)
    }
    if let priority { loads.prioritize(id, priority) }
    return snapshot
  }

  /// Queues a failed or cancelled job again, and a success whose image is gone; others stay as they are.
  public func fetchAgain(
    _ id: JobID, for caller: Caller, ifVersion expected: [Int]? = nil
  ) async throws(JobsError) -> JobSnapshot {
    let found = try await job(id, for: caller).job
    try takeable()
    let again = try await requeuing(
      of: found.owner, telling: found.submission.webhook != nil, for: caller)
    let capacity = capacity(for: caller, ofBatch: found.batch != nil)
    let snapshot = try await change(id, ifVersion: expected, within: capacity) { again.queue(&$0) }
    if let refusal = again.refusal { throw refusal }
    if let request = snapshot.job.request { await join(request, 1) }
    dispatcher.jobsWereQueued()
    return snapshot
  }

  /// What queues an owner's jobs again.
  /// - Parameters:
  ///   - telling: whether somebody may be to be told of an end.
  ///   - areAllTold: whether that is so of every one of them.
  func requeuing(
    of owner: Owner, telling: Bool, areAllTold: Bool = false, for caller: Caller
  ) async throws(JobsError) -> Requeuing {
    let mayBeTold = try await telling ? hasRoomForMessages(of: owner) : true
    let moment = now()
    return Requeuing(
      at: moment, from: network, bytesSpent: dailyBytes.refusal(of: caller, at: moment),
      untold: mayBeTold ? nil : .tooManyMessages, areAllTold: areAllTold)
  }

  /// Changes a job as it is at the moment of the change. That is also when it is held to what the client saw: the
  /// revision, as reports of progress change nothing that it could undo. And to the queue's room: what is queued again
  /// takes a place as what is new does.
  private func change(
    _ id: JobID, ifVersion expected: [Int]? = nil, within capacity: QueueCapacity = .max,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(JobsError) -> JobSnapshot {
    loads.showProgress(of: id)
    let outcome = ChangeOutcome()
    let noted = noting(outcome, of: id, ifVersion: expected, change)
    let update = try await storing { () async throws(StoreError) in
      try await store.update(id, within: capacity, noted)
    }
    if outcome.value == .versionDiffers { throw .versionDiffers }
    let job: Job
    switch update {
    case .updated(let updated): job = updated
    case .queueFull: throw .queueFull
    case .unknown: throw .unknownJob
    }
    if outcome.value == .ended(from: .queued) { queueGate.left([job]) }
    guard let snapshot = publisher.publish(job, hasEnded: outcome.value.isEnd) else {
      throw .unknownJob
    }
    return snapshot
  }

  /// A change that notes what it found, and keeps the progress that the store has not seen.
  private func noting(
    _ outcome: ChangeOutcome, of id: JobID, ifVersion expected: [Int]?,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) -> @Sendable (inout Job) -> Bool {
    { [snapshots] job in
      guard outcome.begins(with: job) else { return false }
      guard job.isAt(expected) else {
        outcome.note(.versionDiffers)
        return false
      }
      var changed = job
      changed.keepProgress(of: snapshots.peek(id)?.job)
      guard change(&changed) else { return false }
      let hasEnded = changed.phase.isFinished && !job.phase.isFinished
      outcome.note(
        hasEnded ? .ended(from: job.phase) : .changed, finished: hasEnded ? changed : nil)
      job = changed
      return true
    }
  }
}

/// The cache and the network, for operators.
extension JobEngine {
  /// Returns what the cache holds, and the sum of its outcomes at all live instances.
  public func cacheCounts() async throws(JobsError) -> CacheCounts {
    try await storing { () async throws(StoreError) in
      var counts = try await cache.counts()
      for other in try await store.presentInstances() where other.instance != membership.instance {
        counts.hits += other.cache.hits
        counts.revalidations += other.cache.revalidations
        counts.misses += other.cache.misses
        counts.memoryBytes += other.cache.memoryBytes
      }
      return counts
    }
  }

  /// Forgets what the cache has of a URL, or everything. Jobs keep their images.
  /// - Returns: how many stored responses and variants there were.
  public func dropFromCache(_ url: SourceURL?) async throws(JobsError) -> Int {
    let removed = try await storing { () async throws(StoreError) in
      try await cache.forget(url)
    }
    // What is looked at would otherwise be the jobs' images.
    views.clear()
    membership.tell(.cacheDropped)
    await tidying.ask()
    return removed
  }

  /// Whether low-data images are loaded in place of the regular ones.
  public var isConstrained: Bool { network.isConstrained }

  /// Says that the network is constrained, or no longer is: the regular images then replace the low-data ones.
  public func setConstrained(_ isConstrained: Bool) async throws(JobsError) {
    if !membership.isAlone {
      try await storing { () async throws(StoreError) in
        try await store.setConstrained(isConstrained)
      }
      // Who hears it late has its own state: all are told, whatever is new here.
      membership.tell(.constrained(isConstrained))
    }
    guard setNetwork(isConstrained) else { return }
    // The others need not do it too.
    if !isConstrained { background.replaceLowData() }
  }

  /// - Returns: whether that is new.
  func setNetwork(_ isConstrained: Bool) -> Bool {
    guard network.set(isConstrained) else { return false }
    log.notice("network", metadata: ["constrained": "\(isConstrained)"])
    return true
  }
}
