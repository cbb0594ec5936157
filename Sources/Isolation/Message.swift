/// Writes a message: integers in little-endian order, texts and arrays after their counts.
struct MessageWriter {
  private(set) var bytes: [UInt8] = []

  mutating func add(_ value: UInt8) { bytes.append(value) }

  mutating func add(_ value: Bool) { bytes.append(value ? 1 : 0) }

  mutating func add(_ value: Int) {
    withUnsafeBytes(of: Int64(value).littleEndian) { bytes.append(contentsOf: $0) }
  }

  mutating func add(_ value: [UInt8]) {
    add(value.count)
    bytes.append(contentsOf: value)
  }

  mutating func add(_ text: String) { add(Array(text.utf8)) }

  mutating func add<Value>(_ value: Value?, _ write: (inout Self, Value) -> Void) {
    add(value != nil)
    if let value { write(&self, value) }
  }

  mutating func add<Value>(_ values: [Value], _ write: (inout Self, Value) -> Void) {
    add(values.count)
    for value in values { write(&self, value) }
  }

  mutating func add<Value: CaseIterable & Equatable>(choice value: Value) {
    // The value is always one of `allCases`.
    add(UInt8(Value.allCases.enumerated().first { $0.element == value }!.offset))
  }
}

/// Thrown if bytes are not a valid message.
struct MalformedMessage: Error {}

/// Reads a message from an untrusted process. Each read stays within the bytes, and each count within a limit.
struct MessageReader {
  private let bytes: [UInt8]
  private var place = 0

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  mutating func byte() throws(MalformedMessage) -> UInt8 {
    guard place < bytes.count else { throw MalformedMessage() }
    defer { place += 1 }
    return bytes[place]
  }

  mutating func bool() throws(MalformedMessage) -> Bool {
    switch try byte() {
    case 0: false
    case 1: true
    default: throw MalformedMessage()
    }
  }

  mutating func integer(in range: ClosedRange<Int> = .min ... .max) throws(MalformedMessage) -> Int
  {
    guard bytes.count - place >= 8 else { throw MalformedMessage() }
    let value = bytes.withUnsafeBytes { raw in
      Int(Int64(littleEndian: raw.loadUnaligned(fromByteOffset: place, as: Int64.self)))
    }
    place += 8
    guard range.contains(value) else { throw MalformedMessage() }
    return value
  }

  mutating func byteArray(max: Int) throws(MalformedMessage) -> [UInt8] {
    let count = try integer(in: 0...max)
    guard count <= bytes.count - place else { throw MalformedMessage() }
    defer { place += count }
    return Array(bytes[place..<place + count])
  }

  /// The text is shown to people and in logs, so only printable ASCII is kept.
  mutating func text(max: Int) throws(MalformedMessage) -> String {
    String(decoding: try byteArray(max: max).filter { (0x20...0x7E).contains($0) }, as: UTF8.self)
  }

  mutating func optional<Value>(
    _ read: (inout Self) throws(MalformedMessage) -> Value
  ) throws(MalformedMessage) -> Value? {
    try bool() ? try read(&self) : nil
  }

  mutating func list<Value>(
    most: Int, _ read: (inout Self) throws(MalformedMessage) -> Value
  ) throws(MalformedMessage) -> [Value] {
    var values: [Value] = []
    for _ in 0..<(try integer(in: 0...most)) { values.append(try read(&self)) }
    return values
  }

  mutating func choice<Value: CaseIterable>() throws(MalformedMessage) -> Value {
    let number = Int(try byte())
    guard let value = Value.allCases.dropFirst(number).first else { throw MalformedMessage() }
    return value
  }

  /// Throws if bytes are left.
  func expectEnd() throws(MalformedMessage) {
    guard place == bytes.count else { throw MalformedMessage() }
  }
}
