internal import Caching

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
