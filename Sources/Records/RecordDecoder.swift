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

  init(text: RecordText, elements: [RecordValue]) { (self.text, self.elements) = (text, elements) }

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

  init(decoder: RecordDecoder) { self.decoder = decoder }

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
