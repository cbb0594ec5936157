/// A date in a header field (RFC 9110 section 5.6.7), in whole seconds.
package struct HTTPDate: Hashable, Sendable {
  /// Seconds since 1970-01-01T00:00:00Z.
  package let seconds: Int64

  /// The date of a time in milliseconds since the Unix epoch. Fractions of a second are dropped. Times outside the years
  /// 1970 to 9999 are moved to the nearest time inside.
  package init(milliseconds: Int64) {
    seconds = min(max(milliseconds, 0), 253_402_300_799_999) / 1000
  }

  /// Milliseconds since the Unix epoch.
  package var milliseconds: Int64 { seconds * 1000 }

  /// Parses a date in one of three forms: IMF-fixdate, RFC 850 or asctime.
  ///
  /// Case is ignored and the weekday is not checked. Everything else must match the grammar. A two-digit year of RFC 850
  /// means the latest such year that is at most 50 years after `now`.
  /// - Parameter now: milliseconds since the Unix epoch.
  /// - Returns: Nil for any other text, and for times before 1970.
  package init?(_ text: String, now: Int64) {
    let words = text.split(separator: " ", omittingEmptySubsequences: false)
    let date =
      DateText(fixed: words) ?? DateText(asctime: words)
      ?? DateText(rfc850: words, thisYear: Self.year(at: now))
    guard let date, let day = date.civilDay, let time = date.secondsOfDay else { return nil }
    seconds = day.sinceEpoch * 86_400 + time
  }

  private static func year(at now: Int64) -> Int {
    CivilDay(sinceEpoch: HTTPDate(milliseconds: now).seconds / 86_400).year
  }
}

extension HTTPDate: CustomStringConvertible {
  private static let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]

  /// The preferred form: `Sun, 06 Nov 1994 08:49:37 GMT`.
  package var description: String {
    let date = CivilDay(sinceEpoch: seconds / 86_400)
    let time = Int(seconds % 86_400)
    let weekday = Self.weekdays[Int(seconds / 86_400 % 7)]
    return String(unsafeUninitializedCapacity: 40) { buffer in
      var text = FixedText(buffer)
      text.append(weekday + ", ")
      text.append(date.day, width: 2)
      text.append(" " + DateText.months[date.month - 1] + " ")
      text.append(date.year, width: 4)
      text.append(" ")
      text.append(time / 3600, width: 2)
      text.append(":")
      text.append(time / 60 % 60, width: 2)
      text.append(":")
      text.append(time % 60, width: 2)
      text.append(" GMT")
      return text.count
    }
  }
}
