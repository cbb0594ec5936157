package import Jobs
internal import Logging
internal import Waiting

/// Batches: sets of jobs that the store keeps and counts. Their jobs are queued by the thousand and not published one
/// by one. This process knows a job of a batch once a worker claims it or a client reads it.
extension JobEngine {
  /// Creates a batch. Lines can be added from then on.
  ///
  /// - Parameter key: a repeated request with the same key returns the batch that the first one created.
  /// - Throws: `.keyReused` if the key was used with another request; `.tooManyBatches`.
  package func createBatch(
    _ new: NewBatch, by caller: Caller, key: IdempotencyKey?
  ) async throws(JobsError) -> BegunBatch {
    try requireAccepting()
    let moment = now()
    let refusal = try await refusal(of: caller, withWebhook: new.webhook != nil, at: moment)
    // With a key it may be a repeated request, which is answered even when new batches are refused.
    if let refusal, key == nil { throw refusal }
    let batch = Batch(
      id: ids.next(at: moment), owner: caller.owner, name: new.name, tags: new.tags,
      defaults: new.defaults, isOpen: new.isOpen, key: key?.key,
      retention: configuration.retention, webhook: new.webhook, content: new.content,
      createdAt: moment)
    let opening = try await withStore { () async throws(StoreError) in
      try await store.open(batch, key: key, atMost: refusal == nil ? configuration.maxBatches : 0)
    }
    switch opening {
    case .opened: return .new(batch)
    case .keyReused: throw .keyReused
    case .tooMany: throw refusal ?? .tooManyBatches
    case .repeated(let id): return try await repeated(id, for: caller)
    }
  }

  /// Returns the batch of an earlier request with the same key. The key is stored for longer than the batch, so the
  /// batch may be gone.
  private func repeated(_ id: BatchID, for caller: Caller) async throws(JobsError) -> BegunBatch {
    do throws(JobsError) { return .repeated(try await batch(id, for: caller)) } catch {
      guard error == .unknownBatch else { throw error }
      return .gone(id)
    }
  }

  /// Stores lines of a batch. Their jobs may start at once, before later lines arrive.
  package func add(
    _ new: NewLines, to batch: Batch, by caller: Caller
  ) async throws(JobsError) -> Batch {
    try requireAccepting()
    try caching.storage.requireSpace()
    try queue.dailyBytes.check(caller, at: now())
    let lines = await lines(new, of: batch)
    if lines.webhook != nil || lines.jobs.contains(where: { $0.submission.webhook != nil }) {
      try await checkMessages(of: batch.owner)
    }
    let capacity = capacity(for: caller, ofBatch: true)
    let addition = try await withStore { () async throws(StoreError) in
      try await store.add(lines, to: batch.id, capacity: capacity)
    }
    switch addition {
    case .accepted(let batch):
      events.metrics.submitted(lines.jobs.count)
      queue.origins.recordDemand(for: Set(lines.jobs.compactMap(\.origin)), by: batch.owner)
      if !lines.jobs.isEmpty { queue.dispatcher.jobsWereQueued(by: batch.owner) }
      return batch
    case .refused(let batch): throw .batchContinuesElsewhere(batch)
    case .queueFull: throw .queueFull
    case .recordsFull: throw .recordsFull
    case .unknown: throw .unknownBatch
    }
  }

  private func lines(_ new: NewLines, of batch: Batch) async -> BatchLines {
    let moment = now()
    var (jobs, rejected): ([Job], [RejectedLine]) = ([], new.rejected)
    jobs.reserveCapacity(new.jobs.count)
    var shared: (given: SharedDefaults, spelled: SharedDefaults)?
    for line in new.jobs {
      guard await isLocalName(of: line.job) else {
        rejected.append(.outside(line.line))
        continue
      }
      var new = line.job
      if let given = new.submission.defaults {
        if shared?.given !== given { shared = (given, given.spelled(by: parts.fetcher)) }
        new.submission.defaults = shared?.spelled
      }
      jobs.append(
        job(
          for: new, of: batch.owner, at: moment,
          batch: BatchPosition(id: batch.id, line: line.line)))
    }
    return BatchLines(
      after: new.offset, count: new.count, jobs: jobs, rejected: rejected, webhook: new.webhook,
      content: new.content)
  }

