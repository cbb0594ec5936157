internal import Jobs
internal import Synchronization

/// This process among those that share the store: who it is, and what it tells the others.
final class Membership: Sendable {
  private let store: any StoreNews
  private let current = Mutex(Instance.none)
  /// What all of this process count.
  let metrics = SharingMetrics()

  init(store: any StoreNews) { self.store = store }

  /// Who claims and reserves, as the lease has it.
  var instance: Instance { current.withLock { $0 } }

  /// Whether nobody else can change what the store has.
  var isAlone: Bool { store.isExclusive }

  /// Is another instance from now on.
  func become(_ instance: Instance) { current.withLock { $0 = instance } }

  /// Tells the others what was done here, once the store has it. Costs nothing where there is nobody else.
  func tell(_ news: News) {
    if !isAlone { metrics.told() }
    store.tell(news, from: instance)
  }

  /// What the others tell.
  func news(for instance: Instance) -> AsyncStream<News> { store.news(for: instance) }
}
