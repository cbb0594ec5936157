internal import Foundation

/// Decodes records that ``RecordEncoder`` encoded, and any other JSON of the same structure.
package struct RecordDecoder: Decoder {
  fileprivate let text: RecordText
  fileprivate let value: RecordValue
  package var codingPath: [any CodingKey] { [] }
  package var userInfo: [CodingUserInfoKey: Any] { text.userInfo }

  /// Decodes a value from JSON in UTF-8.
  /// - Throws: `DecodingError` or ``RecordTextError``.
  package static func decode<Value: Decodable>(
    _ type: Value.Type, from bytes: [UInt8], userInfo: [CodingUserInfoKey: Any] = [:]
  ) throws -> Value {
    let decoder = RecordDecoder(
      text: RecordText(bytes, userInfo), value: try RecordParser.parse(bytes))
    return try decoder.decode(type)
  }

  fileprivate func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
    if type == String.self, let string = try text.string(value) as? Value { return string }
    if type == [UInt8].self, let numbers = try text.numbers(value) as? Value { return numbers }
    return try type.init(from: self)
  }

  package func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<
    Key
  > {
    guard case .object(let members) = value else { throw mismatch("an object") }
    return KeyedDecodingContainer(KeyedReading(text: text, members: members))
  }

  package func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
    guard case .array(let elements) = value else { throw mismatch("an array") }
    return UnkeyedReading(text: text, elements: elements)
  }

  package func singleValueContainer() -> any SingleValueDecodingContainer {
    SingleReading(decoder: self)
  }
}

/// The error for a missing value or a value of another type.
private func mismatch(_ expected: String) -> DecodingError {
  .dataCorrupted(DecodingError.Context(codingPath: [], debugDescription: "not \(expected)"))
}

/// The JSON text to which the ranges of the parsed values refer.
private final class RecordText {
  let bytes: [UInt8]
  let userInfo: [CodingUserInfoKey: Any]

  init(_ bytes: [UInt8], _ userInfo: [CodingUserInfoKey: Any]) {
    (self.bytes, self.userInfo) = (bytes, userInfo)
  }

  func bool(_ value: RecordValue) throws -> Bool {
    guard case .bool(let bool) = value else { throw mismatch("a boolean") }
    return bool
  }

  func string(_ value: RecordValue) throws -> String {
    guard case .string(let range, let hasEscapes) = value else { throw mismatch("a string") }
    // Strings with escapes are rare, so Foundation decodes them.
    let quoted = hasEscapes ? range.lowerBound - 1..<range.upperBound + 1 : range
    guard !hasEscapes else {
      return try JSONDecoder().decode(String.self, from: Data(bytes[quoted]))
    }
    return String(decoding: bytes[range], as: UTF8.self)
  }

  func integer<Value: FixedWidthInteger>(_ value: RecordValue) throws -> Value {
    guard case .number(let range) = value else { throw mismatch("a number") }
    let isNegative = bytes[range.lowerBound] == UInt8(ascii: "-")
    let digits = bytes[range].dropFirst(isNegative ? 1 : 0)
    guard !digits.isEmpty else { throw mismatch("a number") }
    var result: Value = 0
    for byte in digits {
      guard 0x30...0x39 ~= byte else { throw mismatch("an integer") }
      let (shifted, isTooLarge) = result.multipliedReportingOverflow(by: 10)
      let digit = Value(byte - 0x30)
      let (sum, overflows) =
        isNegative
        ? shifted.subtractingReportingOverflow(digit) : shifted.addingReportingOverflow(digit)
      guard !isTooLarge, !overflows else { throw mismatch("a \(Value.self)") }
      result = sum
    }
    return result
  }

  func numbers(_ value: RecordValue) throws -> [UInt8] {
    guard case .array(let elements) = value else { throw mismatch("an array") }
    return try elements.map { try integer($0) }
  }

  func double(_ value: RecordValue) throws -> Double {
    guard case .number(let range) = value,
      let double = Double(String(decoding: bytes[range], as: UTF8.self))
    else { throw mismatch("a number") }
    return double
  }

