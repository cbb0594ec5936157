package import Jobs
internal import Logging
internal import Synchronization

/// Operations that change a job.
extension JobEngine {
  /// Cancels the job. A job that has finished stays as it is.
  package func cancel(
    _ id: JobID, for caller: Caller, ifVersion expected: [Int]? = nil
  ) async throws(JobsError) -> JobSnapshot {
    let job = try await job(id, for: caller).job
    let retention = job.submission.retention ?? configuration.retention
    let moment = now()
    let snapshot = try await change(id, ifVersion: expected) {
      $0.cancel(at: moment, keptFor: retention)
    }
    if snapshot.job.phase == .cancelled { loading.loads.remove(id, before: snapshot.job.version) }
    return snapshot
  }

  /// Purges the job, its partial transfer and its cache entries, and its image unless another job has the same.
  ///
  /// - Throws: `.versionDiffers` if the job has none of the versions in `expected`.
  package func purge(
    _ id: JobID, for caller: Caller, ifVersion expected: [Int]? = nil
  ) async throws(JobsError) {
    let seen = try await job(id, for: caller).job
    let removal = try await withStore { () async throws(StoreError) in
      try await removeWithCacheEntries(seen, if: expected)
    }
    if case .kept(let job) = removal {
      events.snapshots.publish(job, .read)
      throw .versionDiffers
    }
    guard case .removed(let job) = removal else {
      // The request that removed the job may have received an error and published nothing.
      await removePurged(seen)
      throw .unknownJob
    }
    await record(purged: job)
  }

  /// Records a purge: counts it, publishes it and removes what is left of the job.
  private func record(purged job: Job) async {
    if job.phase == .queued { queue.gate.recordDepartures([job]) }
    events.publisher.recordPurge(of: job, at: now())
    await removePurged(job)
    await upkeep.cleanup.requestAndWait()
  }

  /// Removes a purged job from memory and reports the purge to the other instances.
  private func removePurged(_ job: Job) async {
    events.snapshots.purge(job.id)
    loading.loads.remove(job.id, before: .max, discardingBytes: true)
    await deletePartial(of: job)
  }

  /// Removes the job's cache entries, then the job. In this order a client whose request failed can repeat it, because
  /// the job is still there. If the job gets another image meanwhile, the entries of that image are removed too.
  private func removeWithCacheEntries(
    _ seen: Job, if expected: [Int]?
  ) async throws(StoreError) -> Removal {
    var (seen, announcement) = (seen, events.announcer.unannounced)
    while true {
      // The snapshot may be out of date; the store checks the version again.
      let isWanted = seen.isUnchanged(since: expected)
      if isWanted {
        if !announcement.permits(seen) {
          announcement = try await events.announcer.announce(seen.id)
        }
        try await deleteCacheEntries(of: seen)
      }
      let removal = try await remove(seen.id) { [image = seen.image, announcement] job in
        isWanted && job.isUnchanged(since: expected) && job.image == image
          && announcement.permits(job)
      }
      guard case .kept(let job) = removal, job.isUnchanged(since: expected) else { return removal }
      seen = job
    }
  }

