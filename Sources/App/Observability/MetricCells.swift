internal import CoreMetrics
internal import Synchronization

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