  func equals(_ range: Range<Int>, _ key: String) -> Bool {
    var key = key
    return key.withUTF8 { key in
      key.count == range.count
        && bytes.withUnsafeBufferPointer { $0[range].elementsEqual(key) }
    }
  }
}

private struct KeyedReading<Key: CodingKey>: KeyedDecodingContainerProtocol {
  let text: RecordText
  let members: [(key: Range<Int>, value: RecordValue)]
  var codingPath: [any CodingKey] { [] }

  var allKeys: [Key] {
    members.compactMap { Key(stringValue: String(decoding: text.bytes[$0.key], as: UTF8.self)) }
  }

  private func find(_ key: Key) -> RecordValue? {
    let name = key.stringValue
    return members.first { text.equals($0.key, name) }?.value
  }

  private func value(_ key: Key) throws -> RecordValue {
    guard let value = find(key) else {
      throw DecodingError.keyNotFound(
        key, DecodingError.Context(codingPath: [], debugDescription: "no \(key.stringValue)"))
    }
    return value
  }

  func contains(_ key: Key) -> Bool { find(key) != nil }
  func decodeNil(forKey key: Key) throws -> Bool {
    guard case .null = try value(key) else { return false }
    return true
  }
  func decode(_ type: Bool.Type, forKey key: Key) throws -> Bool { try text.bool(value(key)) }
  func decode(_ type: String.Type, forKey key: Key) throws -> String { try text.string(value(key)) }
  func decode(_ type: Double.Type, forKey key: Key) throws -> Double { try text.double(value(key)) }
  func decode(_ type: Float.Type, forKey key: Key) throws -> Float {
    Float(try text.double(value(key)))
  }
  func decode(_ type: Int.Type, forKey key: Key) throws -> Int { try text.integer(value(key)) }
  func decode(_ type: Int8.Type, forKey key: Key) throws -> Int8 { try text.integer(value(key)) }
  func decode(_ type: Int16.Type, forKey key: Key) throws -> Int16 { try text.integer(value(key)) }
  func decode(_ type: Int32.Type, forKey key: Key) throws -> Int32 { try text.integer(value(key)) }
  func decode(_ type: Int64.Type, forKey key: Key) throws -> Int64 { try text.integer(value(key)) }
  func decode(_ type: UInt.Type, forKey key: Key) throws -> UInt { try text.integer(value(key)) }
  func decode(_ type: UInt8.Type, forKey key: Key) throws -> UInt8 { try text.integer(value(key)) }
  func decode(_ type: UInt16.Type, forKey key: Key) throws -> UInt16 {
    try text.integer(value(key))
  }
  func decode(_ type: UInt32.Type, forKey key: Key) throws -> UInt32 {
    try text.integer(value(key))
  }
  func decode(_ type: UInt64.Type, forKey key: Key) throws -> UInt64 {
    try text.integer(value(key))
  }
  func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
    try RecordDecoder(text: text, value: value(key)).decode(type)
  }

  func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type, forKey key: Key) throws
    -> KeyedDecodingContainer<Nested>
  {
    try superDecoder(forKey: key).container(keyedBy: type)
  }
  func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
    try superDecoder(forKey: key).unkeyedContainer()
  }
  func superDecoder() throws -> any Decoder {
    guard let member = members.first(where: { text.equals($0.key, "super") }) else {
      throw mismatch("an object with the key super")
    }
    return RecordDecoder(text: text, value: member.value)
  }
  func superDecoder(forKey key: Key) throws -> any Decoder {
    RecordDecoder(text: text, value: try value(key))
  }
}

private struct UnkeyedReading: UnkeyedDecodingContainer {
  let text: RecordText
  let elements: [RecordValue]
  private(set) var currentIndex = 0
  var codingPath: [any CodingKey] { [] }
  var count: Int? { elements.count }
  var isAtEnd: Bool { currentIndex == elements.count }

  private mutating func next() throws -> SingleReading {
    guard !isAtEnd else { throw mismatch("a longer array") }
    currentIndex += 1
    return SingleReading(decoder: RecordDecoder(text: text, value: elements[currentIndex - 1]))
  }

