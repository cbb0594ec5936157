/// A JSON value (RFC 8259). Unlike `JSONDecoder`, it keeps the order of members and the text of numbers.
enum JSONValue: Equatable, Sendable {
  case null
  case bool(Bool)
  /// The text of the number, valid by the grammar.
  case number(String)
  case string(String)
  case array([JSONValue])
  case object([Member])

  /// A member of an object. Its name is unique there.
  struct Member: Equatable, Sendable {
    var name: String
    var value: JSONValue
  }

  /// The number as an `Int`, if it is one without rounding (`1e3` and `5.0` are); else nil.
  var int: Int? {
    guard case .number(let text) = self else { return nil }
    if let int = Int(text) { return int }
    // Beyond 2^53 a Double can't represent every integer.
    guard let double, abs(double) <= 9_007_199_254_740_992 else { return nil }
    return Int(exactly: double)
  }

  /// The number, if it is finite; else nil.
  var double: Double? {
    guard case .number(let text) = self, text.utf8.count <= 64, let value = Double(text),
      value.isFinite
    else { return nil }
    return value
  }

  var string: String? {
    if case .string(let text) = self { text } else { nil }
  }

  /// The kind of value, for error messages.
  var kind: String {
    switch self {
    case .null: "null"
    case .bool: "a boolean"
    case .number: "a number"
    case .string: "a string"
    case .array: "an array"
    case .object: "an object"
    }
  }
}

/// Why a text was not parsed.
enum JSONError: Error, Equatable {
  /// The text is not valid JSON, is nested too deeply, or has a duplicate name. `line` and `column` count from 1, in
  /// bytes.
  case malformed(reason: String, line: Int, column: Int)
  /// The text has more values or members than any legal request.
  case tooMuch(limit: String)
}
