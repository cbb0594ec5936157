package import Jobs
package import Logging
internal import Synchronization

// Engine: from a submission to a finished job.
//
// Input: requests of the API, jobs claimed from the store, responses of origins, events of other instances. Output:
// jobs in the store, images in the image store, updates for subscribers, webhook messages.
//
// `JobEngine` has an extension for each kind of request: `JobEngine+Submitting.swift`, `+Reading`, `+Changing` and so
// on. The work behind them is in one folder per stage. Read them in this order:
//
// 1. `Queue`: `Dispatcher` claims jobs for idle workers; `OriginLimits` decides when an origin may get a request.
// 2. `Loading`: fetches, decodes, stores and delivers the image of a claimed job.
// 3. `Events`: `JobPublisher` makes a new state visible; `Subscribers` deliver it to clients.
// 4. `Cache`, `Renditions`: stored responses and images, and variants of them.
// 5. `Webhooks`, `Sharing`, `Upkeep`: messages to receivers, the lease and the other instances, cleaning up.
//
// Methods of `JobEngine` run on the caller's thread. Loads and renderings run on the decode threads, the loops of
// ``JobEngine/run(onReady:)`` on Swift's shared threads. The store and the image store have threads of their own.

/// Accepts jobs, carries them out and reports their state: the entry point of this module.
///
/// A change is durable when the method that makes it returns. ``peek(_:for:)`` never suspends. The initializer makes
/// all parts of the engine and passes each of them only the parts that it uses.
package final class JobEngine: Sendable {
  let configuration: Configuration
  let store: any JobStore
  let images: any ImageStore
  let spool: any ImageSpool
  let fetcher: any ImageFetcher
  let locals: (any LocalImages)?
  let threads: any ComputeThreads
  let ids = JobIDSequence()
  /// The store's clock, as far as it is known here.
  let clock: WallClock
  let log: Logger
  let lifecycle = Mutex(ServiceState.starting)
  /// Time when this process started.
  let since: Timestamp
  let storage: StorageState

  // Sharing: this process and the other instances of the cluster.
  let membership: Membership
  let lease: Lease

  // Events: the known state of jobs, and the subscribers to it.
  let metrics = JobMetrics()
  let sharedCount = SharedOperation()
  let snapshots: JobSnapshots
  let publisher: JobPublisher
  /// Jobs that the store may have purged although it reported a failure, each with the time until which that is
  /// possible.
  let unconfirmedPurges = AsyncStream<(job: Job, limit: ContinuousClock.Instant)>.makeStream()
  let batchWatches: BatchWatches

  // Webhooks: messages about finished jobs and batches. Nil if webhooks are off.
  let webhooks: WebhookSender?
  let waitingMessages: MessageQuota

  // Cache: stored images and responses.
  let uploads: UploadQuota
  let keeper: ImageLifecycle
  let cache: ResponseCache
  let views: ViewJobs

  // Queue: which job is next.
  let network: NetworkState
  let origins: OriginLimits
  let positions: QueuePositions
  let queueGate: QueueGate
  let dailyBytes: DailyBytes
  let dispatcher: Dispatcher

  // Loading: from a claimed job to its end.
  let background: BackgroundQueue
  let loads: Loads
  let completer: JobCompleter
  /// Signals that batches may have jobs to cancel or delete.
  let batchSignal = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
  let coalescer: Coalescer
  let kept: PartialTransfers
  let loader: Loader
  let backgroundLoader: BackgroundLoader

  // Renditions: variants of stored images.
  let opener: ImageOpener
  /// Nil if variants are not offered.
  let variants: Variants?

  // Upkeep: cleaning up and health checks.
  let cleanupRounds = CleanupRounds()
  let vitality: DecodeHealth

  /// - Parameter now: the wall clock of this machine.
  package init(
    _ configuration: Configuration, _ parts: Parts, now: @escaping WallClock, log: Logger
  ) {
    self.configuration = configuration
    (store, images, spool) = (parts.store, parts.images, parts.spool)
    fetcher = parts.fetcher
    (locals, threads) = (parts.locals, parts.threads)
    self.log = log
    let storeClock = StoreClock(machine: now)
    let now: WallClock = { storeClock.now }
    clock = now
    since = now()
    let signal = DispatcherSignal()
    let storage = StorageState(
      images: parts.images, records: parts.store, log: log, onRoom: { signal.wake() })
    self.storage = storage

    network = NetworkState(isConstrained: configuration.isConstrained)
    background = BackgroundQueue(now: now)
    membership = Membership(store: parts.store)
    snapshots = JobSnapshots(capacity: configuration.snapshotCapacity, membership: membership)
    let bell = WebhookSignal()
    publisher = JobPublisher(
      snapshots: snapshots, metrics: metrics, tracer: parts.tracer, log: log,
      onMessage: { bell.wake() },
      onLowData: { [network, background] job in
        // The network is no longer constrained since the job was claimed.
        if network.firstCandidate(of: job.submission) == .regular { background.replaceLowData() }
      })

    loads = Loads(
      LoadFactory(rules: configuration.loadRules, ids: ids, now: now),
      snapshots: snapshots, metrics: metrics)
    lease = Lease(
      store: parts.store, membership: membership, duration: configuration.lease, loads: loads,
      clock: storeClock, log: log)

    webhooks = parts.webhooks.map { [lease] webhooks in
      WebhookSender(
        store: parts.store, lease: lease, client: webhooks.client, rules: webhooks.rules,
        body: webhooks.body, clock: now, log: log)
    }
    bell.connect(webhooks)
    waitingMessages = MessageQuota(
      store: parts.store, limit: configuration.maxWaitingMessages)
    batchWatches = BatchWatches(store: parts.store)

    uploads = UploadQuota(configuration.maxStoredBytes, now: now)
    keeper = ImageLifecycle(
      store: parts.store, images: parts.images, uploads: uploads, lease: lease, log: log)
    cache = ResponseCache(
      configuration.cache, store: parts.store, images: parts.images, keeper: keeper, log: log)
    views = ViewJobs(capacity: configuration.snapshotCapacity)

    origins = OriginLimits(
      configuration.originRules,
      onPause: { [membership] in membership.publish(.originPaused($0, $1)) },
      onRoom: { signal.wake() }
    )
    positions = QueuePositions(since: now())
    queueGate = QueueGate(patience: configuration.refusalDuration)
    dailyBytes = DailyBytes(of: configuration.limitedOwners)
    dispatcher = Dispatcher(
      store: parts.store, lease: lease, origins: origins, positions: positions, gate: queueGate,
      storage: storage, signal: signal, patience: parts.store.losesAnswers ? .seconds(30) : nil,
      now: now, log: log)

    let lastDecode = LastDecode()
    vitality = DecodeHealth(
      configuration.canaryRules, codec: parts.codec, threads: threads, loads: loads, lastDecode,
      log: log)
    let memory = DecodeMemory(bytes: configuration.limits.maxMemory)
    completer = JobCompleter(
      writer: CompletionWriter(
        store: parts.store, lease: lease, keeper: keeper, cache: cache, loads: loads,
        gate: queueGate, log: log),
      outcomes: JobOutcomes(
        retry: configuration.retry, retention: configuration.retention, network: network, now: now,
        log: log),
      publisher: publisher, dispatcher: dispatcher, loads: loads, bytes: dailyBytes)
    coalescer = Coalescer(
      store: parts.store, lease: lease, loads: loads, completer: completer,
      gate: queueGate, log: log)
    kept = PartialTransfers(spool: parts.spool, loads: loads, now: now, log: log)
    let opener = ImageOpener(
      memory: cache.memory, images: parts.images, threads: threads,
      losses: ImageLosses(
        keeper: keeper, cache: cache, snapshots: snapshots, views: views, log: log))
    self.opener = opener
    let renditions = RenditionCache(
      cache: cache, store: parts.store, spool: parts.spool, opener: opener,
      space: RenditionSpace(configuration.maxStoredBytes / 8, now: now), keeper: keeper,
      storage: storage, storeLimit: configuration.maxStoredBytes, ids: ids, now: now, log: log)
    let variants = parts.renderer.map { [threads, metrics] renderer in
      Variants(
        VariantRendering(
          renderer: renderer, memory: memory, opener: opener,
          maxMemory: configuration.limits.maxMemory),
        renditions: renditions, threads: threads, metrics: metrics,
        queue: VariantQueue(
          atOnce: configuration.renderingsAtOnce, maxWaiting: configuration.maxWaitingRenderings),
        now: now)
    }
    self.variants = variants

    let ingest = ImageIngest(
      codec: parts.codec, limits: configuration.limits, memory: memory,
      staging: ImageStaging(
        spool: parts.spool, images: parts.images, keeper: keeper,
        largestEmbedded: parts.store.largestEmbedded, log: log),
      completer: completer, lastDecode: lastDecode)
    let urls = URLLoader(
      cache: cache,
      requests: OriginRequests(
        fetcher: parts.fetcher, origins: origins, tracing: configuration.tracing,
        maxBytes: configuration.maxBytes, timeout: configuration.timeout),
      kept: kept, ingest: ingest, background: background, bytes: dailyBytes, now: now)
    let renderer = JobRenderer(
      variants: variants, staging: ingest.staging, isShared: configuration.cache.isShared)
    let finisher = Finisher(
      loads: loads, renderer: renderer,
      deliverer: Deliverer(
        destinations: parts.destinations, renderer: renderer, threads: threads,
        slots: DeliverySlots(), timeout: configuration.deliverTimeout, now: now, log: log),
      completer: completer, threads: threads, capacity: FinishingCapacity(),
      onDropped: { [cleanupRounds] in cleanupRounds.request() },
      ids: ids,
      now: now)
    let files = FileLoader(
      images: parts.images, locals: parts.locals, ingest: ingest, maxBytes: configuration.maxBytes,
      now: now, log: log)
    loader = Loader(
      loads: loads, urls: urls, files: files, finisher: finisher, completer: completer)
    backgroundLoader = BackgroundLoader(
      loads: loads, urls: urls, origins: origins, threads: threads, completer: completer,
      keeper: keeper, log: log)
  }

  /// The state of the service, which decides whether it accepts jobs.
  package var state: ServiceState {
    let state = lifecycle.withLock { $0 }
    guard state == .ready else { return state }
    if lease.isFailing { return .starting }
    if storage.isFull { return .full }
    return vitality.isFailing ? .stuck : .ready
  }

  /// The store's wall-clock time, as far as it is known here.
  package func now() -> Timestamp { clock() }

  // MARK: Rules that every method shares

  /// Throws unless submissions are accepted. During the start they are refused, because recovery would mistake new work
  /// for work that a crash left behind.
  func requireAccepting() throws(JobsError) {
    switch state {
    case .starting: throw .starting
    // Each method that adds data checks the disk itself.
    case .ready, .full, .stuck: return
    case .draining: throw .draining
    }
  }

  func isAlive(_ job: Job) -> Bool {
    if let batch = job.batch, snapshots.isPurged(batch.id) { return false }
    return job.expiresAt.map { $0 > now() } ?? true
  }

  func checked(_ snapshot: JobSnapshot, _ caller: Caller) throws(JobsError) -> JobSnapshot {
    guard caller.sees(snapshot.job), isAlive(snapshot.job) else { throw .unknownJob }
    return snapshot
  }

  func withStore<Value>(
    _ body: () async throws(StoreError) -> Value
  ) async throws(JobsError) -> Value {
    do throws(StoreError) { return try await body() } catch {
      // If the caller's task was cancelled, the store may not have tried.
      let level: Logger.Level = Task.isCancelled ? .debug : .error
      log.log(level: level, "store operation failed", metadata: ["error": "\(error)"])
      storage.recordFailure(error)
      throw .store(error)
    }
  }
}
