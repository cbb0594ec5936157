internal import Jobs
internal import Synchronization

/// The identity of this process in the cluster, and its events to the other instances.
final class Membership: Sendable {
  private let store: any StoreNews
  private let current = Mutex(Instance.none)
  let metrics = SharingMetrics()

  init(store: any StoreNews) { self.store = store }

  /// The identity of this process, which owns its claims and reservations. ``Lease`` sets it.
  var instance: Instance { current.withLock { $0 } }

  /// Whether no other instance can change what the store has.
  var isAlone: Bool { store.isExclusive }

  /// Changes the identity, after a new lease began.
  func become(_ instance: Instance) { current.withLock { $0 = instance } }

  /// Publishes an event to the other instances. Call it once the store has the change. Costs nothing in an exclusive
  /// store.
  func tell(_ news: News) {
    if !isAlone { metrics.told() }
    store.tell(news, from: instance)
  }

  /// Returns the events of the other instances.
  func news(for instance: Instance) -> AsyncStream<News> { store.news(for: instance) }
}
