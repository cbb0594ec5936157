public import Jobs
internal import Logging

/// What happens to many jobs of a batch at once: some hundred in a transaction, behind the answer where that promises it.
extension JobEngine {
  private static let portion = 500

  /// Cancels a batch: none of its jobs begins from then on.
  public func cancel(batch id: BatchID, for caller: Caller) async throws(JobsError) -> Batch {
    _ = try await batch(id, for: caller)
    let batch = try await storing { () async throws(StoreError) in try await store.cancel(id) }
    guard let batch else { throw .unknownBatch }
    batchSignal.continuation.yield()
    return batch
  }

  /// Forgets a batch and all its jobs.
  /// - Parameter lines: how many came of it, where its beginning was refused: with its key, as who sends it again begins
  ///   another one. `.unknownBatch` where somebody has gone on with it: it stays.
  public func purge(
    batch id: BatchID, refusedAfter lines: Int?, for caller: Caller
  ) async throws(JobsError) {
    _ = try await batch(id, for: caller)
    let isThere = try await storing { () async throws(StoreError) in
      try await store.purge(id, refusedAfter: lines)
    }
    guard isThere else { throw .unknownBatch }
    // However many there are to be removed, nobody is shown one from now on.
    snapshots.purge(batch: id)
    membership.tell(.batchPurged(id))
    batchSignal.continuation.yield()
  }

  /// Queues failed jobs of a batch again: those that failed so, or all that may succeed without a change. Where one of them
  /// may not be queued, or finds no place, those that were by then stay queued.
  /// - Parameter codes: empty: the latter.
  public func retry(
    batch id: BatchID, codes: Set<FailureCode>, for caller: Caller
  ) async throws(JobsError) -> Batch {
    let batch = try await batch(id, for: caller)
    try takeable()
    var query = RetryQuery(
      id, codes: codes.isEmpty ? Set(FailureCode.allCases) : codes, count: Self.portion,
      within: capacity(for: caller, ofBatch: true))
    while true {
      let again = try await requeuing(
        of: batch.owner, telling: true, areAllTold: batch.webhook != nil, for: caller)
      let retry = try await storing { [query] () async throws(StoreError) in
        try await store.retry(query) { job in
          guard !codes.isEmpty || job.failure?.isRetryable == true else { return false }
          return again.queue(&job)
        }
      }
      guard let retry else { throw .unknownBatch }
      for job in retry.jobs { publisher.publish(job, hasEnded: false) }
      if !retry.jobs.isEmpty { dispatcher.jobsWereQueued() }
      if let refusal = again.refusal { throw refusal }
      guard !retry.isQueueFull else { throw .queueFull }
      guard let next = retry.next else { return try await self.batch(id, for: caller) }
      query.after = next
    }
  }

  /// Does what is left to do of batches until cancelled: at once where this process was asked for it; once a second for
  /// jobs that are loaded here, whose batch others may have cancelled, and for those that have ended here; and every five
  /// seconds, of many instances by one, what a crash left.
  func keepBatches() async {
    // However much there is to end, nothing else waits for that.
    async let ending: Void = endAsAsked()
    var round = 0
    while !Task.isCancelled {
      let isDue = round.isMultiple(of: 5) && lease.leads
      if isDue || carriesLines { batchSignal.continuation.yield() }
      if isDue { await tidyBatches() }
      await finishBatches()
      round += 1
      try? await Task.sleep(for: .seconds(1))
    }
    await ending
  }

  /// Whether jobs of batches are loaded here.
  private var carriesLines: Bool {
    loads.waiters.contains { $0.job.batch != nil }
  }

  private func endAsAsked() async { for await _ in batchSignal.stream { await endStopped() } }

  private func endStopped() async {
    var isMore = true
    while isMore, !Task.isCancelled {
      do throws(StoreError) {
        let ends = try await store.endStopped(Self.portion, keptFor: configuration.retention) {
          [rules = loads.rules] in ResponseCache.image(of: rules.sharing($0))
        }
        // First those that ask an origin.
        await cancelLoading(of: Set(ends.batches))
        for job in ends.cancelled { publisher.publish(job, hasEnded: true) }
        await forget(ends.removed)
        isMore = ends.isMore
      } catch {
        log.error("a cancelled batch's jobs can't be ended", metadata: ["error": "\(error)"])
        return
      }
    }
  }

  /// Cancels jobs that are carried here.
  private func cancelLoading(of batches: Set<BatchID>) async {
    guard !batches.isEmpty else { return }
    var waiters = loads.waiters.filter { waiter in
      waiter.job.batch.map { batches.contains($0.id) } ?? false
    }[...]
    let (moment, retention) = (now(), configuration.retention)
    while !waiters.isEmpty {
      let some = waiters.prefix(Self.portion)
      waiters = waiters.dropFirst(Self.portion)
      let written = await completer.writer.write(some.map(\.claim)) { job in
        job.cancel(at: moment, keptFor: job.submission.retention ?? retention)
      }
      guard case .durable(let completed) = written else { return }
      for job in completed.jobs.lazy.compactMap(\.self) {
        // Or it had ended before, and that was told.
        publisher.publish(job, hasEnded: job.phase == .cancelled)
        loads.leave(job.id, before: job.version)
      }
    }
  }

  /// Batches may have ended: whoever is to be told of it is.
  private func finishBatches() async {
    do throws(StoreError) {
      if try await store.finishBatches() { webhooks?.ring() }
    } catch {
      log.error("ends of batches can't be written down", metadata: ["error": "\(error)"])
    }
  }

  /// Forgets what is here of purged jobs; the store has forgotten the rest with them.
  private func forget(_ jobs: [Job]) async {
    guard !jobs.isEmpty else { return }
    let moment = now()
    for job in jobs {
      snapshots.purge(job.id)
      forgetInMemory(job)
      publisher.recordPurge(of: job, at: moment)
      await forgetPartial(of: job)
    }
  }

  private func tidyBatches() async {
    let (idle, end) = (configuration.batchIdle, ContinuousClock.now + .seconds(1))
    do throws(StoreError) {
      // However much there is to forget, ends are told meanwhile: the next round goes on.
      while try await store.tidyBatches(idleFor: idle, 256) == 256, .now < end {}
    } catch {
      log.error("batches can't be tidied", metadata: ["error": "\(error)"])
    }
  }
}
