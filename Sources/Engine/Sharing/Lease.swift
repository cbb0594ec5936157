internal import Jobs
internal import Logging
internal import Metrics
internal import Synchronization
internal import Waiting

/// The jobs that this process works on under its lease.
protocol ClaimHolder: Sendable {
  /// The claims held here.
  var claims: Set<Claim> { get }

  /// Stops the work under a claim that was lost.
  /// - Returns: false if it had already ended.
  func stopWork(under claim: Claim) -> Bool
}

/// This process's lease with the store. While it is renewed, the store knows that the process is alive.
///
/// Input: time. Output: the right to claim jobs and to reserve images, and the jobs whose claims were lost. Runs on
/// Swift's threads.
final class Lease: Sendable {
  private let store: any InstanceLeases
  private let duration: Duration
  private let loads: any ClaimHolder
  private let clock: StoreClock
  private let log: Logger
  let membership: Membership
  private let renewal = Mutex(LastRenewal())
  /// When the last successful renewal was requested; nil: none yet.
  private let renewed = Mutex<ContinuousClock.Instant?>(nil)
  private let hasEnded = Mutex(false)
  private let leading = Mutex(false)
  private let lostClaims = AsyncStream<JobID>.makeStream()
  /// Only one task renews at a time, because many can notice at once that the lease has expired.
  private let renewing = AsyncSemaphore(1)

  /// - Parameter duration: time without a renewal after which other instances may take the jobs over.
  init(
    store: any InstanceLeases, membership: Membership, duration: Duration,
    loads: any ClaimHolder, clock: StoreClock, log: Logger
  ) {
    self.store = store
    self.membership = membership
    self.duration = duration
    self.loads = loads
    self.clock = clock
    self.log = log
  }

  /// The identity of this process, which owns its claims and reservations.
  var instance: Instance { membership.instance }

  /// The state of the last renewal.
  private struct LastRenewal {
    var hasFailed = false
    /// Start of the current renewal; nil if there is none.
    var began: ContinuousClock.Instant?
  }

  /// Whether the last renewal failed, or the current one takes longer than the pause between two renewals. So an outage
  /// of the store is noticed within a third of the lease.
  var isFailing: Bool {
    renewal.withLock { renewal in
      renewal.hasFailed || renewal.began.map { .now - $0 > max(pause, .seconds(1)) } ?? false
    }
  }

  /// Time between two renewals.
  private var pause: Duration { duration / 6 }

  /// Whether half of the lease has passed without a renewal. Renewals are three times as frequent, so the store or this
  /// process was suspended.
  private var isHalfOver: Bool {
    renewed.withLock { $0.map { ContinuousClock.now - $0 > duration / 2 } ?? false }
  }

  /// Whether this instance leads: it does the work that one instance does for all.
  var leads: Bool { leading.withLock { $0 } }

  /// Jobs that were loaded here and whose claims were lost. Their new state has to be read from the store.
  var lost: AsyncStream<JobID> { lostClaims.stream }

  /// Records that a claim was found to be lost when its job was to be finished.
  func recordLoss(of claim: Claim) { lostClaims.continuation.yield(claim.job) }

  /// Registers this process with the store.
  func begin() async throws(StoreError) {
    let instance = try await store.register(for: duration)
    membership.become(instance)
    _ = try await prolong(instance)
  }

  /// Renews the lease regularly, until cancelled.
  func run() async {
    while !Task.isCancelled {
      try? await Task.sleep(for: pause)
      if Task.isCancelled { return }
      renewal.withLock { $0.began = .now }
      do throws(StoreError) {
        try await renew(instance)
        renewal.withLock { $0 = LastRenewal() }
        membership.metrics.renewed(true)
      } catch {
        renewal.withLock { $0 = LastRenewal(hasFailed: true) }
        membership.metrics.renewed(false)
        // Claims are held until the store says that they are lost.
        log.error("failed to renew the lease", metadata: ["error": "\(error)"])
      }
    }
  }

