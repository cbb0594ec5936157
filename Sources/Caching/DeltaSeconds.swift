/// A number of seconds in a header field (RFC 9111 section 1.2.2).
enum DeltaSeconds {
  /// The largest value, 2^31. Larger numbers are reduced to it.
  static let maximum = 2_147_483_648

  /// Parses digits; nil for any other text.
  static func read(_ text: some StringProtocol) -> Int? {
    guard !text.isEmpty, text.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 })
    else { return nil }
    return saturated(Int(text) ?? maximum)
  }

  /// The number limited to 0…2^31.
  static func saturated(_ seconds: Int) -> Int { min(max(seconds, 0), maximum) }
}
