/// One run of one process that uses a store. Its number is never used again, so the claims of an earlier run
/// cannot be confused with those of a later one.
package struct Instance: Hashable, Sendable {
  /// Higher than the number of every earlier instance.
  package let number: Int64

  package init(number: Int64) { self.number = number }

  /// No instance: the sender of events that this process itself raises.
  package static let none = Instance(number: 0)
}

/// The leases of the instances that share a store.
///
/// An instance owns its claims, reservations and marks as long as its lease lasts. After that, any instance
/// may release them at any time. All times are those of the store's clock, not of an instance's clock.
package protocol InstanceLeases: Sendable {
  /// Registers a new instance with a lease.
  func register(for lease: Duration) async throws(StoreError) -> Instance

  /// Extends the lease to the given time from now. This also revives a lease that has ended, if no other
  /// instance has released its claims yet.
  ///
  /// - Returns: Nil if the claims were released or are being released. The instance then owns nothing and has
  ///   to register again.
  func renew(_ instance: Instance, for lease: Duration) async throws(StoreError) -> Renewal?

  /// Ends the lease immediately, so that other instances need not wait until it ends.
  func retire(_ instance: Instance) async throws(StoreError)

  /// Releases what instances with expired leases own. Up to `count` of their jobs go back into the queue
  /// (``Job/requeue()``). Jobs that waited for one of these loads can then be claimed. When no such job is
  /// left, the reservations end and the marks for deletion are checked again. Any instance may call this at
  /// any time, also concurrently.
  ///
  /// - Returns: The requeued jobs; fewer than `count` if none is left.
  func recoverExpired(_ count: Int) async throws(StoreError) -> [Job]

  /// Returns the instances with a valid lease, ordered by number; empty for a store with a single process.
  func presentInstances() async throws(StoreError) -> [PresentInstance]

  /// Records this instance's activity in a step, and its cache counters since its start (`hits`,
  /// `revalidations`, `misses`, `memoryBytes`). Does nothing in a store with a single process.
  func record(
    _ step: Activity.Step, _ cache: CacheCounts, of instance: Instance
  ) async throws(StoreError)

  /// Returns the activity of all instances; nil from a store with a single process.
  func activity() async throws(StoreError) -> Activity?
}

/// For a store with a single process.
extension InstanceLeases {
  package func presentInstances() async throws(StoreError) -> [PresentInstance] { [] }

  package func record(
    _ step: Activity.Step, _ cache: CacheCounts, of instance: Instance
  ) async throws(StoreError) {}

  package func activity() async throws(StoreError) -> Activity? { nil }
}

/// An instance with a valid lease, as shown to people.
package struct PresentInstance: Sendable, Equatable {
  package var instance: Instance
  /// The configured name, and the release; nil if the instance does not state them.
  package var name: String?
  package var version: String?
  /// When the instance registered.
  package var since: Timestamp
  /// The number of jobs that it loads.
  package var loading: Int
  /// The number of busy workers. Jobs that share a load occupy one worker.
  package var running = 0
  /// Time since the oldest of these jobs was claimed; zero if it loads none.
  package var oldest = Duration.zero
  /// The number of its workers; nil if it does not state it.
  package var workers: Int?
  /// Its cache counters since its start, some seconds old; `entries` and `bytes` are not set.
  package var cache = CacheCounts()

  package init(
    _ instance: Instance, name: String?, version: String?, since: Timestamp, loading: Int
  ) {
    self.instance = instance
    self.name = name
    self.version = version
    self.since = since
    self.loading = loading
  }
}

/// The result of a renewed lease.
package struct Renewal: Sendable, Equatable {
  /// The time of the store's clock.
  package var moment: Timestamp
  /// The claims that the instance owns. Claims that are missing here were lost.
  package var claims: Set<Claim>
  /// Whether this instance does the work that one instance does for all. It is the one with the oldest valid
  /// lease. For a moment two instances may be chosen.
  package var leads: Bool

  package init(at moment: Timestamp, holding claims: Set<Claim>, leads: Bool = true) {
    self.moment = moment
    self.claims = claims
    self.leads = leads
  }
}