  /// Ends the lease for good, so that other instances need not wait until it expires.
  func retire() async {
    hasEnded.withLock { $0 = true }
    membership.setLeaseEnd(nil)
    do throws(StoreError) { try await store.retire(instance) } catch {
      log.warning("failed to end the lease, it expires later", metadata: ["error": "\(error)"])
    }
  }

  /// Runs an operation that needs a lease. If the lease has expired, renews it or begins a new one, and runs the
  /// operation again.
  func withLease<Value>(
    _ body: (Instance) async throws(StoreError) -> Value
  ) async throws(StoreError) -> Value {
    let instance = instance
    do throws(StoreError) { return try await body(instance) } catch {
      guard error == .leaseLost else { throw error }
    }
    try await renew(instance)
    return try await body(membership.instance)
  }

  /// Like ``withLease(_:)``, for operations that begin long work. If half of the lease has passed, it is renewed first,
  /// and nothing begins if that fails. Otherwise other instances could take the work over while it still runs here.
  func withFreshLease<Value>(
    _ body: (Instance) async throws(StoreError) -> Value
  ) async throws(StoreError) -> Value {
    if isHalfOver { try await renew(instance, onlyWhereHalfOver: true) }
    return try await withLease(body)
  }

  /// Renews the lease, or begins a new one if it has expired for good. Stops the work under claims that were lost.
  private func renew(
    _ instance: Instance, onlyWhereHalfOver: Bool = false
  ) async throws(StoreError) {
    guard let turn = await renewing.acquire() else { throw .leaseLost }
    defer { withExtendedLifetime(turn) {} }
    if hasEnded.withLock({ $0 }) { throw .leaseLost }
    // Another task renewed it or began a new one meanwhile.
    guard membership.instance == instance, !onlyWhereHalfOver || isHalfOver else { return }
    let claims = loads.claims
    let renewal = try await prolong(instance)
    if renewal == nil { try await replace(instance) }
    for claim in claims.subtracting(renewal?.claims ?? []) where loads.stopWork(under: claim) {
      lostClaims.continuation.yield(claim.job)
    }
  }

  private func replace(_ lost: Instance) async throws(StoreError) {
    log.error("the lease was lost, jobs loaded here start again")
    leading.withLock { $0 = false }
    membership.metrics.leaseWasLost()
    let asked = ContinuousClock.now
    membership.setLeaseEnd(nil)
    membership.become(try await store.register(for: duration))
    recordRenewal(at: asked)
    do throws(StoreError) { try await store.retire(lost) } catch {
      log.warning("failed to end the lost lease", metadata: ["error": "\(error)"])
    }
  }

  private func prolong(_ instance: Instance) async throws(StoreError) -> Renewal? {
    let (began, asked) = (clock.own, ContinuousClock.now)
    guard let renewal = try await store.renew(instance, for: duration) else { return nil }
    recordRenewal(at: asked)
    leading.withLock { $0 = renewal.leads }
    clock.synchronize(renewal.moment, reportedBetween: began, and: clock.own)
    return renewal
  }

  private func recordRenewal(at asked: ContinuousClock.Instant) {
    renewed.withLock { $0 = asked }
    membership.setLeaseEnd(asked + duration)
  }
}

/// Estimates the store's clock: this machine's clock plus the last known offset.
final class StoreClock: Sendable {
  private let machine: WallClock
  private let offset = Mutex(Duration.zero)

  init(machine: @escaping WallClock) { self.machine = machine }

  /// The estimated time of the store's clock.
  var now: Timestamp { machine() + offset.withLock { $0 } }

  /// The time of this machine's clock.
  var own: Timestamp { machine() }

  /// Updates the offset from a time that the store reported between two times of this machine's clock. If the reported
  /// time lies between them, the offset is zero, because the difference may only be the transfer time.
  func synchronize(_ moment: Timestamp, reportedBetween first: Timestamp, and last: Timestamp) {
    let difference =
      moment < first ? moment - first : moment > last ? moment - last : Duration.zero
    offset.withLock { $0 = difference }
  }
}

/// The identity of this process in the cluster, and its events to the other instances.
final class Membership: Sendable {
  private let store: any InstanceEvents
  private let current = Mutex(Instance.none)
  private let leaseEnd = Mutex<ContinuousClock.Instant?>(nil)
  let metrics = SharingMetrics()

