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

/// A date in one of the three forms of RFC 9110 section 5.6.7, split into words.
struct DateText {
  static let months = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
  ]

  private let day: Substring
  private let month: Substring
  private let year: Int?
  private let time: Substring

  /// `Sun, 06 Nov 1994 08:49:37 GMT`
  init?(fixed words: [Substring]) {
    guard words.count == 6, Self.isWeekday(words[0], comma: true), Self.isGMT(words[5]) else {
      return nil
    }
    (day, month, time) = (words[1], words[2], words[4])
    year = Self.number(words[3], digits: 4)
  }

  /// `Sunday, 06-Nov-94 08:49:37 GMT`
  /// - Parameter thisYear: the current year. The two digits mean the latest such year that is at most 50 years after it.
  init?(rfc850 words: [Substring], thisYear: Int) {
    guard words.count == 4, Self.isWeekday(words[0], comma: true), Self.isGMT(words[3]) else {
      return nil
    }
    let date = words[1].split(separator: "-", omittingEmptySubsequences: false)
    guard date.count == 3, let ofCentury = Self.number(date[2], digits: 2) else { return nil }
    (day, month, time) = (date[0], date[1], words[2])
    let latest = thisYear + 50
    year = latest - (latest - ofCentury) % 100
  }

  /// `Sun Nov  6 08:49:37 1994`. A day of one digit is preceded by two spaces.
  init?(asctime words: [Substring]) {
    let isPadded = words.count == 6 && words[2].isEmpty && words[3].utf8.count == 1
    let words = isPadded ? Array(words[..<2] + ["0" + words[3]] + words[4...]) : words
    guard words.count == 5, Self.isWeekday(words[0], comma: false) else { return nil }
    (month, day, time) = (words[1], words[2], words[3])
    year = Self.number(words[4], digits: 4)
  }

  /// The day; nil if it does not exist or is before 1970.
  var civilDay: CivilDay? {
    guard let year, year >= 1970, let day = Self.number(day, digits: 2),
      let month = Self.months.firstIndex(where: { Self.areEqual($0, self.month) })
    else { return nil }
    let civil = CivilDay(year: year, month: month + 1, day: day)
    return CivilDay(sinceEpoch: civil.sinceEpoch) == civil ? civil : nil
  }

  /// Seconds since midnight; nil if the time is invalid. A leap second counts as the first second of the next minute.
  var secondsOfDay: Int64? {
    let parts = time.split(separator: ":", omittingEmptySubsequences: false)
      .map { Self.number($0, digits: 2) }
    guard parts.count == 3, let hour = parts[0], let minute = parts[1], let second = parts[2],
      hour < 24, minute < 60, second <= 60
    else { return nil }
    return Int64(hour * 3600 + minute * 60 + second)
  }

  private static func isWeekday(_ word: Substring, comma: Bool) -> Bool {
    guard word.hasSuffix(",") == comma else { return false }
    let name = comma ? word.dropLast() : word
    return name.utf8.count >= 3 && name.utf8.allSatisfy { 0x61...0x7A ~= $0 | 0x20 }
  }

  private static func isGMT(_ word: Substring) -> Bool { areEqual("GMT", word) }

  /// Whether the word is `letters`, ignoring case.
  /// - Parameter letters: ASCII letters only.
  private static func areEqual(_ letters: String, _ word: Substring) -> Bool {
    letters.utf8.elementsEqual(word.utf8) { $0 | 0x20 == $1 | 0x20 }
  }

  private static func number(_ text: some StringProtocol, digits: Int) -> Int? {
    text.utf8.count == digits ? DeltaSeconds.read(text) : nil
  }
}

/// A day of the proleptic Gregorian calendar. Calculations use eras of 400 years that start in March.
package struct CivilDay: Hashable, Sendable {
  package let year: Int
  /// 1 to 12.
  package let month: Int
  /// 1 to 31.
  package let day: Int

  init(year: Int, month: Int, day: Int) {
    self.year = year
    self.month = month
    self.day = day
  }

  /// The day that is `days` days after 1970-01-01.
  package init(sinceEpoch days: Int64) {
    let shifted = Int(days) + 719_468
    let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
    let dayOfEra = shifted - era * 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153
    day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
    month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
    year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
  }

  /// Days since 1970-01-01.
  var sinceEpoch: Int64 {
    let year = month <= 2 ? year - 1 : year
    let era = (year >= 0 ? year : year - 399) / 400
    let yearOfEra = year - era * 400
    let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    return Int64(era * 146_097 + dayOfEra - 719_468)
  }
}

/// Writes short ASCII texts and numbers of fixed width into a buffer, which must be large enough.
///
/// It does not allocate. A job's JSON contains four timestamps, and a formatter's allocations would cost more than the rest.
package struct FixedText {
  private let buffer: UnsafeMutableBufferPointer<UInt8>
  package private(set) var count = 0

  package init(_ buffer: UnsafeMutableBufferPointer<UInt8>) { self.buffer = buffer }

  package mutating func append(_ number: Int, width: Int) {
    var rest = number
    for place in stride(from: count + width - 1, through: count, by: -1) {
      buffer[place] = UInt8(ascii: "0") + UInt8(rest % 10)
      rest /= 10
    }
    count += width
  }

  package mutating func append(_ text: String) {
    for byte in text.utf8 {
      buffer[count] = byte
      count += 1
    }
  }
}
