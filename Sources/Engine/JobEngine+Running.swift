package import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// Start, main loop and stop of the engine.
extension JobEngine {
  /// Recovers what an earlier run left behind, then works until ``drain(within:)`` has finished.
  ///
  /// - Parameter onReady: called once submissions are accepted.
  /// - Throws: if the store can't be read at the start.
  package func run(onReady: () -> Void = {}) async throws(StoreError) {
    try await lease.begin()
    let instance = membership.instance
    let news = membership.events(for: instance)
    try await adoptNetworkState()
    let requeued = try await recover()
    let removed = try await spool.removeUnfinished()
    if requeued > 0 || removed > 0 {
      log.notice(
        "recovered from an unclean stop",
        metadata: ["jobs": "\(requeued)", "unfinished_images": "\(removed)"])
    }
    if try await store.counts().jobs[.queued] ?? 0 == 0 { positions.clear() }
    // Check the disk before the first job is claimed.
    await storage.check()
    lifecycle.withLock { if $0 == .starting { $0 = .ready } }
    onReady()
    if !network.isConstrained { background.replaceLowData() }
    await withTaskGroup { group in
      group.addTask { await self.housekeeping.run() }
      group.addTask { await self.cleanupRounds.run { await self.housekeeping.runRound() } }
      group.addTask { await self.housekeeping.sweep() }
      group.addTask { await self.runBatchUpkeep() }
      group.addTask { await self.lease.run() }
      group.addTask { for await id in self.lease.lost { await self.applyChange(of: id) } }
      group.addTask { await self.storage.run() }
      group.addTask { await self.vitality.run(now: self.clock) }
      group.addTask { await self.watch.run() }
      group.addTask { await self.receiveEvents(news, as: instance) }
      group.addTask { await self.snapshots.subscribers.run() }
      group.addTask { await self.readPagesForSubscribers() }
      group.addTask { await self.cancelAbandoned() }
      group.addTask { await self.confirmPurges() }
      group.addTask { await self.backgroundWorker.run() }
      group.addTask { await self.webhooks?.run() }
      await work()
      background.stop()
      group.cancelAll()
    }
    await cache.saveUses()
    // Wait for renditions that are being stored: storing them needs the lease.
    await variants?.close()
    await lease.retire()
  }

  /// Queues jobs again whose worker is gone. In an exclusive store these are all jobs that were loading, in a shared
  /// one the jobs of instances whose lease has expired.
  /// - Returns: the number of jobs.
  private func recover() async throws(StoreError) -> Int {
    let batch = 500
    var count = 0
    while true {
      let jobs = try await store.recoverExpired(batch)
      count += jobs.count
      membership.metrics.tookOver(jobs.count)
      if jobs.count < batch { return count }
    }
  }

  private func work() async {
    await dispatcher.run(
      (0..<configuration.workers).map { _ in
        Worker(
          on: threads.workerLane(at: .normal), dispatcher: dispatcher, loads: loads,
          coalescer: coalescer, loader: loader)
      })
  }

  private var watch: ProgressWatch {
    ProgressWatch(loads: loads, loader: loader, threads: threads)
  }

  var refresher: CacheRefresher {
    CacheRefresher(loader: backgroundLoader, cache: cache, ids: ids, now: clock)
  }

  private var backgroundWorker: BackgroundWorker {
    BackgroundWorker(
      queue: background, refresher: refresher,
      replacer: lowDataReplacer())
  }

  func lowDataReplacer(retry: RetryPolicy = .ofRegularImages) -> LowDataReplacer {
    LowDataReplacer(
      loader: backgroundLoader, store: store, network: network, publisher: publisher,
      renderer: loader.finisher.renderer, deliverer: loader.finisher.deliverer, log: log,
      retry: retry)
  }

  var housekeeping: Housekeeping {
    Housekeeping(
      store: store, lease: lease, dispatcher: dispatcher, images: images, keeper: keeper,
      snapshots: snapshots, cache: cache, dailyBytes: dailyBytes,
      idempotencyTTL: configuration.idempotencyTTL, now: clock, log: log)
  }

  /// Refuses new jobs, waits up to `limit` for the running ones, and queues the rest again. ``run(onReady:)`` returns
  /// within a second after that. Jobs that could not be queued again are recovered by the next start.
  package func drain(within limit: Duration) async {
    let deadline = ContinuousClock.now + limit
    lifecycle.withLock { $0 = .draining }
    background.stop()
    dispatcher.stop()
    loads.stop()
    async let sent: Void? = webhooks?.stop(by: min(deadline, .now + .seconds(3)))
    await loads.emptied.wait(until: deadline)
    await sent
    loads.close()
    // A little longer than the jobs may take to save their results.
    await loads.emptied.wait(until: .now + Loads.grace + .milliseconds(100))
    snapshots.close()
    batchWatches.close()
    await variants?.close()
  }

  /// Updates the gauges that need a count in the store. If counting takes longer than two seconds, they keep their last
  /// values, so that reading the metrics never takes long.
  package func observe() async {
    membership.metrics.observe(
      configuration.name, release: configuration.version, leads: lease.leads)
    await sharedCount.run(atMost: .seconds(2)) { [self] in await count() }
  }

  private func count() async {
    do throws(StoreError) {
      metrics.observe(
        JobMetrics.Counts(
          store: try await store.counts(), cache: try await cache.counts(), running: loads.count,
          stuck: vitality.stuck(at: now()).count,
          workers: configuration.workers, oldest: loads.oldest.map { now() - $0 } ?? .zero,
          renderings: variants?.load, pausedOrigins: origins.paused, partialBytes: kept.bytes))
      try await webhooks?.observe()
    } catch {
      log.error("failed to count the store's records", metadata: ["error": "\(error)"])
    }
  }
}
