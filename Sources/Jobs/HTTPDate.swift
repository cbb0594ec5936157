/// The date of a header field (RFC 9110 section 5.6.7), to the second.
public struct HTTPDate: Hashable, Sendable {
  /// Seconds since 1970-01-01T00:00:00Z.
  public let seconds: Int64

  /// The date of that moment; its milliseconds are dropped, and moments before 1970 or after 9999 are told as the
  /// nearest within.
  public init(_ moment: Timestamp) {
    seconds = min(max(moment.milliseconds, 0), 253_402_300_799_999) / 1000
  }

  /// Its moment.
  public var timestamp: Timestamp { Timestamp(milliseconds: seconds * 1000) }

  private static let months = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
  ]
  private static let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]

  /// Reads all three forms: IMF-fixdate, RFC 850's (its two-digit year is at most 50 years ahead of `now`) and
  /// asctime's; nil for anything else, and for moments before 1970. The weekday is not checked.
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
    guard year >= 1970 else { return nil }
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
    return String(unsafeUninitializedCapacity: 40) { buffer in
      var text = FixedText(buffer)
      text.put(weekday + ", ")
      text.put(day, 2)
      text.put(" " + Self.months[month - 1] + " ")
      text.put(year, 4)
      text.put(" ")
      text.put(time / 3600, 2)
      text.put(":")
      text.put(time / 60 % 60, 2)
      text.put(":")
      text.put(time % 60, 2)
      text.put(" GMT")
      return text.count
    }
  }
}

extension Timestamp: CustomStringConvertible {
  /// RFC 3339 in UTC with milliseconds: `2026-11-21T09:30:00.000Z`. Moments outside the years 0000 to 9999 are told as
  /// the nearest within.
  public var description: String {
    let moment = min(max(milliseconds, -62_167_219_200_000), 253_402_300_799_999)
    let day = (moment >= 0 ? moment : moment - 86_399_999) / 86_400_000
    let (year, month, dayOfMonth) = HTTPDate.civil(days: day)
    let rest = Int(moment - day * 86_400_000)
    return String(unsafeUninitializedCapacity: 24) { buffer in
      var text = FixedText(buffer)
      text.put(year, 4)
      text.put("-")
      text.put(month, 2)
      text.put("-")
      text.put(dayOfMonth, 2)
      text.put("T")
      text.put(rest / 3_600_000, 2)
      text.put(":")
      text.put(rest / 60_000 % 60, 2)
      text.put(":")
      text.put(rest / 1000 % 60, 2)
      text.put(".")
      text.put(rest % 1000, 3)
      text.put("Z")
      return text.count
    }
  }
}

/// Short ASCII and numbers of a fixed width, written one behind the other into a buffer that has room: a job's JSON
/// tells four times, a formatter's allocations would be most of its cost.
private struct FixedText {
  private let buffer: UnsafeMutableBufferPointer<UInt8>
  private(set) var count = 0

  init(_ buffer: UnsafeMutableBufferPointer<UInt8>) { self.buffer = buffer }

  mutating func put(_ number: Int, _ width: Int) {
    var rest = number
    for place in stride(from: count + width - 1, through: count, by: -1) {
      buffer[place] = UInt8(ascii: "0") + UInt8(rest % 10)
      rest /= 10
    }
    count += width
  }

  mutating func put(_ text: String) {
    for byte in text.utf8 {
      buffer[count] = byte
      count += 1
    }
  }
}
