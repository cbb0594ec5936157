internal import Jobs
internal import Logging
internal import Waiting

// The parts of each stage, in the order of their construction. An initializer gets only the parts that it uses, so they
// exist before it. Two parts that wake each other share a signal.

/// Values that parts of several stages use.
struct EngineSetup: Sendable {
  let configuration: JobEngine.Configuration
  let parts: JobEngine.Parts
  let ids = JobIDSequence()
  let storeClock: StoreClock
  let log: Logger

  /// The store's clock, as far as it is known here.
  var now: WallClock {
    { [storeClock] in storeClock.now }
  }
}

/// Sharing: this process and the other instances of the cluster.
struct SharingStage: Sendable {
  let membership: Membership
  let lease: Lease

  init(_ setup: EngineSetup, _ membership: Membership, _ loads: Loads) {
    self.membership = membership
    lease = Lease(
      store: setup.parts.store, membership: membership, duration: setup.configuration.lease,
      loads: loads, clock: setup.storeClock, log: setup.log)
  }
}

/// Events: the known state of jobs, and the subscribers to it.
struct EventStage: Sendable {
  let metrics = JobMetrics()
  let snapshots: JobSnapshots
  let announcer: Announcer
  let publisher: JobPublisher
  let batchWatches: BatchWatches
  /// Jobs that the store may have purged although it reported a failure, each with the time until which that is
  /// possible.
  let unconfirmedPurges = AsyncStream<(job: Job, limit: ContinuousClock.Instant)>.makeStream()

  /// - Parameters:
  ///   - newMessage: sent when a job with a webhook has ended.
  ///   - background: gets a pass over the low-data images when a job has ended with one although the network is no
  ///     longer constrained.
  init(
    _ setup: EngineSetup, _ membership: Membership, newMessage: Signal, _ network: NetworkState,
    _ background: BackgroundQueue
  ) {
    snapshots = JobSnapshots(
      capacity: setup.configuration.snapshotCapacity, membership: membership,
      setup.configuration.announcements)
    announcer = Announcer(membership, snapshots, setup.configuration.announcements, log: setup.log)
    publisher = JobPublisher(
      snapshots: snapshots, metrics: metrics, tracer: setup.parts.tracer, log: setup.log,
      onMessage: { newMessage.send() },
      onLowData: { job in
        // The network is no longer constrained since the job was claimed.
        if network.firstCandidate(of: job.submission) == .regular { background.replaceLowData() }
      })
    batchWatches = BatchWatches(store: setup.parts.store)
  }
}

/// Webhooks: messages about finished jobs and batches.
struct WebhookStage: Sendable {
  /// Nil if webhooks are off.
  let sender: WebhookSender?
  let quota: MessageQuota

  init(_ setup: EngineSetup, _ lease: Lease, newMessage: Signal) {
    let store = setup.parts.store
    sender = setup.parts.webhooks.map { webhooks in
      WebhookSender(
        store: store, lease: lease, client: webhooks.client, rules: webhooks.rules,
        body: webhooks.body, signal: newMessage, clock: setup.now, log: setup.log)
    }
    quota = MessageQuota(store: store, limit: setup.configuration.maxWaitingMessages)
  }
}

/// Cache: stored images and responses.
struct CacheStage: Sendable {
  let storage: StorageState
  let uploads: UploadQuota
  let keeper: ImageLifecycle
  let responses: ResponseCache
  let views: ViewJobs

  /// - Parameter room: sent when the disk is no longer full.
  init(_ setup: EngineSetup, _ lease: Lease, room: CapacitySignal) {
    let (configuration, parts, log) = (setup.configuration, setup.parts, setup.log)
    storage = StorageState(
      images: parts.images, records: parts.store, log: log, onRoom: { room.send() })
    uploads = UploadQuota(configuration.maxStoredBytes, now: setup.now)
    keeper = ImageLifecycle(
      store: parts.store, images: parts.images, uploads: uploads, lease: lease, log: log)
    responses = ResponseCache(
      configuration.cache, store: parts.store, images: parts.images, keeper: keeper, log: log)
    views = ViewJobs(capacity: configuration.snapshotCapacity)
  }
}

/// Queue: which job is next, and what it may use.
struct QueueStage: Sendable {
  let network: NetworkState
  let origins: OriginLimits
  let positions: QueuePositions
  let gate: QueueGate
  let dailyBytes: DailyBytes
  let memory: DecodeMemory
  let dispatcher: Dispatcher

  /// - Parameter room: sent when an origin has room for a request; wakes the dispatcher.
  init(
    _ setup: EngineSetup, _ lease: Lease, _ storage: StorageState, _ network: NetworkState,
    room: CapacitySignal
  ) {
    let configuration = setup.configuration
    self.network = network
    origins = OriginLimits(
      configuration.originRules,
      onPause: { lease.membership.publish(.originPaused($0, $1)) }, onRoom: { room.send() })
    positions = QueuePositions(since: setup.now())
    gate = QueueGate(patience: configuration.refusalDuration)
    dailyBytes = DailyBytes(of: configuration.limitedOwners)
    memory = DecodeMemory(bytes: configuration.limits.maxMemory)
    let store = setup.parts.store
    dispatcher = Dispatcher(
      store: store, lease: lease, origins: origins, positions: positions, gate: gate,
      storage: storage, room: room, patience: store.losesAnswers ? .seconds(30) : nil,
      now: setup.now, log: setup.log)
  }
}