  init(store: any InstanceEvents) { self.store = store }

  /// The identity of this process, which owns its claims and reservations. ``Lease`` sets it.
  var instance: Instance { current.withLock { $0 } }

  /// Whether no other instance can change what the store has.
  var isAlone: Bool { store.isExclusive }

  /// Changes the identity, after a new lease began.
  func become(_ instance: Instance) { current.withLock { $0 = instance } }

  /// Whether the lease is valid at least until `moment`. The store counts an instance as live for at least as long.
  func hasLease(at moment: ContinuousClock.Instant) -> Bool {
    leaseEnd.withLock { $0.map { moment < $0 } ?? false }
  }

  /// Records the end of the lease; nil: it has ended.
  func setLeaseEnd(_ end: ContinuousClock.Instant?) { leaseEnd.withLock { $0 = end } }

  /// Sends an event, and returns the other live instances: see ``InstanceEvents/announce(_:from:)``.
  func announce(_ event: InstanceEvent) async throws(StoreError) -> Set<Instance> {
    metrics.published()
    return try await store.announce(event, from: instance)
  }

  /// Publishes an event to the other instances. Call it once the store has the change. Costs nothing in an exclusive
  /// store.
  func publish(_ news: InstanceEvent) {
    if !isAlone { metrics.published() }
    store.publish(news, from: instance)
  }

  /// Returns the events of the other instances.
  func events(for instance: Instance) -> AsyncStream<InstanceEvent> { store.events(for: instance) }
}

/// The metrics of the lease and of events between instances, as `GET /metrics` shows them.
struct SharingMetrics: Sendable {
  private let renewals = (
    done: Counter(label: "imagefetch_lease_renewals_total", dimensions: [("outcome", "renewed")]),
    failed: Counter(label: "imagefetch_lease_renewals_total", dimensions: [("outcome", "failed")])
  )
  private let leasesLost = Counter(label: "imagefetch_leases_lost_total")
  private let takenOver = Counter(label: "imagefetch_jobs_taken_over_total")
  private let fenced = Counter(label: "imagefetch_jobs_fenced_total")
  private let events = (
    told: Counter(label: "imagefetch_news_total", dimensions: [("direction", "told")]),
    heard: Counter(label: "imagefetch_news_total", dimensions: [("direction", "heard")])
  )

  private let leads = Gauge(label: "imagefetch_instance_leads")

  /// Sets the gauges. Called before the metrics are read.
  func observe(_ name: String?, release: String?, leads isLeading: Bool) {
    leads.record(isLeading ? 1 : 0)
    Gauge(
      label: "imagefetch_instance_info",
      dimensions: [("name", name ?? ""), ("version", release ?? "")]
    ).record(1)
  }

  /// Counts an attempt to renew the lease.
  func renewed(_ isDone: Bool) { (isDone ? renewals.done : renewals.failed).increment() }

  /// Counts a lease that could not be renewed.
  func leaseWasLost() { leasesLost.increment() }

  /// Counts jobs of lost instances that this instance requeued.
  func tookOver(_ count: Int) { takenOver.increment(by: Int64(count)) }

  /// Counts jobs that ended here after their claim was lost.
  func fenced(_ count: Int) { if count > 0 { fenced.increment(by: Int64(count)) } }

  /// Counts an event that was published.
  func published() { events.told.increment() }

  /// Counts an event that was received.
  func received() { events.heard.increment() }
}

/// Repeats a store operation until it succeeds, after 0.1 s at first and every 10 s in the end.
/// - Parameter failure: the log line of each failure.
/// - Returns: nil if the task was cancelled first.
func retryUntilSuccess<Value>(
  _ failure: Logger.Message, _ log: Logger, _ body: () async throws(StoreError) -> Value
) async -> Value? {
  var pause = Duration.milliseconds(100)
  while !Task.isCancelled {
    do throws(StoreError) { return try await body() } catch {
      log.error(failure, metadata: ["error": "\(error)"])
    }
    try? await Task.sleep(for: pause)
    pause = min(pause * 2, .seconds(10))
  }
  return nil
}