  /// Closes a batch: no more lines can be added.
  package func close(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch {
    _ = try await batch(id, for: caller)
    let batch = try await withStore { () async throws(StoreError) in try await store.close(id) }
    return try checked(batch, caller)
  }

  /// Deletes a batch that received `lines` lines, none of them a valid job. Does nothing if more lines were
  /// received meanwhile.
  package func deleteEmptyBatch(_ id: BatchID, after lines: Int) async throws(JobsError) {
    try await withStore { () async throws(StoreError) in
      try await store.deleteUnused(id, after: lines)
    }
  }

  /// Returns the batch as it is now.
  package func batch(_ id: BatchID, for caller: Caller) async throws(JobsError) -> Batch {
    try checked(
      try await withStore { () async throws(StoreError) in try await store.batch(id) }, caller)
  }

  private func checked(_ batch: Batch?, _ caller: Caller) throws(JobsError) -> Batch {
    guard let batch, caller.isAdmin || batch.owner == caller.owner,
      batch.expiresAt.map({ $0 > now() }) ?? true
    else { throw .unknownBatch }
    return batch
  }

  /// Returns the batches that match the query, newest first.
  package func batches(_ query: BatchQuery) async throws(JobsError) -> BatchPage {
    try await withStore { () async throws(StoreError) in try await store.batches(query) }
  }

  /// Returns the results of lines of a batch. The caller has checked that the client may see the batch.
  package func results(_ query: ResultQuery) async throws(JobsError) -> BatchResults {
    let results = try await withStore { () async throws(StoreError) in
      try await store.results(query)
    }
    guard let results else { throw .unknownBatch }
    return results
  }

  /// Returns the batch once its revision differs from `revision` (nil: once the batch is over), or once `limit` has
  /// passed.
  package func wait(
    _ id: BatchID, for caller: Caller, beyond revision: Int?, atMost limit: Duration
  ) async throws(JobsError) -> Batch {
    @Sendable func isThere(_ batch: Batch) -> Bool {
      revision.map { batch.revision != $0 } ?? batch.state.isOver
    }
    let batch = try await batch(id, for: caller)
    if isThere(batch) { return batch }
    let stream = follow(id)
    let changed = await withTaskGroup(of: Batch?.self) { group in
      group.addTask {
        for await batch in stream {
          guard let batch else { return nil }
          if isThere(batch) { return batch }
        }
        return nil
      }
      group.addTask {
        try? await Task.sleep(for: limit)
        return nil
      }
      defer { group.cancelAll() }
      return await group.next() ?? nil
    }
    return try await changed == nil ? self.batch(id, for: caller) : checked(changed, caller)
  }

  /// Returns a stream of the batch's state now and after each change. Yields nil and ends once the batch is deleted.
  package func follow(_ id: BatchID) -> AsyncStream<Batch?> { events.batchWatches.follow(id) }
}

extension RejectedLine {
  fileprivate static func outside(_ line: Int) -> RejectedLine {
    RejectedLine(
      line: line, url: nil, code: "invalid_local_name",
      detail: "Must name a file below sources.local_root.")
  }
}

/// Operations on many jobs of a batch at once. Each transaction changes at most ``portion`` jobs, so that other writers
/// get their turn.
/// Where the API answers before all jobs are changed, the rest is done in the background.
extension JobEngine {
  private static let portion = 500

  /// Cancels a batch. No job of the batch starts after this returns; its jobs are cancelled in the background.
  package func cancel(batch id: BatchID, for caller: Caller) async throws(JobsError) -> Batch {
    _ = try await batch(id, for: caller)
    let batch = try await withStore { () async throws(StoreError) in try await store.cancel(id) }
    guard let batch else { throw .unknownBatch }
    upkeep.stoppedBatches.send()
    return batch
  }

  /// Purges a batch and all its jobs.
  ///
  /// - Parameter lines: for a batch whose first lines were refused, the number of lines received so far. The
  ///   idempotency key is removed too, so that the client can send the batch again. Nil for other batches.
  /// - Throws: `.unknownBatch` if there is no such batch, or if more than `lines` lines were received meanwhile; the
  ///   batch stays then.
  package func purge(
    batch id: BatchID, refusedAfter lines: Int?, for caller: Caller
  ) async throws(JobsError) {
    _ = try await batch(id, for: caller)
    let isThere = try await withStore { () async throws(StoreError) in
      // Its permission is not checked, because the purge begins at once.
      _ = try await events.announcer.announce(id)
      return try await store.purge(id, refusedAfter: lines)
    }
    guard isThere else { throw .unknownBatch }
    // From now on no job of the batch is visible, even while the store is still deleting them.
    events.snapshots.purge(batch: id)
    sharing.membership.publish(.batchPurged(id))
    upkeep.stoppedBatches.send()
  }

