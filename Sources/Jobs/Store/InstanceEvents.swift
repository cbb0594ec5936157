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

  /// Returns whether the network is constrained, as an operator has last declared. Nil if no operator
  /// declared anything since the oldest of the running instances started.
  func isConstrained() async throws(StoreError) -> Bool?

  /// Saves the value for instances that start later.
  func setConstrained(_ isConstrained: Bool) async throws(StoreError)
}

/// For a store with a single process, where no other instance starts later.
extension InstanceEvents {
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

/// Delivers events between instances in one process.
///
/// An instance that reads too slowly loses its oldest events and receives ``InstanceEvent/lost``.
package final class InstanceEventBus: Sendable {
  private struct Listener {
    let stream: AsyncStream<InstanceEvent>.Continuation
    /// The number of further events that may be lost before the next ``InstanceEvent/lost``.
    var lossesBeforeNotice = 0
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

  /// If the stream drops an event, sends ``InstanceEvent/lost`` as well. The interval between these is half the
  /// capacity, so that one of them is always among the waiting events.
  private func deliver(_ news: InstanceEvent, to listener: inout Listener?) {
    guard case .dropped? = listener?.stream.yield(news) else { return }
    guard listener?.lossesBeforeNotice == 0 else {
      listener?.lossesBeforeNotice -= 1
      return
    }
    listener?.stream.yield(.lost)
    listener?.lossesBeforeNotice = capacity / 2
  }

  /// Ends the event stream of an instance.
  package func close(_ instance: Instance) {
    listeners.withLock { $0.removeValue(forKey: instance) }?.stream.finish()
  }
}
