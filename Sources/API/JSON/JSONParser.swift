internal import Executors
internal import Jobs
internal import Waiting

/// Parses JSON strictly: UTF-8 without a byte order mark (``ByteOrderMark`` removes it), nothing after the value, no
/// duplicate names in an object. Depth and number of values are limited, so that a small text can't become a large
/// tree.
struct JSONParser {
  /// The maximum nesting of arrays and objects.
  static let maxDepth = 16
  /// The maximum number of members of one object.
  static let maxMembers = 128

  private let bytes: [UInt8]
  private var at = 0
  private var depth = 0
  private var valuesLeft: Int
  private let maxValues: Int

  static func parse(_ bytes: [UInt8], maxValues: Int) throws(JSONError) -> JSONValue {
    var parser = JSONParser(bytes: bytes, maxValues: maxValues)
    return try parser.text()
  }

  private init(bytes: [UInt8], maxValues: Int) {
    self.bytes = bytes
    self.maxValues = maxValues
    valuesLeft = maxValues
  }

  private mutating func text() throws(JSONError) -> JSONValue {
    let value = try value()
    skipSpace()
    guard at == bytes.count else { throw malformed("something follows the JSON value") }
    return value
  }

  private mutating func value() throws(JSONError) -> JSONValue {
    valuesLeft -= 1
    guard valuesLeft >= 0 else { throw .tooMuch(limit: "\(maxValues) values") }
    skipSpace()
    guard let first = peek else { throw malformed("the text ends where a value is expected") }
    switch first {
    case UInt8(ascii: "{"): return try nested { (p) throws(JSONError) in try p.object() }
    case UInt8(ascii: "["): return try nested { (p) throws(JSONError) in try p.array() }
    case UInt8(ascii: "\""): return .string(try string())
    case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return .number(try number())
    case UInt8(ascii: "t"): return try literal("true", .bool(true))
    case UInt8(ascii: "f"): return try literal("false", .bool(false))
    case UInt8(ascii: "n"): return try literal("null", .null)
    default: throw malformed("this is not a JSON value")
    }
  }

  private mutating func nested(
    _ content: (inout JSONParser) throws(JSONError) -> JSONValue
  ) throws(JSONError) -> JSONValue {
    depth += 1
    guard depth <= Self.maxDepth else { throw malformed("nested deeper than \(Self.maxDepth)") }
    at += 1
    let value = try content(&self)
    depth -= 1
    return value
  }

  private mutating func array() throws(JSONError) -> JSONValue {
    var elements: [JSONValue] = []
    skipSpace()
    if skip(UInt8(ascii: "]")) { return .array([]) }
    while true {
      elements.append(try value())
      skipSpace()
      if skip(UInt8(ascii: "]")) { return .array(elements) }
      guard skip(UInt8(ascii: ",")) else { throw malformed("',' or ']' is expected") }
    }
  }

  private mutating func object() throws(JSONError) -> JSONValue {
    var members: [JSONValue.Member] = []
    skipSpace()
    if skip(UInt8(ascii: "}")) { return .object([]) }
    while true {
      members.append(try member(after: members))
      skipSpace()
      if skip(UInt8(ascii: "}")) { return .object(members) }
      guard skip(UInt8(ascii: ",")) else { throw malformed("',' or '}' is expected") }
    }
  }

  private mutating func member(
    after members: [JSONValue.Member]
  ) throws(JSONError) -> JSONValue.Member {
    guard members.count < Self.maxMembers else {
      throw .tooMuch(limit: "\(Self.maxMembers) members in one object")
    }
    skipSpace()
    let start = at
    guard peek == UInt8(ascii: "\"") else { throw malformed("a member's name is expected") }
    let name = try string()
    guard !members.contains(where: { $0.name == name }) else {
      throw malformed("this name is used twice in one object", at: start)
    }
    skipSpace()
    guard skip(UInt8(ascii: ":")) else { throw malformed("':' is expected") }
    return JSONValue.Member(name: name, value: try value())
  }

  private mutating func literal(
    _ word: StaticString, _ value: JSONValue
  ) throws(JSONError) -> JSONValue {
    let end = at + word.utf8CodeUnitCount
    let matches = word.withUTF8Buffer { end <= bytes.count && bytes[at..<end].elementsEqual($0) }
    guard matches else { throw malformed("this is not a JSON value") }
    at = end
    return value
  }

  private mutating func number() throws(JSONError) -> String {
    let start = at
    _ = skip(UInt8(ascii: "-"))
    if !skip(UInt8(ascii: "0")) { try digits() }
    if skip(UInt8(ascii: ".")) { try digits() }
    if skip(UInt8(ascii: "e")) || skip(UInt8(ascii: "E")) {
      if !skip(UInt8(ascii: "+")) { _ = skip(UInt8(ascii: "-")) }
      try digits()
    }
    return String(decoding: bytes[start..<at], as: UTF8.self)
  }

  private mutating func digits() throws(JSONError) {
    guard isDigit(peek) else { throw malformed("a digit is expected") }
    while isDigit(peek) { at += 1 }
  }

  private func isDigit(_ byte: UInt8?) -> Bool {
    guard let byte else { return false }
    return UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte
  }
}

extension JSONParser {
  private mutating func string() throws(JSONError) -> String {
    at += 1
    let start = at
    while let byte = peek, byte != UInt8(ascii: "\""), byte != UInt8(ascii: "\\"), byte >= 0x20 {
      at += 1
    }
    if peek == UInt8(ascii: "\"") {
      at += 1
      return try validated(bytes[start..<at - 1], at: start)
    }
    return try escapedString(from: start)
  }

