internal import Synchronization

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
