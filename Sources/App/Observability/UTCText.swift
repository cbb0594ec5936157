internal import Glibc

/// RFC 3339 in UTC, without a formatter's locks and allocations.
enum UTCText {
  /// `2026-11-21T09:30:00.123Z`.
  static func milliseconds(_ time: timespec) -> String {
    let (quotient, remainder) = time.tv_sec.quotientAndRemainder(dividingBy: 86_400)
    let days = remainder < 0 ? quotient - 1 : quotient
    let second = remainder < 0 ? remainder + 86_400 : remainder
    let (year, month, day) = date(days)
    let date = "\(pad(year, 4))-\(pad(month, 2))-\(pad(day, 2))"
    let clock = "\(pad(second / 3600, 2)):\(pad(second / 60 % 60, 2)):\(pad(second % 60, 2))"
    return "\(date)T\(clock).\(pad(time.tv_nsec / 1_000_000, 3))Z"
  }

  /// The civil date that many days after 1970-01-01, by counting eras of 400 years from a March, so
  /// that the leap day is the last of its year.
  private static func date(_ days: Int) -> (year: Int, month: Int, day: Int) {
    let shifted = days + 719_468
    let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
    let dayOfEra = shifted - era * 146_097
    let yearOfEra =
      (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153
    let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
    let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    return (year, month, dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
  }

  private static func pad(_ number: Int, _ width: Int) -> String {
    let digits = String(number)
    return String(repeating: "0", count: max(0, width - digits.count)) + digits
  }
}