/// Renditions: variants of stored images.
struct RenditionStage: Sendable {
  let opener: ImageOpener
  /// Nil if variants are not offered.
  let variants: Variants?

  init(_ setup: EngineSetup, _ events: EventStage, _ caching: CacheStage, _ memory: DecodeMemory) {
    let (configuration, parts, log) = (setup.configuration, setup.parts, setup.log)
    let opener = ImageOpener(
      memory: caching.responses.memory, images: parts.images, threads: parts.threads,
      losses: ImageLosses(
        keeper: caching.keeper, cache: caching.responses, snapshots: events.snapshots,
        views: caching.views, log: log))
    self.opener = opener
    let renditions = RenditionCache(
      cache: caching.responses, store: parts.store, spool: parts.spool, opener: opener,
      space: RenditionSpace(configuration.maxStoredBytes / 8, now: setup.now),
      keeper: caching.keeper, storage: caching.storage, storeLimit: configuration.maxStoredBytes,
      ids: setup.ids, now: setup.now, log: log)
    variants = parts.renderer.map { renderer in
      Variants(
        VariantRendering(
          renderer: renderer, memory: memory, opener: opener,
          maxMemory: configuration.limits.maxMemory),
        renditions: renditions, threads: parts.threads, metrics: events.metrics,
        queue: VariantQueue(
          atOnce: configuration.renderingsAtOnce, maxWaiting: configuration.maxWaitingRenderings),
        now: setup.now)
    }
  }
}

/// Loading: from a claimed job to its end.
struct LoadingStage: Sendable {
  let background: BackgroundQueue
  let loads: Loads
  let completer: JobCompleter
  let coalescer: Coalescer
  let kept: PartialTransfers
  let loader: Loader
  let backgroundLoader: BackgroundLoader
  let lastDecode = LastDecode()

  /// - Parameter cleanup: requested when an image that must be deleted soon is no longer referenced.
  init(
    _ setup: EngineSetup, _ loads: Loads, _ background: BackgroundQueue, _ lease: Lease,
    _ events: EventStage, _ caching: CacheStage, _ queue: QueueStage, _ renditions: RenditionStage,
    cleanup: CleanupRounds
  ) {
    let (configuration, parts, now, log) = (
      setup.configuration, setup.parts, setup.now, setup.log
    )
    (self.loads, self.background) = (loads, background)
    completer = JobCompleter(
      writer: CompletionWriter(
        store: parts.store, lease: lease, keeper: caching.keeper, cache: caching.responses,
        loads: loads, gate: queue.gate, log: log),
      outcomes: JobOutcomes(
        retry: configuration.retry, retention: configuration.retention, network: queue.network,
        now: now, log: log),
      publisher: events.publisher, dispatcher: queue.dispatcher, loads: loads,
      bytes: queue.dailyBytes)
    coalescer = Coalescer(
      store: parts.store, lease: lease, loads: loads, completer: completer, gate: queue.gate,
      log: log)
    kept = PartialTransfers(spool: parts.spool, loads: loads, now: now, log: log)
    let ingest = ImageIngest(
      codec: parts.codec, limits: configuration.limits, memory: queue.memory,
      staging: ImageStaging(
        spool: parts.spool, images: parts.images, keeper: caching.keeper,
        largestEmbedded: parts.store.largestEmbedded, log: log),
      completer: completer, lastDecode: lastDecode)
    let urls = URLLoader(
      cache: caching.responses, fetcher: parts.fetcher, origins: queue.origins, kept: kept,
      ingest: ingest, background: background, bytes: queue.dailyBytes,
      tracing: configuration.tracing, maxBytes: configuration.maxBytes,
      timeout: configuration.timeout, now: now)
    let renderer = JobRenderer(
      variants: renditions.variants, staging: ingest.staging,
      isShared: configuration.cache.isShared)
    let finisher = Finisher(
      loads: loads, renderer: renderer,
      deliverer: Deliverer(
        destinations: parts.destinations, renderer: renderer, threads: parts.threads,
        slots: DeliverySlots(), timeout: configuration.deliverTimeout, now: now, log: log),
      completer: completer, threads: parts.threads, capacity: FinishingCapacity(),
      onDropped: { cleanup.request() }, ids: setup.ids, now: now)
    let files = FileLoader(
      images: parts.images, locals: parts.locals, ingest: ingest, maxBytes: configuration.maxBytes,
      now: now, log: log)
    loader = Loader(
      loads: loads, urls: urls, files: files, finisher: finisher, completer: completer)
    backgroundLoader = BackgroundLoader(
      loads: loads, urls: urls, origins: queue.origins, threads: parts.threads,
      completer: completer, keeper: caching.keeper, log: log)
  }
}

/// Upkeep: cleaning up and health checks.
struct UpkeepStage: Sendable {
  let cleanup: CleanupRounds
  let health: DecodeHealth
  /// Sent when batches may have jobs to cancel or delete.
  let stoppedBatches = Signal()
  /// Counting the store's records, for the gauges.
  let counting = SharedOperation()

  init(_ setup: EngineSetup, _ cleanup: CleanupRounds, _ loading: LoadingStage) {
    self.cleanup = cleanup
    health = DecodeHealth(
      setup.configuration.canaryRules, codec: setup.parts.codec, threads: setup.parts.threads,
      loads: loading.loads, loading.lastDecode, log: setup.log)
  }
}
