/// A number of seconds in a field (RFC 9111 section 1.2.2).
enum DeltaSeconds {
  /// What more than it is taken for.
  static let most = 2_147_483_648

  /// nil for anything but digits; saturates.
  static func read(_ text: some StringProtocol) -> Int? {
    guard !text.isEmpty, text.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 })
    else { return nil }
    return saturated(Int(text) ?? most)
  }

  /// Within 0 and the most.
  static func saturated(_ seconds: Int) -> Int { min(max(seconds, 0), most) }
}
