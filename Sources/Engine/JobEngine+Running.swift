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
    try await sharing.lease.begin()
    let instance = sharing.membership.instance
    let news = sharing.membership.events(for: instance)
    let bus = InstanceEventBus()
    let inbox = bus.events(for: instance)
    // From the first moment to the end of the lease, because the other instances wait for confirmations.
    let receiving = Task { await receiveEvents(news, as: instance, passingOnTo: bus) }
    defer { receiving.cancel() }
    try await adoptNetworkState()
    let requeued = try await recover()
    let removed = try await parts.spool.removeUnfinished()
    if requeued > 0 || removed > 0 {
      log.notice(
        "recovered from an unclean stop",
        metadata: ["jobs": "\(requeued)", "unfinished_images": "\(removed)"])
    }
    if try await store.counts().jobs[.queued] ?? 0 == 0 { queue.positions.clear() }
    // Check the disk before the first job is claimed.
    await caching.storage.check()
    lifecycle.withLock { if $0 == .starting { $0 = .ready } }
    onReady()
    if !queue.network.isConstrained { loading.background.replaceLowData() }
    await withTaskGroup { group in
      group.addTask { await self.housekeeping.run() }
      group.addTask { await self.upkeep.cleanup.run { await self.housekeeping.runRound() } }
      group.addTask { await self.housekeeping.sweep() }
      group.addTask { await self.runBatchUpkeep() }
      group.addTask { await self.sharing.lease.run() }
      group.addTask { for await id in self.sharing.lease.lost { await self.applyChange(of: id) } }
      group.addTask { await self.caching.storage.run() }
      group.addTask { await self.upkeep.health.run(now: self.clock) }
      group.addTask { await self.watch.run() }
      group.addTask { await self.applyEvents(inbox) }
      group.addTask { await self.events.snapshots.subscribers.run() }
      group.addTask { await self.readPagesForSubscribers() }
      group.addTask { await self.cancelAbandoned() }
      group.addTask { await self.confirmPurges() }
      group.addTask { await self.backgroundWorker.run() }
      group.addTask { await self.webhooks.sender?.run() }
      await work()
      loading.background.stop()
      group.cancelAll()
    }
    await caching.responses.saveUses()
    // Wait for renditions that are being stored: storing them needs the lease.
    await renditions.variants?.close()
    await sharing.lease.retire()
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
      sharing.membership.metrics.tookOver(jobs.count)
      if jobs.count < batch { return count }
    }
  }

  private func work() async {
    await queue.dispatcher.run(
      (0..<configuration.workers).map { _ in
        Worker(
          on: parts.threads.workerLane(at: .normal), dispatcher: queue.dispatcher,
          coalescer: loading.coalescer, loader: loading.loader)
      })
  }

  private var watch: ProgressWatch {
    ProgressWatch(loads: loading.loads, loader: loading.loader, threads: parts.threads)
  }

  var refresher: CacheRefresher {
    CacheRefresher(loader: loading.backgroundLoader, cache: caching.responses, ids: ids, now: clock)
  }

  private var backgroundWorker: BackgroundWorker {
    BackgroundWorker(
      queue: loading.background, refresher: refresher, replacer: lowDataReplacer())
  }

  func lowDataReplacer(retry: RetryPolicy = .ofRegularImages) -> LowDataReplacer {
    LowDataReplacer(
      loader: loading.backgroundLoader, store: store, network: queue.network,
      publisher: events.publisher, renderer: loading.loader.finisher.renderer,
      deliverer: loading.loader.finisher.deliverer, log: log, retry: retry)
  }

  var housekeeping: Housekeeping {
    Housekeeping(
      store: store, lease: sharing.lease, dispatcher: queue.dispatcher, images: parts.images,
      keeper: caching.keeper, snapshots: events.snapshots, cache: caching.responses,
      dailyBytes: queue.dailyBytes,
      idempotencyTTL: configuration.idempotencyTTL, now: clock, log: log)
  }

  /// Refuses new jobs, waits up to `limit` for the running ones, and queues the rest again. ``run(onReady:)`` returns
  /// within a second after that. Jobs that could not be queued again are recovered by the next start.
  package func drain(within limit: Duration) async {
    let deadline = ContinuousClock.now + limit
    lifecycle.withLock { $0 = .draining }
    loading.background.stop()
    queue.dispatcher.stop()
    loading.loads.stop()
    async let sent: Void? = webhooks.sender?.stop(by: min(deadline, .now + .seconds(3)))
    await loading.loads.emptied.wait(until: deadline)
    await sent
    loading.loads.close()
    // A little longer than the jobs may take to save their results.
    await loading.loads.emptied.wait(until: .now + Loads.grace + .milliseconds(100))
    events.snapshots.close()
    events.batchWatches.close()
    await renditions.variants?.close()
  }

  /// Updates the gauges that need a count in the store. If counting takes longer than two seconds, they keep their last
  /// values, so that reading the metrics never takes long.
  package func observe() async {
    sharing.membership.metrics.observe(
      configuration.name, release: configuration.version, leads: sharing.lease.leads)
    await upkeep.counting.run(atMost: .seconds(2)) { [self] in await count() }
  }

  private func count() async {
    do throws(StoreError) {
      events.metrics.observe(
        JobMetrics.Counts(
          store: try await store.counts(), cache: try await caching.responses.counts(),
          running: loading.loads.count, stuck: upkeep.health.stuck(at: now()).count,
          workers: configuration.workers, oldest: loading.loads.oldest.map { now() - $0 } ?? .zero,
          renderings: renditions.variants?.load, pausedOrigins: queue.origins.paused,
          partialBytes: loading.kept.bytes))
      try await webhooks.sender?.observe()
    } catch {
      log.error("failed to count the store's records", metadata: ["error": "\(error)"])
    }
  }
}