  /// Removes the job and remembers how the store found it. If the answer of the store is lost, the store retries and
  /// finds no job, or throws although it removed the job. The remembered job is then used instead.
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
        events.unconfirmedPurges.continuation.yield((job, ContinuousClock.now + patience))
      }
      throw error
    }
  }

  /// A request that the store has not answered for this long is not carried out later either.
  private static let longestDelay = Duration.seconds(30)

  /// Checks whether the store carried out purges that it reported as failed, and publishes those. Otherwise clients and
  /// other instances would go on showing the job. Runs until cancelled.
  func confirmPurges() async {
    for await (job, limit) in events.unconfirmedPurges.stream {
      await confirmPurge(of: job, until: limit)
    }
  }

  private func confirmPurge(of job: Job, until limit: ContinuousClock.Instant) async {
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

  /// Deletes the cache entries of a job's image.
  private func deleteCacheEntries(of job: Job) async throws(StoreError) {
    removeFromMemory(job)
    guard let image = ResponseCache.image(of: loading.loads.rules.sharing(job)) else { return }
    try await caching.responses.deleteEntries(of: image)
  }

  /// Removes the bytes of a purged job's image from memory.
  func removeFromMemory(_ job: Job) {
    guard let image = job.image else { return }
    for digest in [image.digest, image.keptDigest] { caching.responses.memory.remove(digest) }
  }

  /// Deletes the partial transfer of a purged job, here and at the other instances.
  func deletePartial(of job: Job) async {
    let partial = job.phase == .success ? nil : loading.loads.rules.sharing(job).partial
    if let partial { await loading.kept.delete(partial) }
    sharing.membership.publish(.purged(job.id, partial: partial))
  }

  /// Changes priority and tags. Nil leaves the value unchanged.
  package func edit(
    _ id: JobID, for caller: Caller, priority: Priority?, tags: [String]?,
    ifVersion expected: [Int]? = nil
  ) async throws(JobsError) -> JobSnapshot {
    _ = try await job(id, for: caller)
    let snapshot = try await change(id, ifVersion: expected) {
      $0.edit(priority: priority, tags: tags)
    }
    if let priority { loading.loads.prioritize(id, priority) }
    return snapshot
  }

  /// Queues a failed or cancelled job again, and a successful job whose image is no longer stored. Other jobs stay as
  /// they are.
  package func refetch(
    _ id: JobID, for caller: Caller, ifVersion expected: [Int]? = nil
  ) async throws(JobsError) -> JobSnapshot {
    let found = try await job(id, for: caller).job
    try requireAccepting()
    let again = try await requeuing(
      of: found.owner, withWebhook: found.submission.webhook != nil, for: caller)
    let capacity = capacity(for: caller, ofBatch: found.batch != nil)
    let snapshot = try await change(id, ifVersion: expected, within: capacity) {
      again.requeue(&$0)
    }
    if let refusal = again.refusal { throw refusal }
    if let request = snapshot.job.request { await join(request, 1) }
    queue.dispatcher.jobsWereQueued()
    return snapshot
  }

  /// Makes the ``RequeueCheck`` that decides whether an owner's jobs may be queued again.
  /// - Parameters:
  ///   - withWebhook: whether any of the jobs may have a webhook.
  ///   - allWithWebhook: whether every job has a webhook, because its batch has one.
  func requeuing(
    of owner: Owner, withWebhook: Bool, allWithWebhook: Bool = false, for caller: Caller
  ) async throws(JobsError) -> RequeueCheck {
    let mayBeTold = try await withWebhook ? hasRoomForMessages(of: owner) : true
    let moment = now()
    return RequeueCheck(
      at: moment, from: queue.network, bytesSpent: queue.dailyBytes.refusal(of: caller, at: moment),
      messagesFull: mayBeTold ? nil : .tooManyMessages, allHaveWebhook: allWithWebhook)
  }

  /// Applies a change to the job in a transaction of the store.
  ///
  /// `expected` is compared with the job's revision inside that transaction. Progress reports do not change the
  /// revision, because they change nothing that the client could overwrite. A job that is queued again needs a free
  /// slot in the queue, as a new one does.
  /// - Returns: the job right after the change, whatever has changed it since.
  private func change(
    _ id: JobID, ifVersion expected: [Int]? = nil, within capacity: QueueCapacity = .max,
    _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(JobsError) -> JobSnapshot {
    loading.loads.showProgress(of: id)
    let shown = events.snapshots.peek(id)
    let (update, outcome) = try await withStore { () async throws(StoreError) in
      try await applying(change, to: id, ifVersion: expected, within: capacity)
    }
    if outcome == .versionDiffers {
      // The change that made the difference may not have reached the memory yet.
      if case .updated(let job) = update { events.snapshots.publish(job, .read) }
      throw .versionDiffers
    }
    let job: Job
    switch update {
    case .updated(let updated): job = updated
    case .queueFull: throw .queueFull
    case .unknown: throw .unknownJob
    }
    if outcome == .ended(from: .queued) { queue.gate.recordDepartures([job]) }
    guard let newest = events.publisher.publish(job, hasEnded: outcome.isEnd) else {
      throw .unknownJob
    }
    // The store does not have the progress that clients have seen of this revision.
    return [newest, shown].compactMap(\.self).first { $0.job.isUnchanged(since: [job.version]) }
      ?? JobSnapshot(job)
  }

  /// Applies a change in the store. If other instances may answer the job from memory, announces the change first.
  private func applying(
    _ change: @escaping @Sendable (inout Job) -> Bool, to id: JobID, ifVersion expected: [Int]?,
    within capacity: QueueCapacity
  ) async throws(StoreError) -> (UpdateOutcome, ChangeOutcome.Value) {
    var announcement = events.announcer.unannounced
    while true {
      let outcome = ChangeOutcome()
      let noted = recordingChange(outcome, of: id, ifVersion: expected, under: announcement, change)
      let update = try await store.update(id, within: capacity, noted)
      guard outcome.value == .unannounced else { return (update, outcome.value) }
      announcement = try await events.announcer.announce(id)
    }
  }

  /// Wraps a change so that it records what it found and keeps progress that the store has not seen yet.
  private func recordingChange(
    _ outcome: ChangeOutcome, of id: JobID, ifVersion expected: [Int]?,
    under announcement: Announcement, _ change: @escaping @Sendable (inout Job) -> Bool
  ) -> @Sendable (inout Job) -> Bool {
    { [snapshots = events.snapshots] job in
      guard outcome.beginAttempt(with: job) else { return false }
      guard job.isUnchanged(since: expected) else {
        outcome.record(.versionDiffers)
        return false
      }
      var changed = job
      changed.copyProgress(from: snapshots.peek(id)?.job)
      guard change(&changed) else { return false }
      guard announcement.permits(job) else {
        outcome.record(.unannounced)
        return false
      }
      let hasEnded = changed.phase.isFinished && !job.phase.isFinished
      outcome.record(
        hasEnded ? .ended(from: job.phase) : .changed, finished: hasEnded ? changed : nil)
      job = changed
      return true
    }
  }
}

/// The cache and the network, for operators.
extension JobEngine {
  /// Returns the size of the cache, and its hits, revalidations and misses summed over all live instances.
  package func cacheCounts() async throws(JobsError) -> CacheCounts {
    try await withStore { () async throws(StoreError) in
      var counts = try await caching.responses.counts()
      for other in try await store.presentInstances()
      where other.instance != sharing.membership.instance {
        counts.hits += other.cache.hits
        counts.revalidations += other.cache.revalidations
        counts.misses += other.cache.misses
        counts.memoryBytes += other.cache.memoryBytes
      }
      return counts
    }
  }

  /// Deletes cache entries of one URL, or all of them. Jobs keep their images.
  /// - Parameter url: nil: everything.
  /// - Returns: the number of deleted responses and variants.
  package func deleteFromCache(_ url: SourceURL?) async throws(JobsError) -> Int {
    let removed = try await withStore { () async throws(StoreError) in
      try await caching.responses.deleteEntries(of: url)
    }
    // Views would otherwise still be answered from the images of earlier jobs.
    caching.views.clear()
    sharing.membership.publish(.cacheDeleted)
    await upkeep.cleanup.requestAndWait()
    return removed
  }

  /// Whether low-data images are loaded instead of the regular ones.
  package var isConstrained: Bool { queue.network.isConstrained }

  /// Sets whether the network is constrained. When it no longer is, regular images replace the low-data ones in the
  /// background.
  package func setConstrained(_ isConstrained: Bool) async throws(JobsError) {
    if !sharing.membership.isAlone {
      try await withStore { () async throws(StoreError) in
        try await store.setConstrained(isConstrained)
      }
      // Always published: an instance that missed an earlier event has another state, even if nothing changes here.
      sharing.membership.publish(.constrained(isConstrained))
    }
    guard setNetwork(isConstrained) else { return }
    // One instance replaces the low-data images of all.
    if !isConstrained { loading.background.replaceLowData() }
  }

  /// - Returns: whether the state changed.
  func setNetwork(_ isConstrained: Bool) -> Bool {
    guard queue.network.set(isConstrained) else { return false }
    log.notice("network state changed", metadata: ["constrained": "\(isConstrained)"])
    return true
  }
}
