internal import Jobs
internal import Logging

/// What all who work on jobs share.
struct Crew: Sendable {
  let configuration: JobEngine.Configuration
  let dispatcher: Dispatcher
  let store: any JobStore
  let lease: Lease
  let images: any ImageStore
  let partials: any PartialStore
  let locals: (any LocalImages)?
  let keeper: ImageKeeper
  let cache: ResponseCache
  let opener: ImageOpener
  /// Nil where none are made.
  let variants: Variants?
  let fetcher: any ImageFetcher
  let ingest: ImageIngest
  let threads: any ComputeThreads
  let snapshots: JobSnapshots
  let loads: Loads
  let origins: OriginLimits
  let positions: QueuePositions
  let background: BackgroundLoads
  let network: NetworkState
  let views: Views
  let uploads: UploadQuota
  let metrics: JobMetrics
  let ids: JobIDSequence
  let now: WallClock
  let log: Logger

  /// Bytes that images may take which are kept, beside those being received.
  var roomForImages: Int { max(0, configuration.maxStoredBytes - uploads.held) }

  /// The job as it shares by the present configuration, which may have changed since it was submitted.
  func sharing(_ job: Job) -> Job {
    var job = job
    job.isApart = !configuration.cache.isShared
    return job
  }

  /// A job's part in a load that it enters now.
  func waiter(_ job: Job, _ claim: Claim) -> Load.Waiter {
    let job = sharing(job)
    let limits = JobLimits(of: job, within: configuration)
    return Load.Waiter(
      job: job, claim: claim, limits: limits, deadline: .now + limits.timeout,
      priority: job.priority)
  }

  /// A new load for a job.
  func load(for job: Job, isBackground: Bool = false) -> Load {
    let (job, moment) = (sharing(job), now())
    return Load(
      for: job, request: isBackground ? nil : job.request, holder: ids.next(at: moment),
      since: moment, lane: threads.lane(at: job.priority), isBackground: isBackground)
  }

  /// Has queued jobs that ask the same join the load, wherever they stand in the queue.
  ///
  /// ``Load/beginCoalescing()`` comes before; this ends it. What the load takes no more is put back, and nothing more is
  /// brought then.
  ///
  /// - Parameter limit: how many.
  func coalesce(into load: Load, atMost limit: Int = .max) async {
    defer { load.endCoalescing() }
    guard let request = load.request else { return }
    var left = limit
    do throws(StoreError) {
      while left > 0, !loads.isStopping, !load.isCancelled {
        let wanted = min(left, JobCompleter.batch)
        let taken = try await lease.holding { instance throws(StoreError) in
          try await store.claim(equalTo: request, count: wanted, for: instance)
        }
        let haveJoined = await join(taken, load)
        guard haveJoined, taken.count == wanted else { return }
        left -= wanted
      }
    } catch {
      log.error("the store hands over no jobs", metadata: ["error": "\(error)"])
    }
  }

  private func join(_ jobs: [(job: Job, claim: Claim)], _ load: Load) async -> Bool {
    guard !jobs.isEmpty else { return false }
    let waiters = jobs.map { waiter($0.job, $0.claim) }
    let refused = loads.enter(waiters, load)
    guard refused.isEmpty else {
      await JobCompleter(crew: self).requeue(refused.map(\.claim))
      return false
    }
    metrics.joined(waiters.count)
    for waiter in waiters { show(waiter, in: load) }
    return true
  }

  /// Shows that a job is loading, and how far that is; a cancellation or a purge that came first is on the board by now.
  func show(_ waiter: Load.Waiter, in load: Load) {
    guard snapshots.publish(waiter.job)?.job.phase == .loading else {
      return loads.leave(waiter, load)
    }
    let news = load.tracker.news
    if news != LoadProgress() {
      snapshots.report(waiter.job.id, ProgressReport(of: waiter.job, news))
    }
  }

  /// Tells members that have left before the others how it ended for them.
  func completeEarlyEnds(from load: Load) async {
    let earlyEnds = load.takeEarlyEnds()
    guard !earlyEnds.isEmpty else { return }
    let failures = Dictionary(
      earlyEnds.map { ($0.waiter.claim, $0.failure) }, uniquingKeysWith: { first, _ in first })
    await JobCompleter(crew: self).complete(earlyEnds.map(\.waiter), of: load) { waiter in
      .failure(failures[waiter.claim] ?? .internal)
    }
  }
}