  mutating func decodeNil() throws -> Bool {
    guard !isAtEnd, case .null = elements[currentIndex] else { return false }
    currentIndex += 1
    return true
  }
  mutating func decode(_ type: Bool.Type) throws -> Bool { try next().decode(type) }
  mutating func decode(_ type: String.Type) throws -> String { try next().decode(type) }
  mutating func decode(_ type: Double.Type) throws -> Double { try next().decode(type) }
  mutating func decode(_ type: Float.Type) throws -> Float { try next().decode(type) }
  mutating func decode(_ type: Int.Type) throws -> Int { try next().decode(type) }
  mutating func decode(_ type: Int8.Type) throws -> Int8 { try next().decode(type) }
  mutating func decode(_ type: Int16.Type) throws -> Int16 { try next().decode(type) }
  mutating func decode(_ type: Int32.Type) throws -> Int32 { try next().decode(type) }
  mutating func decode(_ type: Int64.Type) throws -> Int64 { try next().decode(type) }
  mutating func decode(_ type: UInt.Type) throws -> UInt { try next().decode(type) }
  mutating func decode(_ type: UInt8.Type) throws -> UInt8 { try next().decode(type) }
  mutating func decode(_ type: UInt16.Type) throws -> UInt16 { try next().decode(type) }
  mutating func decode(_ type: UInt32.Type) throws -> UInt32 { try next().decode(type) }
  mutating func decode(_ type: UInt64.Type) throws -> UInt64 { try next().decode(type) }
  mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
    try next().decode(type)
  }

  mutating func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) throws
    -> KeyedDecodingContainer<Nested>
  {
    try next().decoder.container(keyedBy: type)
  }
  mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
    try next().decoder.unkeyedContainer()
  }
  mutating func superDecoder() throws -> any Decoder { try next().decoder }
}

private struct SingleReading: SingleValueDecodingContainer {
  let decoder: RecordDecoder
  var codingPath: [any CodingKey] { [] }
  private var text: RecordText { decoder.text }
  private var value: RecordValue { decoder.value }

  func decodeNil() -> Bool {
    if case .null = value { true } else { false }
  }
  func decode(_ type: Bool.Type) throws -> Bool { try text.bool(value) }
  func decode(_ type: String.Type) throws -> String { try text.string(value) }
  func decode(_ type: Double.Type) throws -> Double { try text.double(value) }
  func decode(_ type: Float.Type) throws -> Float { Float(try text.double(value)) }
  func decode(_ type: Int.Type) throws -> Int { try text.integer(value) }
  func decode(_ type: Int8.Type) throws -> Int8 { try text.integer(value) }
  func decode(_ type: Int16.Type) throws -> Int16 { try text.integer(value) }
  func decode(_ type: Int32.Type) throws -> Int32 { try text.integer(value) }
  func decode(_ type: Int64.Type) throws -> Int64 { try text.integer(value) }
  func decode(_ type: UInt.Type) throws -> UInt { try text.integer(value) }
  func decode(_ type: UInt8.Type) throws -> UInt8 { try text.integer(value) }
  func decode(_ type: UInt16.Type) throws -> UInt16 { try text.integer(value) }
  func decode(_ type: UInt32.Type) throws -> UInt32 { try text.integer(value) }
  func decode(_ type: UInt64.Type) throws -> UInt64 { try text.integer(value) }
  func decode<Value: Decodable>(_ type: Value.Type) throws -> Value { try decoder.decode(type) }
}

/// A parsed JSON value. Scalars are ranges of the text, which are decoded on demand.
enum RecordValue {
  case null
  case bool(Bool)
  /// The range of its characters.
  case number(Range<Int>)
  /// The range of its characters, without the quotes.
  case string(Range<Int>, hasEscapes: Bool)
  case array([RecordValue])
  case object([(key: Range<Int>, value: RecordValue)])
}

/// A syntax error in a record.
struct RecordTextError: Error {
  /// The position in the text, in bytes.
  let offset: Int
}

