/// Which bytes the grammar of HTTP allows where.
extension UInt8 {
  /// `tchar`, of which methods and field names are made (RFC 9110, section 5.6.2).
  public var isTokenCharacter: Bool {
    self < 128 && (self < 64 ? tokenLow >> self : tokenHigh >> (self - 64)) & 1 == 1
  }

  /// A byte of a field value: visible, space, tab or beyond ASCII (RFC 9110, section 5.5).
  var isFieldCharacter: Bool { (self >= 0x20 && self != 0x7f) || self == 0x09 }

  /// A byte of a request target. Wider than RFC 3986, as clients are, but never a blank, a control,
  /// a fragment's mark or beyond ASCII.
  var isTargetCharacter: Bool { self > 0x20 && self < 0x7f && self != UInt8(ascii: "#") }

  /// A byte of `host [":" port]` (RFC 3986, section 3.2).
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
