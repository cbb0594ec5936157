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
      let month = Self.months.firstIndex(where: { $0.lowercased() == self.month.lowercased() })
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
    return name.utf8.count >= 3 && name.allSatisfy(\.isLetter)
  }

  private static func isGMT(_ word: Substring) -> Bool { word.lowercased() == "gmt" }

  private static func number(_ text: some StringProtocol, digits: Int) -> Int? {
    text.utf8.count == digits ? DeltaSeconds.read(text) : nil
  }
}
