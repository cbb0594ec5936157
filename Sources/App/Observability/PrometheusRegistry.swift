public import CoreMetrics
internal import Synchronization

/// Keeps the process's metrics and writes them in Prometheus's text format 0.0.4.
///
/// Counting is an atomic addition; a lock is taken only to find or make a series, so that a metric
/// that is counted often is best made once and kept. Series stay until the process ends, also when
/// their metric is destroyed: a counter that vanished and came back would read as a restart.
public final class PrometheusRegistry: MetricsFactory, Sendable {
  /// What a registry is told of its metrics beforehand; by metric name as it is written, without
  /// `_total` and with `_seconds`: `imagefetch_fetch_duration_seconds`.
  public struct Configuration: Sendable {
    /// Sentences for `# HELP`, at first for all of this service's; a metric without one has its label there.
    public var help: [String: String] = MetricHelp.sentences
    /// Upper bounds of histograms, rising.
    public var buckets = [
      "imagefetch_store_commit_operations": (0...9).map { Double(1 << $0) }
    ]
    /// Bounds of timers that have none of their own, in seconds: from 1 ms to 60 s.
    public var durationBuckets = [
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
    ]
    /// Bounds of other histograms that have none of their own: bytes from 1 KiB to 64 MiB.
    public var valueBuckets = (5...13).map { Double(1 << (2 * $0)) }
    /// Series of one metric; what comes beyond it counts together, each label `other`. 200.
    public var maxSeries = 200
    /// The same for metrics that have more by themselves, whatever clients send: requests have one for each route, each
    /// of its methods and each status. Alerts look for the first with some status, so that none may be among others.
    public var maxSeriesOf = ["imagefetch_http_requests": 4_096]
    /// Metrics; more than that are not counted. 1,000.
    public var maxMetrics = 1000

    /// The defaults.
    public init() {}
  }

  private let configuration: Configuration
  private let families = Mutex<[String: MetricFamily]>([:])

  /// A registry without metrics.
  public init(_ configuration: Configuration = Configuration()) {
    self.configuration = configuration
  }

  /// All metrics as text, sorted by name and labels.
  public func render() -> String {
    let families = families.withLock { Array($0.values) }.sorted { $0.name < $1.name }
    var text = ""
    for family in families { family.render(into: &text) }
    return text
  }

  /// The sum of a metric's series; 0 where there is none.
  /// - Parameter labels: a piece that a series' labels have, as they are written: `phase="queued"`.
  func sum(of name: String, labels: String) -> Double {
    families.withLock { $0[name] }?.sum(labels: labels) ?? 0
  }

  /// A counter; its name ends in `_total`.
  public func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
    let name = MetricName.counter(label)
    return cell(.counter, name, label, dimensions) { CounterCell() } ?? NowhereCell()
  }

  /// A counter of fractions; its name ends in `_total`.
  public func makeFloatingPointCounter(
    label: String, dimensions: [(String, String)]
  ) -> any FloatingPointCounterHandler {
    let name = MetricName.counter(label)
    return cell(.counter, name, label, dimensions) { NumberCell(isMonotonic: true) }
      ?? NumberCell(isMonotonic: true)
  }

  /// A gauge.
  public func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
    gauge(label, dimensions)
  }

  /// A histogram, or a gauge where only the last value counts.
  public func makeRecorder(
    label: String, dimensions: [(String, String)], aggregate: Bool
  ) -> any RecorderHandler {
    guard aggregate else { return gauge(label, dimensions) }
    let name = MetricName.sanitized(label)
    return histogram(name, label, dimensions, configuration.valueBuckets)
  }

  /// A histogram in seconds; its name ends in `_seconds`.
  public func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
    let name = MetricName.timer(label)
    return histogram(name, label, dimensions, configuration.durationBuckets)
  }

  /// Nothing: series stay.
  public func destroyCounter(_ handler: any CounterHandler) {}
  /// Nothing: series stay.
  public func destroyFloatingPointCounter(_ handler: any FloatingPointCounterHandler) {}
  /// Nothing: series stay.
  public func destroyMeter(_ handler: any MeterHandler) {}
  /// Nothing: series stay.
  public func destroyRecorder(_ handler: any RecorderHandler) {}
  /// Nothing: series stay.
  public func destroyTimer(_ handler: any TimerHandler) {}

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

  /// The series' cell; nil where the name is taken by another kind, for then the text would say two
  /// things of one name.
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
