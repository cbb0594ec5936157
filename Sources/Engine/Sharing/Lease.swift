internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// What this process works on under its lease.
protocol ClaimedJobs: Sendable {
  /// The claims that it holds.
  var claims: Set<Claim> { get }

  /// Stops work under a claim that was lost.
  /// - Returns: false when it had ended already.
  func leave(_ claim: Claim) -> Bool
}

/// This process's lease with the store, by which the store knows that it lives.
///
/// In comes time; out goes the right to claim jobs and to reserve images, and the jobs whose claim was lost. Runs on
/// Swift's threads.
final class Lease: Sendable {
  private let store: any InstanceLeases
  private let duration: Duration
  private let loads: any ClaimedJobs
  private let clock: StoreClock
  private let log: Logger
  /// This process, under the lease.
  let membership: Membership
  private let renewal = Mutex(LastRenewal())
  /// When the last renewal that came to something was asked for; nil: there was none.
  private let renewed = Mutex<ContinuousClock.Instant?>(nil)
  private let hasEnded = Mutex(false)
  private let leading = Mutex(false)
  private let losing = AsyncStream<JobID>.makeStream()
  /// One renews at a time: many notice at once that a lease is over.
  private let renewing = AsyncSemaphore(1)

  /// - Parameter duration: how long the store waits for a renewal before others may take over.
  init(
    store: any InstanceLeases, membership: Membership, duration: Duration,
    loads: any ClaimedJobs, clock: StoreClock, log: Logger
  ) {
    self.store = store
    self.membership = membership
    self.duration = duration
    self.loads = loads
    self.clock = clock
    self.log = log
  }

  /// Who claims and reserves.
  var instance: Instance { membership.instance }

  /// What is known of the last try to renew it.
  private struct LastRenewal {
    var hasFailed = false
    /// Since when it is under way; nil: it isn't.
    var began: ContinuousClock.Instant?
  }

  /// Whether the store did not answer the last time that the lease was to be renewed, or has not done so yet although it
  /// should have. A third of the lease after the store stands still that is known: as long again as between two tries.
  var isFailing: Bool {
    renewal.withLock { renewal in
      renewal.hasFailed || renewal.began.map { .now - $0 > max(pause, .seconds(1)) } ?? false
    }
  }

  /// Between two renewals.
  private var pause: Duration { duration / 6 }

  /// Whether half of it is over: renewals come three times as often, so the store, or this process, stood still.
  private var isHalfOver: Bool {
    renewed.withLock { $0.map { ContinuousClock.now - $0 > duration / 2 } ?? false }
  }

  /// Whether this instance does what one does for all.
  var leads: Bool { leading.withLock { $0 } }

  /// Jobs that were loaded here and are not ours any more: what the store has is to be looked up.
  var lost: AsyncStream<JobID> { losing.stream }

  /// A claim turned out to hold no more when its job was to end.
  func wasLost(_ claim: Claim) { losing.continuation.yield(claim.job) }

  /// Begins it.
  func begin() async throws(StoreError) {
    let instance = try await store.register(for: duration)
    membership.become(instance)
    _ = try await prolong(instance)
  }

  /// Renews it in time, until cancelled.
  func keep() async {
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
        // What is held stays held until the store says otherwise.
        log.error("the lease with the store can't be renewed", metadata: ["error": "\(error)"])
      }
    }
  }

  /// Ends it for good, so that other instances need not wait until it runs out.
  func end() async {
    hasEnded.withLock { $0 = true }
    do throws(StoreError) { try await store.retire(instance) } catch {
      log.warning("the lease with the store ends by itself", metadata: ["error": "\(error)"])
    }
  }

  /// Does what needs a lease; one that was over is renewed first, or another one begun.
  func holding<Value>(
    _ body: (Instance) async throws(StoreError) -> Value
  ) async throws(StoreError) -> Value {
    let instance = instance
    do throws(StoreError) { return try await body(instance) } catch {
      guard error == .leaseLost else { throw error }
    }
    try await renew(instance)
    return try await body(membership.instance)
  }

  /// The same for what begins something that goes on for long. Where half of the lease is over it is renewed first, or nothing
  /// begins: others would take it over, and do the same, while it goes on here.
  func beginning<Value>(
    _ body: (Instance) async throws(StoreError) -> Value
  ) async throws(StoreError) -> Value {
    if isHalfOver { try await renew(instance, onlyWhereHalfOver: true) }
    return try await holding(body)
  }

  /// Renews an instance's lease, or begins another one where it is over for good. What is held no more is left.
  private func renew(
    _ instance: Instance, onlyWhereHalfOver: Bool = false
  ) async throws(StoreError) {
    guard let turn = await renewing.acquire() else { throw .leaseLost }
    defer { withExtendedLifetime(turn) {} }
    if hasEnded.withLock({ $0 }) { throw .leaseLost }
    // Somebody else noticed it, and began another one.
    guard membership.instance == instance, !onlyWhereHalfOver || isHalfOver else { return }
    let claims = loads.claims
    let renewal = try await prolong(instance)
    if renewal == nil { try await beginAnew(after: instance) }
    for claim in claims.subtracting(renewal?.claims ?? []) where loads.leave(claim) {
      losing.continuation.yield(claim.job)
    }
  }

  private func beginAnew(after lost: Instance) async throws(StoreError) {
    log.error("the lease with the store was lost: what was loaded here begins anew")
    leading.withLock { $0 = false }
    membership.metrics.leaseWasLost()
    let asked = ContinuousClock.now
    membership.become(try await store.register(for: duration))
    renewed.withLock { $0 = asked }
    do throws(StoreError) { try await store.retire(lost) } catch {
      log.warning("a lost lease can't be ended", metadata: ["error": "\(error)"])
    }
  }

  private func prolong(_ instance: Instance) async throws(StoreError) -> Renewal? {
    let (began, asked) = (clock.own, ContinuousClock.now)
    guard let renewal = try await store.renew(instance, for: duration) else { return nil }
    renewed.withLock { $0 = asked }
    leading.withLock { $0 = renewal.leads }
    clock.take(renewal.moment, saidBetween: began, and: clock.own)
    return renewal
  }
}
