/// Encodes values as JSON directly into one buffer. Foundation's encoder builds a tree first: encoding jobs and cache entries
/// with it took a sixth of the service's time for small images, three times as much as with this one.
struct StoredJSONEncoder: Encoder {
  fileprivate let writer: JSONText
  var codingPath: [any CodingKey] { [] }
  var userInfo: [CodingUserInfoKey: Any] { writer.userInfo }

  /// Returns the value's JSON in UTF-8.
  static func encode(
    _ value: some Encodable, userInfo: [CodingUserInfoKey: any Sendable] = [:]
  ) throws -> [UInt8] {
    let writer = JSONText(userInfo)
    try writer.write(value)
    return writer.bytes
  }

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
    KeyedEncodingContainer(KeyedWriting(writer, writer.open("{", "}")))
  }

  func unkeyedContainer() -> any UnkeyedEncodingContainer {
    UnkeyedWriting(writer, writer.open("[", "]"))
  }

  func singleValueContainer() -> any SingleValueEncodingContainer {
    SingleWriting(writer: writer)
  }
}

/// The text written so far, and the stack of open objects and arrays.
///
/// `Encodable` does not report the end of a container. A container is closed when something is written at a
/// lower depth.
private final class JSONText {
  private struct Text {
    var bytes: [UInt8] = []
    var open: [(closing: UInt8, isEmpty: Bool)] = []
  }

  // Behind a pointer, because Swift checks each access to a variable of a class for overlapping accesses, which took a
  // quarter of the encoder's time.
  private let text = UnsafeMutablePointer<Text>.allocate(capacity: 1)
  let userInfo: [CodingUserInfoKey: any Sendable]

  init(_ userInfo: [CodingUserInfoKey: any Sendable]) {
    self.userInfo = userInfo
    text.initialize(to: Text())
    text.pointee.bytes.reserveCapacity(1_024)
  }

  deinit {
    text.deinitialize(count: 1)
    text.deallocate()
  }

  var bytes: [UInt8] { text.pointee.bytes }

  func open(_ opening: Unicode.Scalar, _ closing: Unicode.Scalar) -> Int {
    text.pointee.bytes.append(UInt8(ascii: opening))
    text.pointee.open.append((UInt8(ascii: closing), true))
    return text.pointee.open.count
  }

  private func close(to depth: Int) {
    while text.pointee.open.count > depth {
      text.pointee.bytes.append(text.pointee.open.removeLast().closing)
    }
  }

  /// Starts the next element of the container at `depth`.
  func next(at depth: Int) {
    close(to: depth)
    if text.pointee.open[depth - 1].isEmpty {
      text.pointee.open[depth - 1].isEmpty = false
    } else {
      byte(",")
    }
  }

  func next(at depth: Int, _ key: some CodingKey) {
    next(at: depth)
    string(key.stringValue)
    byte(":")
  }

  private func byte(_ scalar: Unicode.Scalar) { text.pointee.bytes.append(UInt8(ascii: scalar)) }

  func ascii(_ ascii: String) { text.pointee.bytes.append(contentsOf: ascii.utf8) }

  func string(_ string: String) {
    byte("\"")
    var string = string
    string.withUTF8 { utf8 in
      if utf8.contains(where: { $0 < 0x20 || $0 == 0x22 || $0 == 0x5C }) {
        for byte in utf8 { escaped(byte) }
      } else {
        text.pointee.bytes.append(contentsOf: utf8)
      }
    }
    byte("\"")
  }

  private func escaped(_ byte: UInt8) {
    switch byte {
    case 0x22, 0x5C: text.pointee.bytes += [0x5C, byte]
    case 0..<0x20: ascii("\\u00" + (byte < 16 ? "0" : "") + String(byte, radix: 16))
    default: text.pointee.bytes.append(byte)
    }
  }

  func write<Value: Encodable>(_ value: Value) throws {
    // Compare the type before the cast, because a failed cast costs more than the rest of the function.
    if Value.self == String.self, let value = value as? String { return string(value) }
    if Value.self == Int.self, let value = value as? Int { return ascii(value.description) }
    let (start, depth) = (text.pointee.bytes.count, text.pointee.open.count)
    try value.encode(to: StoredJSONEncoder(writer: self))
    close(to: depth)
    if text.pointee.bytes.count == start { ascii("{}") }
  }

  func write(_ value: Double) throws {
    guard value.isFinite else {
      let context = EncodingError.Context(codingPath: [], debugDescription: "JSON has no \(value)")
      throw EncodingError.invalidValue(value, context)
    }
    ascii(value.description)
  }
}

private struct KeyedWriting<Key: CodingKey>: KeyedEncodingContainerProtocol {
  let writer: JSONText
  let depth: Int
  var codingPath: [any CodingKey] { [] }

  init(_ writer: JSONText, _ depth: Int) { (self.writer, self.depth) = (writer, depth) }

  private func integer(_ value: some BinaryInteger, _ key: Key) {
    writer.next(at: depth, key)
    writer.ascii(value.description)
  }

