internal import Jobs
internal import Synchronization

/// The identity of this process in the cluster, and its events to the other instances.
final class Membership: Sendable {
  private let store: any InstanceEvents
  private let current = Mutex(Instance.none)
  let metrics = SharingMetrics()

  init(store: any InstanceEvents) { self.store = store }

  /// The identity of this process, which owns its claims and reservations. ``Lease`` sets it.
  var instance: Instance { current.withLock { $0 } }

  /// Whether no other instance can change what the store has.
  var isAlone: Bool { store.isExclusive }

  /// Changes the identity, after a new lease began.
  func become(_ instance: Instance) { current.withLock { $0 = instance } }

  /// Publishes an event to the other instances. Call it once the store has the change. Costs nothing in an exclusive
  /// store.
  func publish(_ news: InstanceEvent) {
    if !isAlone { metrics.published() }
    store.publish(news, from: instance)
  }

  /// Returns the events of the other instances.
  func events(for instance: Instance) -> AsyncStream<InstanceEvent> { store.events(for: instance) }
}