extension Crew {
  init(
    _ configuration: JobEngine.Configuration, _ parts: JobEngine.Parts,
    now: @escaping WallClock, log: Logger
  ) {
    let signal = DispatcherSignal()
    var rules = OriginRules()
    rules.maxTransfers = configuration.maxPerOrigin
    rules.requestsPerSecond = configuration.requestsPerSecondPerOrigin
    let origins = OriginLimits(rules) { signal.wake() }
    let positions = QueuePositions(since: now())
    let snapshots = JobSnapshots(capacity: configuration.shownJobs)
    let cache = ResponseCache(
      configuration.cache, store: parts.store, images: parts.images, log: log)
    let clock = StoreClock(machine: now)
    let now: WallClock = { clock.now }
    let loads = Loads(snapshots: snapshots)
    let lease = Lease(
      store: parts.store, duration: configuration.lease, loads: loads, clock: clock, log: log)
    let keeper = ImageKeeper(store: parts.store, images: parts.images, lease: lease, log: log)
    let views = Views(capacity: configuration.shownJobs)
    let opener = ImageOpener(
      memory: cache.memory, images: parts.images, threads: parts.threads,
      losses: ImageLosses(
        keeper: keeper, cache: cache, snapshots: snapshots, views: views, log: log))
    let (memory, metrics, ids) = (
      DecodeMemory(bytes: configuration.limits.maxMemory), JobMetrics(), JobIDSequence()
    )
    let renditions = RenditionCache(
      cache: cache, store: parts.store, images: parts.images, opener: opener, keeper: keeper,
      cacheLimit: configuration.cache.disk, storeLimit: configuration.maxStoredBytes, ids: ids,
      now: now, log: log)
    let variants = parts.renderer.map { renderer in
      Variants(
        VariantRendering(
          renderer: renderer, memory: memory, opener: opener,
          maxMemory: configuration.limits.maxMemory),
        renditions: renditions, threads: parts.threads, metrics: metrics,
        queue: VariantQueue(
          atOnce: configuration.renderingsAtOnce, maxWaiting: configuration.maxWaitingRenderings))
    }
    self.init(
      configuration: configuration,
      dispatcher: Dispatcher(
        store: parts.store, lease: lease, origins: origins, positions: positions,
        signal: signal, now: now, log: log),
      store: parts.store, lease: lease, images: parts.images, partials: parts.images,
      locals: parts.locals,
      keeper: keeper, cache: cache, opener: opener, variants: variants,
      fetcher: parts.fetcher,
      ingest: ImageIngest(codec: parts.codec, memory: memory),
      threads: parts.threads, snapshots: snapshots, loads: loads, origins: origins,
      positions: positions, background: BackgroundLoads(),
      network: NetworkState(isConstrained: configuration.isConstrained),
      views: views, uploads: UploadQuota(configuration.maxStoredBytes, now: now), metrics: metrics,
      ids: ids, now: now, log: log)
  }

  /// Shows how far loads have come, ten times a second, and ends what takes jobs too long, until cancelled. While
  /// nothing is loaded it does nothing.
  func watchLoads() async {
    for await _ in loads.beginnings {
      var round = 0
      while !Task.isCancelled, loads.count > 0 || snapshots.subscribers.wakeAgain() {
        for load in loads.all {
          load.timeOut(.now)
          await completeEarlyEnds(from: load)
          if round.isMultiple(of: 2), let news = load.tracker.takeUnshown() { show(news, of: load) }
        }
        round += 1
        snapshots.subscribers.wakeAgain()
        try? await Task.sleep(for: .milliseconds(50))
      }
    }
  }

  private func show(_ news: LoadProgress, of load: Load) {
    for waiter in load.waiters {
      snapshots.report(waiter.job.id, ProgressReport(of: waiter.job, news))
    }
  }

  /// Shows how far a job's load has come before something else happens to the job.
  func showNews(of id: JobID) {
    for load in loads.of(id) { if let news = load.tracker.takeUnshown() { show(news, of: load) } }
  }

  /// Forgets what is kept for a purged job beside its image: broken-off bytes, and what the cache has of it.
  func forgetBytes(of job: Job) async {
    let job = sharing(job)
    if let key = job.partial, job.phase != .success {
      do throws(StoreError) { try await partials.drop(key) } catch {
        log.error(
          "kept bytes can't be removed", metadata: ["job": "\(job.id)", "error": "\(error)"])
      }
    }
    guard let image = job.image else { return }
    await cache.forgetVariants(of: image.digest)
    await cache.forget(image.digest, of: job)
  }
}
