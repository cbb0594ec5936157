/// A moment in UTC with millisecond precision, as in the API and in stores.
package struct Timestamp: Hashable, Sendable, Comparable, Codable {
  /// Milliseconds since 1970-01-01T00:00:00Z.
  package let milliseconds: Int64

  /// The moment that number of milliseconds after 1970-01-01T00:00:00Z.
  package init(milliseconds: Int64) { self.milliseconds = milliseconds }

  /// The beginning (UTC) of a day, counted from 1970-01-01.
  package init(day: Int) { self.init(milliseconds: Int64(day) * 86_400_000) }

  /// The day (UTC) of this moment, counted from 1970-01-01.
  package var day: Int { Int(milliseconds / 86_400_000) }

  package init(from decoder: any Decoder) throws {
    milliseconds = try decoder.singleValueContainer().decode(Int64.self)
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(milliseconds)
  }

  package static func < (a: Timestamp, b: Timestamp) -> Bool { a.milliseconds < b.milliseconds }

  /// Adds a duration. Limits the result to the valid range.
  package static func + (moment: Timestamp, duration: Duration) -> Timestamp {
    let (sum, overflow) = moment.milliseconds.addingReportingOverflow(duration.inMilliseconds)
    return Timestamp(milliseconds: overflow ? .max : sum)
  }

  /// The time between two moments; negative if `later` is earlier. Limits the result to the valid range.
  package static func - (later: Timestamp, earlier: Timestamp) -> Duration {
    let (difference, overflow) = later.milliseconds.subtractingReportingOverflow(
      earlier.milliseconds)
    guard overflow else { return .milliseconds(difference) }
    return .milliseconds(later > earlier ? Int64.max : .min)
  }
}

extension Duration {
  /// Whole milliseconds, rounded towards zero, limited to the range of `Int64`.
  package var inMilliseconds: Int64 {
    let (seconds, attoseconds) = components
    let (whole, overflow) = seconds.multipliedReportingOverflow(by: 1000)
    guard !overflow else { return seconds < 0 ? .min : .max }
    return whole + attoseconds / 1_000_000_000_000_000
  }

  /// Seconds with at most three decimals, for people.
  package var roundedSeconds: Double { Double(inMilliseconds) / 1_000 }

  /// Seconds with their fraction.
  package var inSeconds: Double {
    let (seconds, attoseconds) = components
    return Double(seconds) + Double(attoseconds) * 1e-18
  }
}

/// Returns the current time. Tests pass their own.
package typealias WallClock = @Sendable () -> Timestamp
