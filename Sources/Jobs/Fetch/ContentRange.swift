/// A `Content-Range` field in bytes (RFC 9110 section 14.4), for example `bytes 5-9/10`.
package struct ContentRange: Equatable, Sendable {
  package let first: Int
  package let last: Int
  /// The size of the complete representation; nil if the field does not state it (`bytes 5-9/*`).
  package let total: Int?

  /// Returns nil for other units, for unsatisfied ranges (`bytes */10`) and for malformed fields.
  package init?(_ text: String) {
    let words = text.split(separator: " ")
    guard words.count == 2, words[0].lowercased() == "bytes" else { return nil }
    let parts = words[1].split(separator: "/", omittingEmptySubsequences: false)
    guard parts.count == 2 else { return nil }
    let total = Self.number(parts[1])
    guard total != nil || parts[1] == "*" else { return nil }
    let ends = parts[0].split(separator: "-", omittingEmptySubsequences: false)
    guard ends.count == 2, let first = Self.number(ends[0]), let last = Self.number(ends[1]),
      first <= last, last < total ?? .max
    else { return nil }
    (self.first, self.last, self.total) = (first, last, total)
  }

  private static func number(_ text: Substring) -> Int? {
    guard !text.isEmpty, text.utf8.allSatisfy({ 0x30...0x39 ~= $0 }) else { return nil }
    return Int(text)
  }
}
