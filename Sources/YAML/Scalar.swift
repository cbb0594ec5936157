/// The text of a scalar with its style and tag, which determine whether it is a string, a number, a boolean or null.
package struct Scalar: Sendable, Equatable {
  /// How the scalar is written.
  package enum Style: Sendable, Equatable {
    /// Without quotes: a string, a number, a boolean or null.
    case plain
    /// In single or double quotes: a string.
    case quoted
    /// A literal (`|`) or folded (`>`) block: a string.
    case block
  }

  /// The type of a scalar in YAML 1.2's core schema (section 10.3.2).
  package enum Kind: Sendable, Equatable {
    /// `null`, `~` or empty.
    case null
    /// `true` or `false`, also as `True` or `TRUE`.
    case boolean
    /// An integer, in decimal, octal (`0o17`) or hexadecimal (`0x1f`).
    case integer
    /// A number with a decimal point or an exponent, `.inf` or `.nan`.
    case float
    /// Anything else.
    case string
  }

  /// The text with resolved escapes.
  package let text: String
  package let style: Style
  /// The full tag, such as `tag:yaml.org,2002:str`; nil if the scalar has none.
  package let tag: String?

  package init(_ text: String, style: Style, tag: String? = nil) {
    (self.text, self.style, self.tag) = (text, style, tag)
  }

  /// The scalar's type. A tag has precedence over the text.
  package var kind: Kind {
    switch tag {
    case "tag:yaml.org,2002:str", "!": .string
    case "tag:yaml.org,2002:null": .null
    case "tag:yaml.org,2002:bool": .boolean
    case "tag:yaml.org,2002:int": .integer
    case "tag:yaml.org,2002:float": .float
    default: style == .plain ? Scalar.resolve(text) : .string
    }
  }

  private static func resolve(_ text: String) -> Kind {
    switch text {
    case "", "~", "null", "Null", "NULL": return .null
    case "true", "True", "TRUE", "false", "False", "FALSE": return .boolean
    case ".nan", ".NaN", ".NAN": return .float
    default: break
    }
    let digits = text.utf8
    if digits.starts(with: "0x".utf8) || digits.starts(with: "0o".utf8) {
      let radix = digits.starts(with: "0x".utf8) ? 16 : 8
      let rest = text.utf8.dropFirst(2)
      let isNumber = !rest.isEmpty && rest.allSatisfy { isDigit($0, radix: radix) }
      return isNumber ? .integer : .string
    }
    return decimal(text)
  }

  private static func decimal(_ text: String) -> Kind {
    var rest = Substring(text).utf8
    if rest.first == UInt8(ascii: "-") || rest.first == UInt8(ascii: "+") { rest.removeFirst() }
    if [".inf", ".Inf", ".INF"].contains(Substring(rest)) { return .float }
    let whole = takeDigits(&rest)
    guard !rest.isEmpty else { return whole > 0 ? .integer : .string }
    var fraction = 0
    if rest.first == UInt8(ascii: ".") {
      rest.removeFirst()
      fraction = takeDigits(&rest)
    }
    guard whole + fraction > 0 else { return .string }
    guard let mark = rest.first else { return .float }
    guard mark == UInt8(ascii: "e") || mark == UInt8(ascii: "E") else { return .string }
    rest.removeFirst()
    if rest.first == UInt8(ascii: "-") || rest.first == UInt8(ascii: "+") { rest.removeFirst() }
    return takeDigits(&rest) > 0 && rest.isEmpty ? .float : .string
  }

  private static func takeDigits(_ rest: inout Substring.UTF8View) -> Int {
    let digits = rest.prefix { isDigit($0, radix: 10) }.count
    rest.removeFirst(digits)
    return digits
  }

  private static func isDigit(_ byte: UInt8, radix: Int) -> Bool {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "7"): true
    case UInt8(ascii: "8"), UInt8(ascii: "9"): radix >= 10
    case UInt8(ascii: "a")...UInt8(ascii: "f"), UInt8(ascii: "A")...UInt8(ascii: "F"): radix == 16
    default: false
    }
  }
}
