internal import Glibc
internal import Jobs

/// The `Retry-After` field (RFC 9110 section 10.2.3).
enum RetryAfter {
  /// Returns the seconds from now, never negative. Nil if the value is neither a number of seconds nor an
  /// HTTP date.
  static func seconds(_ value: String) -> Double? {
    if !value.isEmpty, value.utf8.allSatisfy({ 0x30...0x39 ~= $0 }) {
      return value.utf8.count <= 10 ? Double(value) : Double(Int32.max)
    }
    let now = Timestamp(milliseconds: Int64(time(nil)) * 1000)
    return Timestamp(httpDate: value, now: now).map { max(0, ($0 - now).inSeconds) }
  }
}
