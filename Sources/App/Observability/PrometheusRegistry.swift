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
    var durationBuckets = [
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
    ]
    /// Bounds of other histograms without an entry in `buckets`, in bytes. From 1 KiB to 64 MiB by default.
    var valueBuckets = (5...13).map { Double(1 << (2 * $0)) }
    /// Maximum number of series per metric. Further values are counted in one series whose labels are all `other`.
    package var maxSeries = 200
    /// Exceptions from `maxSeries`. Requests have one series for each route, method and status. Alerts select series by
    /// status, so none may be merged into `other`.
    var maxSeriesOf = ["imagefetch_http_requests": 4_096]
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

/// A counter of whole numbers.
final class CounterCell: CounterHandler {
  private let count = Atomic<UInt64>(0)

  var value: UInt64 { count.load(ordering: .relaxed) }

  func increment(by amount: Int64) {
    // Prometheus interprets a falling counter as a restart.
    guard amount > 0 else { return }
    count.wrappingAdd(UInt64(amount), ordering: .relaxed)
  }

  func reset() { count.store(0, ordering: .relaxed) }
}

/// A gauge, or a counter of fractions.
final class NumberCell: RecorderHandler, MeterHandler, FloatingPointCounterHandler {
  private let bits = Atomic<UInt64>(0)
  private let isMonotonic: Bool

  init(isMonotonic: Bool) { self.isMonotonic = isMonotonic }

  var value: Double { Double(bitPattern: bits.load(ordering: .relaxed)) }

  func record(_ value: Int64) { set(Double(value)) }
  func record(_ value: Double) { set(value) }
  func set(_ value: Int64) { set(Double(value)) }
  func set(_ value: Double) { bits.store(value.bitPattern, ordering: .relaxed) }
  func decrement(by amount: Double) { bits.add(-amount) }
  func reset() { set(0.0) }

  func increment(by amount: Double) {
    guard !isMonotonic || amount > 0 else { return }
    bits.add(amount)
  }
}

/// A histogram: counts of values per bucket, and the sum of the values.
final class HistogramCell: RecorderHandler, TimerHandler {
  /// The upper bounds of the buckets, ascending. One more bucket counts the larger values.
  let bounds: [Double]
  private let counts: [Cell]
  private let bits = Atomic<UInt64>(0)

  private final class Cell: Sendable {
    let count = Atomic<UInt64>(0)
  }

  init(bounds: [Double]) {
    self.bounds = bounds
    counts = (0...bounds.count).map { _ in Cell() }
  }

  /// The count of each bucket, not cumulative.
  var buckets: [UInt64] { counts.map { $0.count.load(ordering: .relaxed) } }

  var sum: Double { Double(bitPattern: bits.load(ordering: .relaxed)) }

  func record(_ value: Int64) { record(Double(value)) }

  func record(_ value: Double) {
    guard !value.isNaN else { return }
    let index = bounds.firstIndex { value <= $0 } ?? bounds.count
    counts[index].count.wrappingAdd(1, ordering: .relaxed)
    bits.add(value)
  }

  func recordNanoseconds(_ duration: Int64) { record(Double(duration) / 1e9) }
}

/// Discards values: used if the name already belongs to a metric of another kind.
final class DiscardingCell: CounterHandler {
  func increment(by amount: Int64) {}
  func reset() {}
}

extension Atomic<UInt64> {
  /// Adds to the `Double` whose bit pattern is stored.
  fileprivate borrowing func add(_ amount: Double) {
    var old = load(ordering: .relaxed)
    while true {
      let new = (Double(bitPattern: old) + amount).bitPattern
      let (done, original) = weakCompareExchange(
        expected: old, desired: new, ordering: .relaxed)
      if done { return }
      old = original
    }
  }
}

/// One metric: its name, its kind and a cell for each combination of labels.
final class MetricFamily: Sendable {
  enum Kind: String {
    case counter, gauge, histogram
  }

  let kind: Kind
  let name: String
  private let help: String
  private let maxSeries: Int
  /// Cells by their labels, in the form that is written between braces.
  private let series = Mutex<[String: any AnyObject & Sendable]>([:])

  init(kind: Kind, name: String, help: String, maxSeries: Int) {
    (self.kind, self.name, self.help, self.maxSeries) = (kind, name, help, maxSeries)
  }

  /// Returns the cell for these labels, and creates it if necessary. Returns nil if the existing cell has another type.
  func cell<Cell: AnyObject & Sendable>(
    _ dimensions: [(String, String)], make: () -> Cell
  ) -> Cell? {
    let labels = MetricName.labels(dimensions)
    return series.withLock { series in
      if let cell = series[labels] { return cell as? Cell }
      // Label values may come from clients, so the number of series is limited.
      let isFull = series.count >= maxSeries
      let labels = isFull ? MetricName.labels(dimensions.map { ($0.0, "other") }) : labels
      if let cell = series[labels] { return cell as? Cell }
      let cell = make()
      series[labels] = cell
      return cell
    }
  }

  /// Whether a metric of that name and kind would write samples with the same name as this one.
  func collides(with other: String, _ otherKind: Kind) -> Bool {
    !MetricFamily.samples(name, kind).isDisjoint(with: MetricFamily.samples(other, otherKind))
  }

  /// The sum of the counters and gauges whose labels contain `piece`.
  func sum(labels piece: String) -> Double {
    series.withLock { series in
      series.reduce(0) { sum, entry in
        guard entry.key.contains(piece) else { return sum }
        switch entry.value {
        case let cell as CounterCell: return sum + Double(cell.value)
        case let cell as NumberCell: return sum + cell.value
        default: return sum
        }
      }
    }
  }

  func render(into text: inout String) {
    let series = series.withLock { Array($0) }.sorted { $0.key < $1.key }
    if series.isEmpty { return }
    text += "# HELP \(name) \(MetricName.escapedHelp(help))\n# TYPE \(name) \(kind.rawValue)\n"
    for (labels, cell) in series {
      switch cell {
      case let cell as CounterCell: line(name, labels, "\(cell.value)", &text)
      case let cell as NumberCell: line(name, labels, MetricName.number(cell.value), &text)
      case let cell as HistogramCell: render(cell, labels, &text)
      default: break
      }
    }
  }

  private func render(_ cell: HistogramCell, _ labels: String, _ text: inout String) {
    var count: UInt64 = 0
    let comma = labels.isEmpty ? "" : ","
    for (index, bucket) in cell.buckets.enumerated() {
      count += bucket
      let bound = index < cell.bounds.count ? MetricName.number(cell.bounds[index]) : "+Inf"
      line(name + "_bucket", "\(labels)\(comma)le=\"\(bound)\"", "\(count)", &text)
    }
    line(name + "_sum", labels, MetricName.number(cell.sum), &text)
    // Computed from the buckets, so that it always equals the last bucket.
    line(name + "_count", labels, "\(count)", &text)
  }

  private func line(_ name: String, _ labels: String, _ value: String, _ text: inout String) {
    text += labels.isEmpty ? "\(name) \(value)\n" : "\(name){\(labels)} \(value)\n"
  }

  private static func samples(_ name: String, _ kind: Kind) -> Set<String> {
    kind == .histogram ? [name, name + "_bucket", name + "_sum", name + "_count"] : [name]
  }
}