  func encodeNil(forKey key: Key) {
    writer.next(at: depth, key)
    writer.ascii("null")
  }
  func encode(_ value: Bool, forKey key: Key) {
    writer.next(at: depth, key)
    writer.ascii(value ? "true" : "false")
  }
  func encode(_ value: String, forKey key: Key) {
    writer.next(at: depth, key)
    writer.string(value)
  }
  func encode(_ value: Double, forKey key: Key) throws {
    writer.next(at: depth, key)
    try writer.write(value)
  }
  func encode(_ value: Float, forKey key: Key) throws { try encode(Double(value), forKey: key) }
  func encode(_ value: Int, forKey key: Key) { integer(value, key) }
  func encode(_ value: Int8, forKey key: Key) { integer(value, key) }
  func encode(_ value: Int16, forKey key: Key) { integer(value, key) }
  func encode(_ value: Int32, forKey key: Key) { integer(value, key) }
  func encode(_ value: Int64, forKey key: Key) { integer(value, key) }
  func encode(_ value: UInt, forKey key: Key) { integer(value, key) }
  func encode(_ value: UInt8, forKey key: Key) { integer(value, key) }
  func encode(_ value: UInt16, forKey key: Key) { integer(value, key) }
  func encode(_ value: UInt32, forKey key: Key) { integer(value, key) }
  func encode(_ value: UInt64, forKey key: Key) { integer(value, key) }
  func encode(_ value: some Encodable, forKey key: Key) throws {
    writer.next(at: depth, key)
    try writer.write(value)
  }

  func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type, forKey key: Key)
    -> KeyedEncodingContainer<Nested>
  {
    superEncoder(forKey: key).container(keyedBy: type)
  }
  func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
    superEncoder(forKey: key).unkeyedContainer()
  }
  func superEncoder() -> any Encoder {
    writer.next(at: depth)
    writer.ascii("\"super\":")
    return StoredJSONEncoder(writer: writer)
  }
  func superEncoder(forKey key: Key) -> any Encoder {
    writer.next(at: depth, key)
    return StoredJSONEncoder(writer: writer)
  }
}

private struct UnkeyedWriting: UnkeyedEncodingContainer {
  let writer: JSONText
  let depth: Int
  private(set) var count = 0
  var codingPath: [any CodingKey] { [] }

  init(_ writer: JSONText, _ depth: Int) { (self.writer, self.depth) = (writer, depth) }

  private mutating func next() -> SingleWriting {
    writer.next(at: depth)
    count += 1
    return SingleWriting(writer: writer)
  }

  mutating func encodeNil() { next().encodeNil() }
  mutating func encode(_ value: Bool) { next().encode(value) }
  mutating func encode(_ value: String) { next().encode(value) }
  mutating func encode(_ value: Double) throws { try next().encode(value) }
  mutating func encode(_ value: Float) throws { try next().encode(value) }
  mutating func encode(_ value: Int) { next().encode(value) }
  mutating func encode(_ value: Int8) { next().encode(value) }
  mutating func encode(_ value: Int16) { next().encode(value) }
  mutating func encode(_ value: Int32) { next().encode(value) }
  mutating func encode(_ value: Int64) { next().encode(value) }
  mutating func encode(_ value: UInt) { next().encode(value) }
  mutating func encode(_ value: UInt8) { next().encode(value) }
  mutating func encode(_ value: UInt16) { next().encode(value) }
  mutating func encode(_ value: UInt32) { next().encode(value) }
  mutating func encode(_ value: UInt64) { next().encode(value) }
  mutating func encode(_ value: some Encodable) throws { try next().encode(value) }

  mutating func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type)
    -> KeyedEncodingContainer<Nested>
  {
    superEncoder().container(keyedBy: type)
  }
  mutating func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer {
    superEncoder().unkeyedContainer()
  }
  mutating func superEncoder() -> any Encoder {
    _ = next()
    return StoredJSONEncoder(writer: writer)
  }
}

private struct SingleWriting: SingleValueEncodingContainer {
  let writer: JSONText
  var codingPath: [any CodingKey] { [] }

  func encodeNil() { writer.ascii("null") }
  func encode(_ value: Bool) { writer.ascii(value ? "true" : "false") }
  func encode(_ value: String) { writer.string(value) }
  func encode(_ value: Double) throws { try writer.write(value) }
  func encode(_ value: Float) throws { try writer.write(Double(value)) }
  func encode(_ value: Int) { writer.ascii(value.description) }
  func encode(_ value: Int8) { writer.ascii(value.description) }
  func encode(_ value: Int16) { writer.ascii(value.description) }
  func encode(_ value: Int32) { writer.ascii(value.description) }
  func encode(_ value: Int64) { writer.ascii(value.description) }
  func encode(_ value: UInt) { writer.ascii(value.description) }
  func encode(_ value: UInt8) { writer.ascii(value.description) }
  func encode(_ value: UInt16) { writer.ascii(value.description) }
  func encode(_ value: UInt32) { writer.ascii(value.description) }
  func encode(_ value: UInt64) { writer.ascii(value.description) }
  func encode(_ value: some Encodable) throws { try writer.write(value) }
}
