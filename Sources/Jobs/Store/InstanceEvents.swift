internal import Synchronization

/// Sends events between the instances of one store. An event may arrive late or not at all: this delays work,
/// but causes no errors.
package protocol InstanceEvents: Sendable {
  /// Whether this process is the only one that uses the store. Its copies of jobs in memory are then always
  /// current.
  var isExclusive: Bool { get }

  /// Returns the events of other instances, until the instance retires. A store with a single process has no
  /// events.
  func events(for instance: Instance) -> AsyncStream<InstanceEvent>

  /// Sends an event to the other instances. Returns immediately, and does nothing if there are no others.
  func publish(_ news: InstanceEvent, from instance: Instance)

  /// Sends an event to the other instances. When it returns, each instance that listens receives the event before any
  /// heartbeat that it asks for later.
  ///
  /// - Returns: The other instances that have, or may still renew, a lease; empty for a store with a single process.
  func announce(
    _ event: InstanceEvent, from instance: Instance
  ) async throws(StoreError) -> Set<Instance>

  /// Returns whether the network is constrained, as an operator has last declared. Nil if no operator
  /// declared anything since the oldest of the running instances started.
  func isConstrained() async throws(StoreError) -> Bool?

  /// Saves the value for instances that start later.
  func setConstrained(_ isConstrained: Bool) async throws(StoreError)
}

/// For a store with a single process, where no other instance starts later.
extension InstanceEvents {
  package func announce(
    _ event: InstanceEvent, from instance: Instance
  ) async throws(StoreError) -> Set<Instance> { [] }

  package func isConstrained() async throws(StoreError) -> Bool? { nil }

  package func setConstrained(_ isConstrained: Bool) async throws(StoreError) {}
}

/// An event of another instance.
package enum InstanceEvent: Sendable, Equatable {
  /// The maximum number of job IDs in one event. A longer ``removed`` is sent as ``lost``.
  package static let mostIDs = 200

  /// Jobs were queued and may be claimable.
  case queued
  /// Queued jobs have this request, which an instance is loading. That instance may add them to its load.
  case equalQueued(Fingerprint)
  /// An origin is paused for this time because it could not be reached.
  case originPaused(String, Duration)
  /// A job was changed, cancelled or finished. Its new state is in the store.
  case changed(JobID)
  /// The sending instance is about to change a finished job, or all jobs of a batch. Other instances stop answering
  /// them from memory, and confirm that.
  case announced(JobID, AnnouncementID)
  /// An instance confirms an announcement.
  case confirmed(AnnouncementID, by: Instance)
  /// Jobs were deleted.
  case removed([JobID])
  /// A job was purged. Its partial transfer under the given key must be deleted too.
  case purged(JobID, partial: Fingerprint?)
  /// A batch was purged. Its jobs are no longer visible, even before all of them are deleted.
  case batchPurged(BatchID)
  /// Images were deleted. Local copies of them can be deleted.
  case imagesDeleted([ImageDigest])
  /// The sending instance has clients that follow these jobs. The instances that load them should send their
  /// progress.
  case followed([JobID])
  /// The progress of a job that the sending instance loads, and the version that clients see there.
  case progress(JobID, version: Int, ProgressReport)
  /// An operator deleted cache entries.
  case cacheDeleted
  /// An operator declared the network as constrained, or as no longer constrained.
  case constrained(Bool)
  /// Events were lost. Copies of jobs that other instances work on may be outdated.
  case lost
  /// Heartbeat of the connection to the other instances: every event that they sent before `until` has been
  /// delivered.
  case heartbeat(until: ContinuousClock.Instant)
}

/// Names an announcement.
package struct AnnouncementID: Sendable, Hashable {
  /// The instance that announced.
  package var instance: Instance
  /// Counts the instance's announcements.
  package var number: Int64

  package init(instance: Instance, number: Int64) {
    (self.instance, self.number) = (instance, number)
  }
}

/// Delivers events between instances in one process.
///
/// An instance that reads too slowly loses its oldest events and receives ``InstanceEvent/lost``.
package final class InstanceEventBus: Sendable {
  private struct Listener {
    let stream: AsyncStream<InstanceEvent>.Continuation
    /// The number of events since the last ``InstanceEvent/lost``.
    var sinceNotice = Int.max / 2
  }

  private let listeners = Mutex<[Instance: Listener]>([:])
  private let capacity: Int

  /// - Parameter capacity: The maximum number of events that wait for one instance; at least 2.
  package init(capacity: Int = 16_384) { self.capacity = max(2, capacity) }

  /// Returns the events that other instances send from now on. Ends an earlier stream of the same instance.
  package func events(for instance: Instance) -> AsyncStream<InstanceEvent> {
    let (stream, continuation) = AsyncStream.makeStream(
      of: InstanceEvent.self, bufferingPolicy: .bufferingNewest(capacity))
    listeners.withLock { $0.updateValue(Listener(stream: continuation), forKey: instance) }?
      .stream.finish()
    return stream
  }

  /// Sends an event to all other instances.
  package func publish(_ news: InstanceEvent, from instance: Instance) {
    listeners.withLock { listeners in
      for other in listeners.keys where other != instance { deliver(news, to: &listeners[other]) }
    }
  }

  /// If the stream drops an event, sends ``InstanceEvent/lost`` as well, unless one of them is certainly among the
  /// waiting events: one that is less than half the capacity old.
  private func deliver(_ news: InstanceEvent, to listener: inout Listener?) {
    guard var known = listener else { return }
    known.sinceNotice += 1
    if case .dropped = known.stream.yield(news), known.sinceNotice >= capacity / 2 {
      known.stream.yield(.lost)
      known.sinceNotice = 0
    }
    listener = known
  }

  /// Ends the event stream of an instance.
  package func close(_ instance: Instance) {
    listeners.withLock { $0.removeValue(forKey: instance) }?.stream.finish()
  }
}

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
