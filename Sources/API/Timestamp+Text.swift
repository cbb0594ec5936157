internal import Jobs

extension Timestamp {
  /// RFC 3339 in UTC with milliseconds, `2026-11-21T09:30:00.000Z`; moments after the year 9999 become its last.
  var rfc3339: String {
    let (date, time) = civil
    let milliseconds = time % 1000
    return String(unsafeUninitializedCapacity: 24) { buffer in
      var text = Digits(buffer)
      text.put(date.year, 4, then: "-")
      text.put(date.month, 2, then: "-")
      text.put(date.day, 2, then: "T")
      text.put(time / 3_600_000, 2, then: ":")
      text.put(time / 60_000 % 60, 2, then: ":")
      text.put(time / 1000 % 60, 2, then: ".")
      text.put(milliseconds, 3, then: "Z")
      return text.count
    }
  }

  /// The date of HTTP (RFC 9110 section 5.6.7), `Sat, 21 Nov 2026 09:30:00 GMT`.
  var httpDate: String {
    let (date, time) = civil
    let clock = [time / 3_600_000, time / 60_000 % 60, time / 1000 % 60].map { two($0) }
    return "\(Self.weekdays[date.weekday]), \(two(date.day)) \(Self.months[date.month - 1]) "
      + "\(date.year) \(clock.joined(separator: ":")) GMT"
  }

  /// Reads the date of HTTP in its one form that senders may use; nil for anything else.
  init?(httpDate text: String) {
    let parts = text.split(separator: " ", omittingEmptySubsequences: false)
    guard parts.count == 6, parts[5] == "GMT", parts[0].count == 4, let day = Int(parts[1]),
      let month = Self.months.firstIndex(where: { $0 == parts[2] }), let year = Int(parts[3]),
      1...31 ~= day, 1970...9999 ~= year
    else { return nil }
    let clock = parts[4].split(separator: ":").compactMap { Int($0) }
    guard clock.count == 3, 0..<24 ~= clock[0], 0..<60 ~= clock[1], 0...60 ~= clock[2] else {
      return nil
    }
    let days = Self.days(year: year, month: month + 1, day: day)
    let seconds = clock[0] * 3600 + clock[1] * 60 + clock[2]
    self.init(milliseconds: Int64(days * 86_400 + seconds) * 1000)
  }

  private static let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
  private static let months = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
  ]
  private static let lastMillisecond: Int64 = 253_402_300_799_999  // of the year 9999

  private typealias CivilDate = (year: Int, month: Int, day: Int, weekday: Int)

  /// The date, and the milliseconds since its midnight.
  private var civil: (date: CivilDate, time: Int) {
    let milliseconds = Int(min(max(0, self.milliseconds), Self.lastMillisecond))
    let days = milliseconds / 86_400_000
    // Hinnant's civil_from_days, with years that start in March so that leap days come last.
    let z = days + 719_468
    let dayOfEra = z % 146_097
    let yearOfEra =
      (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shifted = (5 * dayOfYear + 2) / 153
    let month = shifted < 10 ? shifted + 3 : shifted - 9
    let year = yearOfEra + z / 146_097 * 400 + (month <= 2 ? 1 : 0)
    let day = dayOfYear - (153 * shifted + 2) / 5 + 1
    return ((year, month, day, days % 7), milliseconds % 86_400_000)
  }

  /// Days since 1970-01-01; the inverse of the above.
  private static func days(year: Int, month: Int, day: Int) -> Int {
    let year = month <= 2 ? year - 1 : year
    let yearOfEra = year % 400
    let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    return year / 400 * 146_097 + dayOfEra - 719_468
  }

  private func two(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
}

/// Decimal numbers of a fixed width, written one behind the other.
private struct Digits {
  private let buffer: UnsafeMutableBufferPointer<UInt8>
  private(set) var count = 0

  init(_ buffer: UnsafeMutableBufferPointer<UInt8>) { self.buffer = buffer }

  mutating func put(_ number: Int, _ width: Int, then separator: Unicode.Scalar) {
    var rest = number
    for place in stride(from: count + width - 1, through: count, by: -1) {
      buffer[place] = UInt8(ascii: "0") + UInt8(rest % 10)
      rest /= 10
    }
    buffer[count + width] = UInt8(ascii: separator)
    count += width + 1
  }
}
