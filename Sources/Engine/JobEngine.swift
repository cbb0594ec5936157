public import Jobs
public import Logging
internal import Synchronization

/// The service's centre: takes jobs, works on them, and answers what became of them.
///
/// What a method promises is durable when it returns. Reading (``peek(_:for:)``) never suspends. All parts of the engine
/// are made here, each of the few others that it uses; what they do is in the folders beside this file.
public final class JobEngine: Sendable {
  let configuration: Configuration
  let store: any JobStore
  let images: any ImageStore
  let spool: any ImageSpool
  let fetcher: any ImageFetcher
  let locals: (any LocalImages)?
  let threads: any ComputeThreads
  let peers: (any InstancePeers)?
  let ids = JobIDSequence()
  /// The store's clock, as far as it is known here.
  let clock: WallClock
  let log: Logger
  let lifecycle = Mutex(ServiceState.starting)
  /// When this process was made.
  let since: Timestamp
  let storage: StorageRoom

  // Sharing: this process among those that share the store.
  let membership: Membership
  let lease: Lease

  // Events: what is known of jobs, and who wants to know it.
  let metrics = JobMetrics()
  let counting = SharedLook()
  let snapshots: JobSnapshots
  let publisher: JobPublisher
  /// Jobs that the store may have purged without saying so, and until when it may come to that.
  let doubtfulPurges = AsyncStream<(job: Job, limit: ContinuousClock.Instant)>.makeStream()
  let batchWatches: BatchWatches

  // Webhooks: who is told of ends. Nil: nobody is.
  let webhooks: WebhookSender?
  let waitingMessages: WaitingMessages

  // Cache: images and responses that are kept.
  let uploads: UploadQuota
  let keeper: ImageKeeper
  let cache: ResponseCache
  let views: Views

  // Queue: whose turn it is.
  let network: NetworkState
  let origins: OriginLimits
  let positions: QueuePositions
  let queueGate: QueueGate
  let dailyBytes: DailyBytes
  let dispatcher: Dispatcher

  // Loading: from the queue to a job's end.
  let background: BackgroundQueue
  let loads: Loads
  let completer: JobCompleter
  /// Says that batches have jobs to be ended.
  let batchSignal = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
  let coalescer: Coalescer
  let kept: KeptTransfers
  let loader: Loader
  let backgroundLoader: BackgroundLoader

  // Renditions: other pictures of kept images.
  let opener: ImageOpener
  /// Nil where none are made.
  let variants: Variants?

  // Upkeep.
  let tidying = TidyRounds()
  let vitality: Vitality

  /// - Parameter now: the wall clock.
  public init(
    _ configuration: Configuration, _ parts: Parts, now: @escaping WallClock, log: Logger
  ) {
    self.configuration = configuration
    (store, images, spool) = (parts.store, parts.images, parts.spool)
    fetcher = parts.fetcher
    (locals, threads, peers) = (parts.locals, parts.threads, parts.peers)
    self.log = log
    let storeClock = StoreClock(machine: now)
    let now: WallClock = { storeClock.now }
    clock = now
    since = now()
    let signal = DispatcherSignal()
    let storage = StorageRoom(
      images: parts.images, records: parts.store, log: log, onRoom: { signal.wake() })
    self.storage = storage

    network = NetworkState(isConstrained: configuration.isConstrained)
    background = BackgroundQueue(now: now)
    membership = Membership(store: parts.store)
    snapshots = JobSnapshots(capacity: configuration.shownJobs, membership: membership)
    let bell = WebhookBell()
    publisher = JobPublisher(
      snapshots: snapshots, metrics: metrics, tracer: parts.tracer, log: log,
      onMessage: { bell.ring() },
      onLowData: { [network, background] job in
        // The network changed while the job was loading.
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
    waitingMessages = WaitingMessages(
      store: parts.store, limit: configuration.maxWaitingMessages)
    batchWatches = BatchWatches(store: parts.store)

    uploads = UploadQuota(configuration.maxStoredBytes, now: now)
    keeper = ImageKeeper(
      store: parts.store, images: parts.images, uploads: uploads, lease: lease, log: log)
    cache = ResponseCache(
      configuration.cache, store: parts.store, images: parts.images, keeper: keeper, log: log)
    views = Views(capacity: configuration.shownJobs)

    origins = OriginLimits(
      configuration.originRules,
      onPause: { [membership] in membership.tell(.originPaused($0, $1)) }, onRoom: { signal.wake() }
    )
    positions = QueuePositions(since: now())
    queueGate = QueueGate(patience: configuration.refusalStands)
    dailyBytes = DailyBytes(of: configuration.limitedOwners)
    dispatcher = Dispatcher(
      store: parts.store, lease: lease, origins: origins, positions: positions, gate: queueGate,
      storage: storage, signal: signal, patience: parts.store.losesAnswers ? .seconds(30) : nil,
      now: now, log: log)

    let lastDecode = LastDecode()
    vitality = Vitality(
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
    kept = KeptTransfers(spool: parts.spool, loads: loads, now: now, log: log)
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
      completer: completer, threads: threads, room: FinishingRoom(),
      onDropped: { [tidying] in tidying.askSoon() },
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

  /// Whether jobs are taken.
  public var state: ServiceState {
    let state = lifecycle.withLock { $0 }
    guard state == .ready else { return state }
    if lease.isFailing { return .starting }
    if storage.isFull { return .full }
    return vitality.isFailing ? .stuck : .ready
  }

  /// The wall clock's time.
  public func now() -> Timestamp { clock() }

  // MARK: Rules that every method shares

  /// Work is taken between the start's tidying up, which would take new work for what a crash left, and the stop.
  func takeable() throws(JobsError) {
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

  func storing<Value>(
    _ body: () async throws(StoreError) -> Value
  ) async throws(JobsError) -> Value {
    do throws(StoreError) { return try await body() } catch {
      // For those who have left the store may not have tried.
      let level: Logger.Level = Task.isCancelled ? .debug : .error
      log.log(level: level, "the store failed", metadata: ["error": "\(error)"])
      storage.note(error)
      throw .store(error)
    }
  }
}
