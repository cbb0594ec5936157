/// One life of one process that works with a store. Its number is given once and never again: it tells a lost life's
/// claims from those of the next one.
public struct Instance: Hashable, Sendable {
  /// Higher than any given before.
  public let number: Int64

  /// The instance of that number.
  public init(number: Int64) { self.number = number }

  /// No instance: the sender of events that this process itself raises.
  public static let none = Instance(number: 0)
}

/// Who works with a store, each for as long as it says so in time. What an instance holds, its claims, reservations and
/// marks, it holds for as long as its lease lasts; after that anybody may give it back, at any time. Moments are the
/// store's clock's, whatever an instance's own says.
public protocol InstanceLeases: Sendable {
  /// Begins a lease.
  func register(for lease: Duration) async throws(StoreError) -> Instance

  /// Has the lease, and with it all that the instance holds, last that long from now on, also where it was over and
  /// nobody noticed.
  ///
  /// - Returns: nil where what it held was given back, or is being: then nothing is its any more, and it registers anew.
  func renew(_ instance: Instance, for lease: Duration) async throws(StoreError) -> Renewal?

  /// Ends the lease at once: what is still held waits for nobody's clock.
  func retire(_ instance: Instance) async throws(StoreError)

  /// Gives back what instances hold whose leases are over: up to `count` jobs go back into the queue
  /// (``Job/requeue()``), jobs that waited for one of those get their turn, and once there are no more the reservations end, and what was marked as leaving is
  /// looked at again. Anybody may ask at any time, and many may at once.
  ///
  /// - Returns: the jobs, queued; fewer than `count`: that was all.
  func recoverExpired(_ count: Int) async throws(StoreError) -> [Job]

  /// The instances whose leases last, in the order of their numbers; none of a store that one process has for itself.
  func presentInstances() async throws(StoreError) -> [PresentInstance]

  /// Records what this instance did in a step, for all instances, and what its cache has done since it started
  /// (`hits`, `revalidations`, `misses`, `memoryBytes`). Does nothing in a store that one process has for itself.
  func record(
    _ step: Activity.Step, _ cache: CacheCounts, of instance: Instance
  ) async throws(StoreError)

  /// Returns the activity of all instances; nil from a store that one process has for itself.
  func activity() async throws(StoreError) -> Activity?

  /// Where the instance is reached that loads a job; nil where nobody does, or that one says nothing of it.
  func address(ofLoading id: JobID) async throws(StoreError) -> String?
}

/// For a store that one process has for itself.
extension InstanceLeases {
  /// Nobody asks.
  public func presentInstances() async throws(StoreError) -> [PresentInstance] { [] }

  /// The process knows it itself.
  public func record(
    _ step: Activity.Step, _ cache: CacheCounts, of instance: Instance
  ) async throws(StoreError) {}

  /// The process knows it itself.
  public func activity() async throws(StoreError) -> Activity? { nil }

  /// It is this one.
  public func address(ofLoading id: JobID) async throws(StoreError) -> String? { nil }
}

/// An instance whose lease lasts, as people are told of it.
public struct PresentInstance: Sendable, Equatable {
  /// Which one it is.
  public var instance: Instance
  /// What its operator calls it, and what release it is; nil where it doesn't say.
  public var name: String?
  public var version: String?
  /// Since when it is there.
  public var since: Timestamp
  /// Jobs that it loads.
  public var loading: Int
  /// Workers that are busy: jobs that share a transfer occupy one.
  public var running = 0
  /// Time since the oldest of these jobs was claimed; zero where it loads none.
  public var oldest = Duration.zero
  /// Workers that it has; nil where it doesn't say.
  public var workers: Int?
  /// Outcomes of its cache since it started, up to some seconds ago; `entries` and `bytes` are not set.
  public var cache = CacheCounts()

  /// An instance that is there.
  public init(
    _ instance: Instance, name: String?, version: String?, since: Timestamp, loading: Int
  ) {
    self.instance = instance
    self.name = name
    self.version = version
    self.since = since
    self.loading = loading
  }
}

/// A lease that goes on.
public struct Renewal: Sendable, Equatable {
  /// What the store's clock said.
  public var moment: Timestamp
  /// What the instance holds: a claim of its that is not among them was lost.
  public var claims: Set<Claim>
  /// Whether it does what one instance does for all: of those whose lease lasts the one that has been there for the
  /// longest. Two may be told so for a moment.
  public var leads: Bool

  /// A renewal.
  public init(at moment: Timestamp, holding claims: Set<Claim>, leads: Bool = true) {
    self.moment = moment
    self.claims = claims
    self.leads = leads
  }
}
