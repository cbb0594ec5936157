/// A comma-separated list in a header field's line (RFC 9110 section 5.6.1).
enum FieldList {
  /// The members of the list, without surrounding whitespace and without empty members.
  ///
  /// A comma in a quoted string does not separate members. A quote that is never closed is an ordinary character, so that
  /// it can't hide the members after it.
  static func members(_ line: String) -> [Substring] {
    var found: [Substring] = []
    var start = line.startIndex
    var index = start
    var quotesClose = true
    while index < line.endIndex {
      if line.utf8[index] == UInt8(ascii: ",") {
        found.append(trimmed(line[start..<index]))
        start = line.utf8.index(after: index)
      } else if quotesClose, line.utf8[index] == UInt8(ascii: "\"") {
        if let close = closingQuote(of: index, in: line) {
          index = close
        } else {
          quotesClose = false
        }
      }
      index = line.utf8.index(after: index)
    }
    found.append(trimmed(line[start...]))
    return found.filter { !$0.isEmpty }
  }

  private static func closingQuote(of open: String.Index, in line: String) -> String.Index? {
    var isEscaped = false
    var index = line.utf8.index(after: open)
    while index < line.endIndex {
      if isEscaped {
        isEscaped = false
      } else if line.utf8[index] == UInt8(ascii: "\\") {
        isEscaped = true
      } else if line.utf8[index] == UInt8(ascii: "\"") {
        return index
      }
      index = line.utf8.index(after: index)
    }
    return nil
  }

  /// The text without surrounding spaces and tabs.
  static func trimmed(_ text: Substring) -> Substring {
    let isBlank = { (byte: UInt8) in byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
    var utf8 = text.utf8.drop(while: isBlank)
    while let last = utf8.last, isBlank(last) { utf8 = utf8.dropLast() }
    return Substring(utf8)
  }

  /// The content of a quoted string (RFC 9110 section 5.6.4); nil if the text is not a quoted string.
  static func unquoted(_ text: String) -> String? {
    guard text.utf8.count >= 2, text.hasPrefix("\""), text.hasSuffix("\"") else { return nil }
    var said: [UInt8] = []
    var isEscaped = false
    for byte in text.utf8.dropFirst().dropLast() {
      if byte == UInt8(ascii: "\\"), !isEscaped {
        isEscaped = true
      } else {
        said.append(byte)
        isEscaped = false
      }
    }
    return String(decoding: said, as: UTF8.self)
  }
}
