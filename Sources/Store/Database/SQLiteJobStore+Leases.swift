internal import GRDB
package import Jobs
internal import Logging
internal import Synchronization

/// Leases of instances. Only instances within this process share the database, because its folder
/// is locked.
extension SQLiteJobStore: InstanceLeases, InstanceEvents {
  /// Assigns the next instance number, in its own commit.
  package func register(for lease: Duration) async throws(StoreError) -> Instance {
    let number = try await writer.perform { try NumberSequence.nextRun($0.db) }
    let instance = Instance(number: number)
    leases.begin(instance, for: lease)
    return instance
  }

  /// Renews the lease in memory and reads the claims of loading jobs. Needs no commit.
  package func renew(
    _ instance: Instance, for lease: Duration
  ) async throws(StoreError) -> Renewal? {
    guard leases.renew(instance, for: lease) else { return nil }
    let claims = try await read { try JobListing.claims(of: instance, $0) }
    return Renewal(at: now(), holding: claims)
  }

  /// Ends the lease in memory; the next recovery requeues the instance's jobs.
  package func retire(_ instance: Instance) async throws(StoreError) {
    leases.end(instance)
    exchange.close(instance)
  }

  /// Requeues the jobs of instances whose lease expired. Does not use the disk while all leases are
  /// valid.
  package func recoverExpired(_ count: Int) async throws(StoreError) -> [Job] {
    guard count > 0, leases.expire() != nil else { return [] }
    let recovery = try await writer.perform { [leases] transaction in
      guard let ended = leases.expire() else { return Recovery() }
      var recovery = try transaction.requeueLostJobs(count, active: leases.active)
      if recovery.isComplete { recovery.ended = ended }
      return recovery
    }
    if let ended = recovery.ended { leases.recordRecovered(ended) }
    for error in recovery.unreadable {
      log.error("failed to requeue a job", metadata: ["error": "\(error)"])
    }
    return recovery.jobs
  }

  /// True, because the folder is locked.
  package var isExclusive: Bool { true }

  /// Receives the events of other instances of this process.
  package func events(for instance: Instance) -> AsyncStream<InstanceEvent> {
    exchange.events(for: instance)
  }

  /// Publishes an event within this process.
  package func publish(_ news: InstanceEvent, from instance: Instance) {
    exchange.publish(news, from: instance)
  }
}

/// The result of a recovery.
struct Recovery: Sendable {
  /// The requeued jobs.
  var jobs: [Job] = []
  /// The errors of unreadable jobs, which stay unchanged.
  var unreadable: [StoreError] = []
  var isComplete = false
  /// The number of ended leases (``LeaseTable/expire()``); `nil` if more jobs are left.
  var ended: Int?
}

extension WriteTransaction {
  /// Requeues the jobs that no living instance holds.
  mutating func requeueLostJobs(_ count: Int, active living: Set<Instance>) throws -> Recovery {
    var recovery = Recovery()
    var references = ReferenceChanges()
    var left: [JobRow] = []
    for owner in try JobListing.owners(db) where left.count < count {
      // Reads all loading jobs of an owner, because unreadable ones stay in this phase and must not
      // use up a limit.
      left += try JobRow.fetchAll("owner = ? AND phase = 1", [owner], db).filter { row in
        row.claim.map { !living.contains(ClaimNumbers.instance(of: $0)) } ?? true
      }
    }
    for row in left where recovery.jobs.count < count {
      let change: JobChange
      do {
        change = try JobChange(of: row) { job in
          job.requeue()
          return true
        }
      } catch {
        recovery.unreadable.append(StoreError(cause: error))
        continue
      }
      try save(change, &references)
      recovery.jobs.append(change.after)
    }
    try apply(references)
    recovery.isComplete = recovery.jobs.count < count
    if recovery.isComplete {
      try deleteReservations(exceptOf: living)
      try endPendingDeletions(exceptOf: living)
    }
    return recovery
  }
}

/// The leases of this process's instances. Only one process uses the database, so they are held in
/// memory. A claim of an unknown instance belongs to an earlier run and is invalid.
final class LeaseTable: Sendable {
  private struct State {
    var ends: [Instance: Timestamp] = [:]
    /// The number of leases that have ended, plus one for those of earlier runs.
    var ended = 1
    /// The number of ended leases whose jobs were all requeued.
    var recovered = 0
  }

  private let state = Mutex(State())
  private let now: @Sendable () -> Timestamp

  /// - Parameter now: a monotonic clock.
  init(now: @escaping @Sendable () -> Timestamp) { self.now = now }

  func begin(_ instance: Instance, for lease: Duration) {
    state.withLock { $0.ends[instance] = now() + lease }
  }

  /// - Returns: `false` if the lease has ended.
  func renew(_ instance: Instance, for lease: Duration) -> Bool {
    state.withLock { state in
      guard state.ends[instance] != nil else { return false }
      state.ends[instance] = now() + lease
      return true
    }
  }

  func end(_ instance: Instance) {
    state.withLock { state in
      if state.ends.removeValue(forKey: instance) != nil { state.ended += 1 }
    }
  }

  /// Throws `.leaseLost` if the lease has ended. Called in the transaction that makes a claim, so
  /// that a recovery runs before it or sees the claim.
  func check(_ instance: Instance) throws {
    let isHeld = state.withLock { state in state.ends[instance].map { $0 > now() } ?? false }
    guard isHeld else { throw StoreError.leaseLost }
  }

  /// Ends expired leases.
  /// - Returns: the number of ended leases; `nil` if all of their jobs were requeued.
  func expire() -> Int? {
    state.withLock { state in
      let moment = now()
      let living = state.ends.filter { $0.value > moment }
      state.ended += state.ends.count - living.count
      state.ends = living
      return state.recovered < state.ended ? state.ended : nil
    }
  }

  /// The instances with a lease.
  var active: Set<Instance> { state.withLock { Set($0.ends.keys) } }

  /// Records that all jobs of the first `ended` ended leases were requeued.
  func recordRecovered(_ ended: Int) { state.withLock { $0.recovered = max($0.recovered, ended) } }
}
