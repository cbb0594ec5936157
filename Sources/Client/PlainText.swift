/// Makes text of origins, servers and lists safe for a terminal: it stays on one line and moves no cursor.
enum PlainText {
  /// Replaces each control character, line separator and direction mark with U+FFFD.
  static func line(_ text: String) -> String {
    guard text.unicodeScalars.contains(where: isUnsafe) else { return text }
    var result = String.UnicodeScalarView()
    for scalar in text.unicodeScalars { result.append(isUnsafe(scalar) ? "\u{FFFD}" : scalar) }
    return String(result)
  }

  /// Escapes the same characters in JSON, which keeps its meaning.
  static func escaped(_ json: String) -> String {
    guard json.unicodeScalars.contains(where: isUnsafe) else { return json }
    var result = ""
    for scalar in json.unicodeScalars {
      let digits = String(scalar.value, radix: 16)
      let escape = "\\u" + String(repeating: "0", count: max(0, 4 - digits.count)) + digits
      result += isUnsafe(scalar) ? escape : String(scalar)
    }
    return result
  }

  /// Returns the text in printable ASCII, cut to `width` columns. Lines that are redrawn must have a known
  /// width.
  static func columns(_ text: String, atMost width: Int) -> String {
    let scalars = text.unicodeScalars.prefix(width + 1)
    var result = String.UnicodeScalarView()
    for scalar in scalars.prefix(width) {
      result.append(0x20...0x7E ~= scalar.value ? scalar : "?")
    }
    if scalars.count > width, width > 1 {
      result.removeLast()
      result.append("~")
    }
    return String(result)
  }

  private static func isUnsafe(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0..<0x20, 0x7F...0x9F, 0x200E...0x200F, 0x2028...0x202E, 0x2066...0x2069, 0xFEFF: true
    default: false
    }
  }
}
