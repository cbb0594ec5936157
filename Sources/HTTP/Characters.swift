/// The characters that HTTP's grammar allows at each place.
extension UInt8 {
  /// Whether the byte is a `tchar`, the characters of methods and field names (RFC 9110, section 5.6.2).
  package var isTokenCharacter: Bool {
    self < 128 && (self < 64 ? tokenLow >> self : tokenHigh >> (self - 64)) & 1 == 1
  }

  /// Whether the byte may occur in a field value: visible, space, tab or beyond ASCII (RFC 9110, section
  /// 5.5).
  var isFieldCharacter: Bool { (self >= 0x20 && self != 0x7f) || self == 0x09 }

  /// Whether the byte may occur in a request target. More lenient than RFC 3986, because clients are; but
  /// blanks, controls, `#` and bytes beyond ASCII are refused.
  var isTargetCharacter: Bool { self > 0x20 && self < 0x7f && self != UInt8(ascii: "#") }

  /// Whether the byte may occur in `host [":" port]` (RFC 3986, section 3.2).
  var isHostCharacter: Bool {
    self < 128 && (self < 64 ? hostLow >> self : hostHigh >> (self - 64)) & 1 == 1
  }
}

private let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
private let tokenLow = mask("!#$%&'*+-.0123456789", from: 0)
private let tokenHigh = mask("^_`|~" + letters, from: 64)
private let hostLow = mask("-.!$&'()*+,;=%:0123456789", from: 0)
private let hostHigh = mask("_~[]" + letters, from: 64)

private func mask(_ characters: String, from base: UInt8) -> UInt64 {
  characters.utf8.reduce(0) { $0 | 1 << UInt64($1 - base) }
}
