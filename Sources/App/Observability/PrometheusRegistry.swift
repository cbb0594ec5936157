package import CoreMetrics
internal import Synchronization

/// Keeps the process's metrics and writes them in Prometheus's text format 0.0.4.
///
/// Counting is an atomic addition. Creating a metric object takes a lock, so create it once if it is used often. Series
/// stay until the process ends, even if their metric is destroyed: Prometheus would interpret a counter that disappears
/// and returns as a restart.
package final class PrometheusRegistry: MetricsFactory, Sendable {
  /// Help texts, buckets and limits. Keys are metric names as written, without `_total` and with `_seconds`, such as
  /// `imagefetch_fetch_duration_seconds`.
  package struct Configuration: Sendable {
    /// Texts for `# HELP`, by default those of this service's metrics. A metric without a text uses its label.
    package var help: [String: String] = MetricHelp.sentences
    /// Upper bounds of individual histograms, ascending.
    package var buckets = [
      "imagefetch_store_commit_operations": (0...9).map { Double(1 << $0) }
    ]
    /// Bounds of timers without an entry in `buckets`, in seconds. From 1 ms to 60 s by default.
    package var durationBuckets = [
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
    ]
    /// Bounds of other histograms without an entry in `buckets`, in bytes. From 1 KiB to 64 MiB by default.
    package var valueBuckets = (5...13).map { Double(1 << (2 * $0)) }
    /// Maximum number of series per metric. Further values are counted in one series whose labels are all `other`.
    package var maxSeries = 200
    /// Exceptions from `maxSeries`. Requests have one series for each route, method and status. Alerts select series by
    /// status, so none may be merged into `other`.
    package var maxSeriesOf = ["imagefetch_http_requests": 4_096]
    /// Maximum number of metrics. Further metrics are not counted.
    package var maxMetrics = 1000

    package init() {}
  }

  private let configuration: Configuration
  private let families = Mutex<[String: MetricFamily]>([:])

  package init(_ configuration: Configuration = Configuration()) {
    self.configuration = configuration
  }

  /// All metrics as text, sorted by name and labels.
  package func render() -> String {
    let families = families.withLock { Array($0.values) }.sorted { $0.name < $1.name }
    var text = ""
    for family in families { family.render(into: &text) }
    return text
  }

  /// The sum of a metric's series; 0 if there is none.
  /// - Parameter labels: only series that contain this text in their labels, such as `phase="queued"`.
  func sum(of name: String, labels: String) -> Double {
    families.withLock { $0[name] }?.sum(labels: labels) ?? 0
  }

  /// A counter; its name ends in `_total`.
  package func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
    let name = MetricName.counter(label)
    return cell(.counter, name, label, dimensions) { CounterCell() } ?? DiscardingCell()
  }

  /// A counter of fractions; its name ends in `_total`.
  package func makeFloatingPointCounter(
    label: String, dimensions: [(String, String)]
  ) -> any FloatingPointCounterHandler {
    let name = MetricName.counter(label)
    return cell(.counter, name, label, dimensions) { NumberCell(isMonotonic: true) }
      ?? NumberCell(isMonotonic: true)
  }

  /// A gauge.
  package func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
    gauge(label, dimensions)
  }

  /// A histogram, or a gauge if `aggregate` is false.
  package func makeRecorder(
    label: String, dimensions: [(String, String)], aggregate: Bool
  ) -> any RecorderHandler {
    guard aggregate else { return gauge(label, dimensions) }
    let name = MetricName.sanitized(label)
    return histogram(name, label, dimensions, configuration.valueBuckets)
  }

  /// A histogram in seconds; its name ends in `_seconds`.
  package func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
    let name = MetricName.timer(label)
    return histogram(name, label, dimensions, configuration.durationBuckets)
  }

  // Destroying a metric does nothing: its series stay.
  package func destroyCounter(_ handler: any CounterHandler) {}
  package func destroyFloatingPointCounter(_ handler: any FloatingPointCounterHandler) {}
  package func destroyMeter(_ handler: any MeterHandler) {}
  package func destroyRecorder(_ handler: any RecorderHandler) {}
  package func destroyTimer(_ handler: any TimerHandler) {}

  private func gauge(_ label: String, _ dimensions: [(String, String)]) -> NumberCell {
    cell(.gauge, MetricName.sanitized(label), label, dimensions) { NumberCell(isMonotonic: false) }
      ?? NumberCell(isMonotonic: false)
  }

  private func histogram(
    _ name: String, _ label: String, _ dimensions: [(String, String)], _ defaults: [Double]
  ) -> HistogramCell {
    let bounds = configuration.buckets[name] ?? defaults
    return cell(.histogram, name, label, dimensions) { HistogramCell(bounds: bounds) }
      ?? HistogramCell(bounds: bounds)
  }

  /// Returns the series' cell. Returns nil if a metric of another kind already has the name, or if there are too many
  /// metrics.
  private func cell<Cell: AnyObject & Sendable>(
    _ kind: MetricFamily.Kind, _ name: String, _ label: String,
    _ dimensions: [(String, String)], make: () -> Cell
  ) -> Cell? {
    let family = families.withLock { families -> MetricFamily? in
      if let family = families[name] { return family.kind == kind ? family : nil }
      let isTaken = families.values.contains { $0.collides(with: name, kind) }
      guard !isTaken, families.count < configuration.maxMetrics else { return nil }
      let key = kind == .counter ? String(name.dropLast("_total".count)) : name
      let family = MetricFamily(
        kind: kind, name: name, help: configuration.help[key] ?? label,
        maxSeries: configuration.maxSeriesOf[key] ?? configuration.maxSeries)
      families[name] = family
      return family
    }
    return family?.cell(dimensions, make: make)
  }
}
