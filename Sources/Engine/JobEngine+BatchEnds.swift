package import Jobs
internal import Logging
internal import Waiting

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
      try await store.purge(id, refusedAfter: lines)
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
    } catch {
      log.error("failed to clean up batches", metadata: ["error": "\(error)"])
    }
  }
}
