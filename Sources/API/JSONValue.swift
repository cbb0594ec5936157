/// A JSON text as a tree (RFC 8259), with what `JSONDecoder` loses: the order of members, and numbers as written.
enum JSONValue: Equatable, Sendable {
  case null
  case bool(Bool)
  /// As written, which the grammar allows.
  case number(String)
  case string(String)
  case array([JSONValue])
  case object([Member])

  /// A name of an object, no other's there, and its value.
  struct Member: Equatable, Sendable {
    var name: String
    var value: JSONValue
  }

  /// The number, where it is one that fits into an `Int` without rounding; `1e3` and `5.0` do.
  var int: Int? {
    guard case .number(let text) = self else { return nil }
    if let int = Int(text) { return int }
    // Beyond 2^53 a Double no longer tells one integer from the next.
    guard let double, abs(double) <= 9_007_199_254_740_992 else { return nil }
    return Int(exactly: double)
  }

  /// The number, where it is a finite one.
  var double: Double? {
    guard case .number(let text) = self, text.utf8.count <= 64, let value = Double(text),
      value.isFinite
    else { return nil }
    return value
  }

  var string: String? {
    if case .string(let text) = self { text } else { nil }
  }

  /// What kind of value it is, for people.
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

/// Why a text is not JSON that we read.
enum JSONError: Error, Equatable {
  /// It breaks the grammar, nests too deeply, or has a name twice in one object; `line` and `column` count from 1, in
  /// bytes.
  case malformed(reason: String, line: Int, column: Int)
  /// It holds more than any legal request does.
  case tooMuch(limit: String)
}
