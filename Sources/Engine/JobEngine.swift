package import Jobs
package import Logging
internal import Synchronization
internal import Waiting

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
/// the stages, whose parts `Stages.swift` lists.
package final class JobEngine: Sendable {
  let configuration: Configuration
  let parts: Parts
  let store: any JobStore
  let ids: JobIDSequence
  /// The store's clock, as far as it is known here.
  let clock: WallClock
  let log: Logger
  let lifecycle = Mutex(ServiceState.starting)
  /// Time when this process started.
  let since: Timestamp

  let sharing: SharingStage
  let events: EventStage
  let webhooks: WebhookStage
  let caching: CacheStage
  let queue: QueueStage
  let renditions: RenditionStage
  let loading: LoadingStage
  let upkeep: UpkeepStage

  /// - Parameter now: the wall clock of this machine.
  package init(
    _ configuration: Configuration, _ parts: Parts, now: @escaping WallClock, log: Logger
  ) {
    (self.configuration, self.parts, store, self.log) = (configuration, parts, parts.store, log)
    let setup = EngineSetup(
      configuration: configuration, parts: parts, storeClock: StoreClock(machine: now), log: log)
    (ids, clock, since) = (setup.ids, setup.now, setup.now())

    let (newMessage, room, cleanup) = (Signal(), CapacitySignal(), CleanupRounds())
    let membership = Membership(store: parts.store)
    let network = NetworkState(isConstrained: configuration.isConstrained)
    let background = BackgroundQueue(now: setup.now)
    events = EventStage(setup, membership, newMessage: newMessage, network, background)
    let loads = Loads(
      LoadFactory(rules: configuration.loadRules, ids: setup.ids, now: setup.now),
      snapshots: events.snapshots, metrics: events.metrics)
    sharing = SharingStage(setup, membership, loads)
    webhooks = WebhookStage(setup, sharing.lease, newMessage: newMessage)
    caching = CacheStage(setup, sharing.lease, room: room)
    queue = QueueStage(setup, sharing.lease, caching.storage, network, room: room)
    renditions = RenditionStage(setup, events, caching, queue.memory)
    loading = LoadingStage(
      setup, loads, background, sharing.lease, events, caching, queue, renditions,
      cleanup: cleanup)
    upkeep = UpkeepStage(setup, cleanup, loading)
  }

  /// The state of the service, which decides whether it accepts jobs.
  package var state: ServiceState {
    let state = lifecycle.withLock { $0 }
    guard state == .ready else { return state }
    if sharing.lease.isFailing { return .starting }
    if caching.storage.isFull { return .full }
    return upkeep.health.isFailing ? .stuck : .ready
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
    if let batch = job.batch, events.snapshots.isPurged(batch.id) { return false }
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
      caching.storage.recordFailure(error)
      throw .store(error)
    }
  }
}
