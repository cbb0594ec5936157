internal import Caching

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

extension Timestamp {
  /// Parses a date of a header field (RFC 9110 section 5.6.7) in any of its three forms. A two-digit year
  /// (RFC 850) is taken as at most 50 years after `now`. Returns nil for anything else and for dates before
  /// 1970.
  package init?(httpDate text: String, now: Timestamp) {
    guard let date = HTTPDate(text, now: now.milliseconds) else { return nil }
    self.init(milliseconds: date.milliseconds)
  }

  /// The date in the form of header fields, to the second: `Sun, 06 Nov 1994 08:49:37 GMT`. Dates before 1970
  /// or after 9999 become the nearest date in that range.
  package var httpDate: String { HTTPDate(milliseconds: milliseconds).description }
}

extension Timestamp: CustomStringConvertible {
  /// RFC 3339 in UTC with milliseconds: `2026-11-21T09:30:00.000Z`. Dates outside the years 0000 to 9999
  /// become the nearest date in that range.
  package var description: String {
    let moment = min(max(milliseconds, -62_167_219_200_000), 253_402_300_799_999)
    let day = (moment >= 0 ? moment : moment - 86_399_999) / 86_400_000
    let date = CivilDay(sinceEpoch: day)
    let rest = Int(moment - day * 86_400_000)
    return String(unsafeUninitializedCapacity: 24) { buffer in
      var text = FixedText(buffer)
      text.append(date.year, width: 4)
      text.append("-")
      text.append(date.month, width: 2)
      text.append("-")
      text.append(date.day, width: 2)
      text.append("T")
      text.append(rest / 3_600_000, width: 2)
      text.append(":")
      text.append(rest / 60_000 % 60, width: 2)
      text.append(":")
      text.append(rest / 1000 % 60, width: 2)
      text.append(".")
      text.append(rest % 1000, width: 3)
      text.append("Z")
      return text.count
    }
  }
}
