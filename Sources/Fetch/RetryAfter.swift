internal import CCurl
internal import Glibc

/// The `Retry-After` field (RFC 9110 section 10.2.3).
enum RetryAfter {
  /// Seconds from now, never negative; nil for what is neither delay-seconds nor an HTTP date.
  static func seconds(_ value: String, now: Int = time(nil)) -> Double? {
    let digits = value.utf8
    if !digits.isEmpty, digits.allSatisfy({ 0x30...0x39 ~= $0 }) {
      return digits.count <= 10 ? Double(value) : Double(Int32.max)
    }
    guard let first = digits.first, first >= 0x41, digits.count <= 64 else { return nil }
    let date = curl_getdate(value, nil)
    return date < 0 ? nil : Double(max(0, date - now))
  }
}
