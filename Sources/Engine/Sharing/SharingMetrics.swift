internal import Metrics

/// What an instance and those beside it have to do with each other, as `GET /metrics` shows it.
struct SharingMetrics: Sendable {
  private let renewals = (
    done: Counter(label: "imagefetch_lease_renewals_total", dimensions: [("outcome", "renewed")]),
    failed: Counter(label: "imagefetch_lease_renewals_total", dimensions: [("outcome", "failed")])
  )
  private let leasesLost = Counter(label: "imagefetch_leases_lost_total")
  private let takenOver = Counter(label: "imagefetch_jobs_taken_over_total")
  private let fenced = Counter(label: "imagefetch_jobs_fenced_total")
  private let news = (
    told: Counter(label: "imagefetch_news_total", dimensions: [("direction", "told")]),
    heard: Counter(label: "imagefetch_news_total", dimensions: [("direction", "heard")])
  )

  private let leads = Gauge(label: "imagefetch_instance_leads")

  /// Sets the gauges: called when somebody is about to read them.
  func observe(_ name: String?, release: String?, leads isLeading: Bool) {
    leads.record(isLeading ? 1 : 0)
    Gauge(
      label: "imagefetch_instance_info",
      dimensions: [("name", name ?? ""), ("version", release ?? "")]
    ).record(1)
  }

  /// A try to renew the lease ended.
  func renewed(_ isDone: Bool) { (isDone ? renewals.done : renewals.failed).increment() }

  /// The lease was over before it was renewed.
  func leaseWasLost() { leasesLost.increment() }

  /// Jobs whose worker was gone were given back to the queue from here.
  func tookOver(_ count: Int) { takenOver.increment(by: Int64(count)) }

  /// Jobs ended here whose claim did not hold any more.
  func fenced(_ count: Int) { if count > 0 { fenced.increment(by: Int64(count)) } }

  /// Others were told of something.
  func told() { news.told.increment() }

  /// Another one told something.
  func heard() { news.heard.increment() }
}