/// Parses JSON (RFC 8259) up to a depth of 32. Object keys must not contain escapes; the keys of records
/// never do.
struct RecordParser {
  private let text: UnsafeBufferPointer<UInt8>
  private var at = 0
  private static let maxDepth = 32

  static func parse(_ text: [UInt8]) throws -> RecordValue {
    try text.withUnsafeBufferPointer { text in
      var parser = RecordParser(text: text)
      let value = try parser.value(depth: 0)
      parser.skipSpace()
      guard parser.at == text.count else { throw parser.fault }
      return value
    }
  }

  private init(text: UnsafeBufferPointer<UInt8>) { self.text = text }

  private var fault: RecordTextError { RecordTextError(offset: at) }
  private var current: UInt8 { at < text.count ? text[at] : 0 }

  private mutating func skipSpace() {
    while at < text.count, [0x20, 0x0A, 0x0D, 0x09].contains(text[at]) { at += 1 }
  }

  private mutating func consume(_ scalar: Unicode.Scalar) -> Bool {
    if current > 0x20, current != UInt8(ascii: scalar) { return false }
    skipSpace()
    guard current == UInt8(ascii: scalar) else { return false }
    at += 1
    return true
  }

  private mutating func value(depth: Int) throws -> RecordValue {
    guard depth < Self.maxDepth else { throw fault }
    if current <= 0x20 { skipSpace() }
    switch current {
    case UInt8(ascii: "{"): return try object(depth: depth)
    case UInt8(ascii: "["): return try array(depth: depth)
    case UInt8(ascii: "\""):
      let (range, hasEscapes) = try string()
      return .string(range, hasEscapes: hasEscapes)
    case UInt8(ascii: "t"): return try word("true", .bool(true))
    case UInt8(ascii: "f"): return try word("false", .bool(false))
    case UInt8(ascii: "n"): return try word("null", .null)
    default: return .number(try number())
    }
  }

  private mutating func object(depth: Int) throws -> RecordValue {
    at += 1
    var members: [(key: Range<Int>, value: RecordValue)] = []
    if consume("}") { return .object(members) }
    repeat {
      skipSpace()
      let (key, hasEscapes) = try string()
      guard !hasEscapes, consume(":") else { throw fault }
      members.append((key, try value(depth: depth + 1)))
    } while consume(",")
    guard consume("}") else { throw fault }
    return .object(members)
  }

  private mutating func array(depth: Int) throws -> RecordValue {
    at += 1
    var elements: [RecordValue] = []
    if consume("]") { return .array(elements) }
    repeat { elements.append(try value(depth: depth + 1)) } while consume(",")
    guard consume("]") else { throw fault }
    return .array(elements)
  }

  private mutating func string() throws -> (Range<Int>, hasEscapes: Bool) {
    guard current == UInt8(ascii: "\"") else { throw fault }
    at += 1
    let start = at
    var hasEscapes = false
    while at < text.count, text[at] != UInt8(ascii: "\"") {
      guard text[at] >= 0x20 else { throw fault }
      if text[at] == UInt8(ascii: "\\") {
        hasEscapes = true
        at += 1
      }
      at += 1
    }
    guard at < text.count else { throw fault }
    at += 1
    return (start..<at - 1, hasEscapes)
  }

  private mutating func word(_ word: StaticString, _ value: RecordValue) throws -> RecordValue {
    let rest = text[at...].prefix(word.utf8CodeUnitCount)
    let expected = UnsafeBufferPointer(start: word.utf8Start, count: word.utf8CodeUnitCount)
    guard rest.elementsEqual(expected) else { throw fault }
    at += word.utf8CodeUnitCount
    return value
  }

  private mutating func number() throws -> Range<Int> {
    let start = at
    while at < text.count {
      switch text[at] {
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "+"),
        UInt8(ascii: "."), UInt8(ascii: "e"), UInt8(ascii: "E"):
        at += 1
        continue
      default: break
      }
      break
    }
    guard at > start else { throw fault }
    return start..<at
  }
}