  /// Parses the rest of a string that has an escape. `start` is where its content begins.
  private mutating func escapedString(from start: Int) throws(JSONError) -> String {
    var content = Array(bytes[start..<at])
    while let byte = peek {
      switch byte {
      case UInt8(ascii: "\""):
        at += 1
        return try validated(content[...], at: start)
      case UInt8(ascii: "\\"):
        content.append(contentsOf: String(try escape()).utf8)
      case 0..<0x20: throw malformed("a control character in a string must be escaped")
      default:
        content.append(byte)
        at += 1
      }
    }
    throw malformed("the text ends within a string")
  }

  private func validated(_ content: ArraySlice<UInt8>, at start: Int) throws(JSONError) -> String {
    guard let text = String(validating: content, as: UTF8.self) else {
      throw malformed("this string is not UTF-8", at: start)
    }
    return text
  }

  private mutating func escape() throws(JSONError) -> Unicode.Scalar {
    let start = at
    at += 1
    guard let letter = peek else { throw malformed("the text ends within a string") }
    at += 1
    switch letter {
    case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return Unicode.Scalar(letter)
    case UInt8(ascii: "b"): return "\u{8}"
    case UInt8(ascii: "f"): return "\u{C}"
    case UInt8(ascii: "n"): return "\n"
    case UInt8(ascii: "r"): return "\r"
    case UInt8(ascii: "t"): return "\t"
    case UInt8(ascii: "u"): return try unicodeEscape(at: start)
    default: throw malformed("this escape does not exist", at: start)
    }
  }

  /// Parses one scalar. Scalars beyond the basic plane need two escapes (RFC 8259 section 7).
  private mutating func unicodeEscape(at start: Int) throws(JSONError) -> Unicode.Scalar {
    let first = try hexWord()
    if let scalar = Unicode.Scalar(first) { return scalar }
    guard 0xD800..<0xDC00 ~= first, skip(UInt8(ascii: "\\")), skip(UInt8(ascii: "u")) else {
      throw malformed("a surrogate without its pair", at: start)
    }
    let second = try hexWord()
    guard 0xDC00..<0xE000 ~= second,
      let scalar = Unicode.Scalar(0x10000 + (first - 0xD800) << 10 + (second - 0xDC00))
    else { throw malformed("a surrogate without its pair", at: start) }
    return scalar
  }

  private mutating func hexWord() throws(JSONError) -> UInt32 {
    var word: UInt32 = 0
    for _ in 0..<4 {
      guard let byte = peek, let digit = Character(Unicode.Scalar(byte)).hexDigitValue else {
        throw malformed("four hexadecimal digits are expected")
      }
      word = word << 4 | UInt32(digit)
      at += 1
    }
    return word
  }
}

extension JSONParser {
  private var peek: UInt8? { at < bytes.count ? bytes[at] : nil }

  private mutating func skip(_ byte: UInt8) -> Bool {
    guard peek == byte else { return false }
    at += 1
    return true
  }

  private mutating func skipSpace() {
    while at < bytes.count {
      switch bytes[at] {
      case 0x20, 0x09, 0x0A, 0x0D: at += 1
      default: return
      }
    }
  }

  private func malformed(_ reason: String, at place: Int? = nil) -> JSONError {
    let before = bytes[..<min(place ?? at, bytes.count)]
    let line = before.reduce(1) { $1 == 0x0A ? $0 + 1 : $0 }
    let lineStart = before.lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
    return .malformed(reason: reason, line: line, column: before.count - lineStart + 1)
  }
}

/// Parses long request bodies: one at a time, on a thread of its own, round robin between clients.
///
/// Parsing the longest body takes up to a second. On Swift's shared threads it would delay the requests of all other
/// clients.
final class BodyParser: Sendable {
  /// In bytes. Longer bodies wait for their turn; shorter ones are parsed at once.
  static let threshold = 64 << 10

  let turns = FairSemaphore<RateLimiter.Client>(1)
  private let thread = ThreadPool(name: "json", threads: 1)

  /// Runs `body`. If `count`, the bytes to parse, is above the threshold, waits for the client's turn first.
  /// - Throws: the errors of `body`; also when the client disconnected before its turn.
  func parse<Value: Sendable>(
    _ count: Int, for client: RateLimiter.Client,
    _ body: @escaping @Sendable () throws(Problem) -> Value
  ) async throws(Problem) -> Value {
    guard count > Self.threshold else { return try body() }
    let result = await turns.withPermit(for: client) {
      await thread.run { Result<Value, Problem> { () throws(Problem) in try body() } }
    }
    guard let result else { throw Problem(JobsError.abandoned) }
    return try result.get()
  }
}

/// Removes the byte order mark (U+FEFF in UTF-8: EF BB BF) that editors and spreadsheets write before a text.
struct ByteOrderMark {
  private static let bytes: [UInt8] = [0xEF, 0xBB, 0xBF]

  /// The number of bytes of the mark received so far; nil: the text has begun.
  private var held: Int? = 0

  /// Returns the piece without the mark. Bytes that may turn out to be the mark are held back.
  mutating func removed(from piece: [UInt8]) -> [UInt8] {
    guard let held else { return piece }
    let expected = Self.bytes[held...]
    let count = zip(piece, expected).prefix { $0 == $1 }.count
    if count == piece.count, count < expected.count {
      self.held = held + count
      return []
    }
    self.held = nil
    return count == expected.count ? Array(piece[count...]) : Self.bytes[..<held] + piece
  }

  /// Returns the bytes held back at the end of the text: an incomplete mark is text.
  mutating func rest() -> [UInt8] {
    defer { held = nil }
    return Array(Self.bytes[..<(held ?? 0)])
  }

  /// Returns a complete text without the mark.
  static func removed(from text: [UInt8]) -> [UInt8] {
    text.starts(with: bytes) ? Array(text.dropFirst(bytes.count)) : text
  }
}

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
