/// A message being written: integers little-endian, texts and lists behind their counts.
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
    // A case is among them.
    add(UInt8(Value.allCases.enumerated().first { $0.element == value }!.offset))
  }
}

/// What is not a message of ours.
struct MalformedMessage: Error {}

/// A message being read, of which nothing is believed: each read is within the bytes, each count within a bound.
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

  mutating func list(most: Int) throws(MalformedMessage) -> [UInt8] {
    let count = try integer(in: 0...most)
    guard count <= bytes.count - place else { throw MalformedMessage() }
    defer { place += count }
    return Array(bytes[place..<place + count])
  }

  /// It is shown to people, in logs too: what isn't printable ASCII is left out.
  mutating func text(most: Int) throws(MalformedMessage) -> String {
    String(decoding: try list(most: most).filter { (0x20...0x7E).contains($0) }, as: UTF8.self)
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

  /// Nothing may follow.
  func end() throws(MalformedMessage) {
    guard place == bytes.count else { throw MalformedMessage() }
  }
}