  /// Queues failed jobs of a batch again. If one of them is refused or the queue is full, the jobs that are already
  /// queued stay queued.
  ///
  /// - Parameter codes: the failure codes to retry; empty: all failures that may succeed without a change.
  package func retry(
    batch id: BatchID, codes: Set<FailureCode>, for caller: Caller
  ) async throws(JobsError) -> Batch {
    let batch = try await batch(id, for: caller)
    try requireAccepting()
    var query = RetryQuery(
      id, codes: codes.isEmpty ? Set(FailureCode.allCases) : codes, count: Self.portion,
      within: capacity(for: caller, ofBatch: true))
    while true {
      let again = try await requeuing(
        of: batch.owner, withWebhook: true, allWithWebhook: batch.webhook != nil, for: caller)
      let retry = try await withStore { [query] () async throws(StoreError) in
        try await store.retry(query) { job in
          guard !codes.isEmpty || job.failure?.isRetryable == true else { return false }
          return again.requeue(&job)
        }
      }
      guard let retry else { throw .unknownBatch }
      for job in retry.jobs { events.publisher.publish(job, hasEnded: false) }
      if !retry.jobs.isEmpty { queue.dispatcher.jobsWereQueued() }
      if let refusal = again.refusal { throw refusal }
      guard !retry.isQueueFull else { throw .queueFull }
      guard let next = retry.next else { return try await self.batch(id, for: caller) }
      query.after = next
    }
  }

  /// Does the pending work of batches until cancelled.
  ///
  /// Jobs of cancelled batches end as soon as this process is signaled. Once a second it also cancels jobs that are
  /// loaded here and whose batch another instance has cancelled, and records finished batches. Every five seconds the
  /// leading instance handles what a crash left behind.
  func runBatchUpkeep() async {
    // A separate task, so that a large batch delays nothing else.
    async let ending: Void = endStoppedOnSignal()
    var round = 0
    while !Task.isCancelled {
      let isDue = round.isMultiple(of: 5) && sharing.lease.leads
      if isDue || loadsBatchJobs { upkeep.stoppedBatches.send() }
      if isDue { await closeAndExpireBatches() }
      await finishBatches()
      round += 1
      try? await Task.sleep(for: .seconds(1))
    }
    await ending
  }

  /// Whether jobs of batches are being loaded here.
  private var loadsBatchJobs: Bool {
    loading.loads.waiters.contains { $0.job.batch != nil }
  }

  private func endStoppedOnSignal() async {
    for await _ in upkeep.stoppedBatches.arrivals { await endStopped() }
  }

  private func endStopped() async {
    var isMore = true
    while isMore, !Task.isCancelled {
      do throws(StoreError) {
        let ends = try await store.endStoppedJobs(Self.portion, keptFor: configuration.retention) {
          [rules = loading.loads.rules] in ResponseCache.image(of: rules.sharing($0))
        }
        // Cancel the running jobs first: they send requests to origins.
        await cancelLoading(of: Set(ends.batches))
        for job in ends.cancelled { events.publisher.publish(job, hasEnded: true) }
        await removePurged(ends.removed)
        isMore = ends.isMore
      } catch {
        log.error("failed to end the jobs of a cancelled batch", metadata: ["error": "\(error)"])
        return
      }
    }
  }

  /// Cancels the jobs of these batches that are being loaded here.
  private func cancelLoading(of batches: Set<BatchID>) async {
    guard !batches.isEmpty else { return }
    var waiters = loading.loads.waiters.filter { waiter in
      waiter.job.batch.map { batches.contains($0.id) } ?? false
    }[...]
    let (moment, retention) = (now(), configuration.retention)
    while !waiters.isEmpty {
      let some = waiters.prefix(Self.portion)
      waiters = waiters.dropFirst(Self.portion)
      let written = await loading.completer.writer.write(some.map(\.claim)) { job in
        job.cancel(at: moment, keptFor: job.submission.retention ?? retention)
      }
      guard case .durable(let completed) = written else { return }
      for job in completed.jobs.lazy.compactMap(\.self) {
        // A job that ended before was published then.
        events.publisher.publish(job, hasEnded: job.phase == .cancelled)
        loading.loads.remove(job.id, before: job.version)
      }
    }
  }

  /// Finishes batches whose jobs have all ended, and wakes the webhook sender if any of them has a webhook.
  private func finishBatches() async {
    do throws(StoreError) {
      if try await store.finishBatches() { webhooks.sender?.wake() }
    } catch {
      log.error("failed to record finished batches", metadata: ["error": "\(error)"])
    }
  }

  /// Removes what this process holds of purged jobs. The store has deleted the rest.
  private func removePurged(_ jobs: [Job]) async {
    guard !jobs.isEmpty else { return }
    let moment = now()
    for job in jobs {
      events.snapshots.purge(job.id)
      removeFromMemory(job)
      events.publisher.recordPurge(of: job, at: moment)
      await deletePartial(of: job)
    }
  }

  private func closeAndExpireBatches() async {
    let (idle, end) = (configuration.batchIdle, ContinuousClock.now + .seconds(1))
    do throws(StoreError) {
      // At most one second a round, so that finished batches are reported in between. The next round continues.
      while try await store.closeAndExpireBatches(idleFor: idle, 256) == 256, .now < end {}
      // A batch that was found finished may have a message.
      webhooks.sender?.wake()
    } catch {
      log.error("failed to clean up batches", metadata: ["error": "\(error)"])
    }
  }
}
