/// The date of a header field (RFC 9110 section 5.6.7), to the second.
public struct HTTPDate: Hashable, Sendable {
  /// Seconds since 1970-01-01T00:00:00Z.
  public let seconds: Int64

  /// The date of that moment; its milliseconds are dropped.
  public init(_ moment: Timestamp) {
    seconds = moment.milliseconds >= 0 ? moment.milliseconds / 1000 : 0
  }

  /// Its moment.
  public var timestamp: Timestamp { Timestamp(milliseconds: seconds * 1000) }

  private static let months = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
  ]
  private static let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]

  /// Reads all three forms: IMF-fixdate, RFC 850's (its two-digit year is at most 50 years ahead of `now`) and
  /// asctime's; nil for anything else. The weekday is not checked.
  public init?(_ text: String, now: Timestamp) {
    let words = text.split(whereSeparator: { $0 == " " || $0 == "," || $0 == "-" })
    let parts: (day: Substring, month: Substring, year: Substring, time: Substring)
    if words.count == 6, words[5] == "GMT" {
      parts = (words[1], words[2], words[3], words[4])
    } else if words.count == 5 {
      parts = (words[2], words[1], words[4], words[3])
    } else {
      return nil
    }
    guard let day = Int(parts.day), let month = Self.months.firstIndex(of: String(parts.month)),
      var year = Int(parts.year), let time = Self.secondsOfDay(parts.time),
      1...31 ~= day, 0...9999 ~= year
    else { return nil }
    if parts.year.utf8.count == 2 {
      let thisYear = Self.civil(days: HTTPDate(now).seconds / 86_400).year
      year += thisYear / 100 * 100
      if year > thisYear + 50 { year -= 100 }
    }
    seconds = Int64(Self.days(year: year, month: month + 1, day: day)) * 86_400 + Int64(time)
  }

  private static func secondsOfDay(_ text: Substring) -> Int? {
    let fields = text.split(separator: ":", omittingEmptySubsequences: false).map { Int($0) }
    guard fields.count == 3, let hour = fields[0], let minute = fields[1], let second = fields[2],
      0...23 ~= hour, 0...59 ~= minute, 0...60 ~= second
    else { return nil }
    return hour * 3600 + minute * 60 + second
  }

  /// Days since 1970-01-01 in the proleptic Gregorian calendar, counted in eras of 400 years that start in March.
  static func days(year: Int, month: Int, day: Int) -> Int {
    let year = month <= 2 ? year - 1 : year
    let era = (year >= 0 ? year : year - 399) / 400
    let yearOfEra = year - era * 400
    let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    return era * 146_097 + dayOfEra - 719_468
  }

  static func civil(days: Int64) -> (year: Int, month: Int, day: Int) {
    let shifted = Int(days) + 719_468
    let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
    let dayOfEra = shifted - era * 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153
    let day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
    let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
    return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, day)
  }
}

extension HTTPDate: CustomStringConvertible {
  /// The preferred form: `Sun, 06 Nov 1994 08:49:37 GMT`.
  public var description: String {
    let (year, month, day) = Self.civil(days: seconds / 86_400)
    let time = Int(seconds % 86_400)
    let weekday = Self.weekdays[Int(seconds / 86_400 % 7)]
    let clock = "\(padded(time / 3600)):\(padded(time / 60 % 60)):\(padded(time % 60))"
    return "\(weekday), \(padded(day)) \(Self.months[month - 1]) \(padded(year, 4)) \(clock) GMT"
  }
}

extension Timestamp: CustomStringConvertible {
  /// RFC 3339 in UTC with milliseconds: `2026-11-21T09:30:00.000Z`.
  public var description: String {
    let day =
      milliseconds >= 0 ? milliseconds / 86_400_000 : (milliseconds - 86_399_999) / 86_400_000
    let (year, month, dayOfMonth) = HTTPDate.civil(days: day)
    let rest = Int(milliseconds - day * 86_400_000)
    let date = "\(padded(year, 4))-\(padded(month))-\(padded(dayOfMonth))"
    let time =
      "\(padded(rest / 3_600_000)):\(padded(rest / 60_000 % 60)):\(padded(rest / 1000 % 60))"
    return "\(date)T\(time).\(padded(rest % 1000, 3))Z"
  }
}

private func padded(_ number: Int, _ width: Int = 2) -> String {
  let digits = String(number)
  return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
}
