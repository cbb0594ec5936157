/// Escapes text so that it stays on one line and can't move a terminal's cursor.
package enum LineText {
  /// The text with control characters, line separators and direction overrides escaped.
  package static func escaped(_ text: String) -> String {
    guard text.unicodeScalars.contains(where: isUnsafe) else { return text }
    var result = ""
    for scalar in text.unicodeScalars { append(scalar, to: &result) }
    return result
  }

  /// The text as a JSON string: in double quotes, with quotes and backslashes escaped too.
  package static func quoted(_ text: String) -> String {
    var result = "\""
    appendQuotedContent(text, to: &result)
    return result + "\""
  }

  /// Appends the content of a JSON string, without its quotes.
  static func appendQuotedContent(_ text: String, to result: inout String) {
    for scalar in text.unicodeScalars {
      if scalar == "\"" || scalar == "\\" { result.unicodeScalars.append("\\") }
      append(scalar, to: &result)
    }
  }

  private static func append(_ scalar: Unicode.Scalar, to result: inout String) {
    switch scalar {
    case "\n": result += "\\n"
    case "\r": result += "\\r"
    case "\t": result += "\\t"
    case _ where isUnsafe(scalar):
      let hex = String(scalar.value, radix: 16)
      result += "\\u" + String(repeating: "0", count: 4 - hex.count) + hex
    default: result.unicodeScalars.append(scalar)
    }
  }

  /// Whether a character must be escaped: C0 and C1 controls, DEL, line and paragraph separators, and marks that change the
  /// direction of text. All have at most four hexadecimal digits.
  package static func isUnsafe(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0..<0x20, 0x7F...0x9F, 0x200E...0x200F, 0x2028...0x202E, 0x2066...0x2069, 0xFEFF: true
    default: false
    }
  }
}

/// Bytes written as hexadecimal digits.
package enum HexText {
  package static func bytes(_ text: some StringProtocol) -> [UInt8]? {
    let digits = text.utf8.map { Character(Unicode.Scalar($0)).hexDigitValue }
    guard digits.count.isMultiple(of: 2) else { return nil }
    var bytes: [UInt8] = []
    for index in stride(from: 0, to: digits.count, by: 2) {
      guard let high = digits[index], let low = digits[index + 1] else { return nil }
      bytes.append(UInt8(high << 4 | low))
    }
    return bytes
  }
}
