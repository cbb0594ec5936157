internal import Jobs
internal import Metrics
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
