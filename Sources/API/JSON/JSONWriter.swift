/// Writes JSON (RFC 8259) with the members in the order of the calls. About ten times faster than `JSONEncoder`, which
/// also does not keep the order.
struct JSONWriter {
  /// The text written so far, UTF-8.
  private(set) var bytes: [UInt8] = []
  private var needsComma = false

  /// - Parameter capacity: the bytes to reserve.
  init(capacity: Int = 1024) { bytes.reserveCapacity(capacity) }

  mutating func object(_ members: (inout JSONWriter) -> Void) {
    enclose(UInt8(ascii: "{"), UInt8(ascii: "}"), members)
  }

  mutating func array<Element>(
    _ elements: some Sequence<Element>, _ write: (inout JSONWriter, Element) -> Void
  ) {
    enclose(UInt8(ascii: "["), UInt8(ascii: "]")) {
      for element in elements { write(&$0, element) }
    }
  }

  /// Writes a member's name. The next call writes its value.
  mutating func key(_ name: StaticString) {
    separate()
    bytes.append(UInt8(ascii: "\""))
    name.withUTF8Buffer { bytes.append(contentsOf: $0) }
    bytes.append(UInt8(ascii: "\""))
    bytes.append(UInt8(ascii: ":"))
    needsComma = false
  }

  mutating func null() { raw("null") }
  mutating func bool(_ value: Bool) { raw(value ? "true" : "false") }
  mutating func int(_ value: Int) { raw(value.description) }

  /// - Parameter value: written as null if it is not finite.
  mutating func double(_ value: Double) { value.isFinite ? raw(value.description) : null() }

  mutating func string(_ value: String) {
    separate()
    bytes.append(UInt8(ascii: "\""))
    for byte in value.utf8 {
      switch byte {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"):
        bytes.append(UInt8(ascii: "\\"))
        bytes.append(byte)
      case 0..<0x20, 0x7F: escape(byte)
      default: bytes.append(byte)
      }
    }
    bytes.append(UInt8(ascii: "\""))
  }

  /// Writes a complete value that is already JSON.
  mutating func value(_ json: [UInt8]) {
    separate()
    bytes.append(contentsOf: json)
  }

  private mutating func raw(_ text: String) {
    separate()
    bytes.append(contentsOf: text.utf8)
  }

  private mutating func escape(_ byte: UInt8) {
    let digits = Array("0123456789abcdef".utf8)
    bytes.append(contentsOf: "\\u00".utf8)
    bytes.append(digits[Int(byte >> 4)])
    bytes.append(digits[Int(byte & 15)])
  }

  private mutating func separate() {
    if needsComma { bytes.append(UInt8(ascii: ",")) }
    needsComma = true
  }

  private mutating func enclose(
    _ open: UInt8, _ close: UInt8, _ content: (inout JSONWriter) -> Void
  ) {
    separate()
    bytes.append(open)
    needsComma = false
    content(&self)
    bytes.append(close)
    needsComma = true
  }
}

extension JSONWriter {
  mutating func member(_ name: StaticString, _ value: String?) {
    key(name)
    if let value { string(value) } else { null() }
  }

  mutating func member(_ name: StaticString, _ value: Int?) {
    key(name)
    if let value { int(value) } else { null() }
  }

  mutating func member(_ name: StaticString, _ value: Double?) {
    key(name)
    if let value { double(value) } else { null() }
  }

  /// - Parameter name: must contain nothing that JSON escapes.
  mutating func member(_ name: String, _ value: Int) {
    string(name)
    bytes.append(UInt8(ascii: ":"))
    needsComma = false
    int(value)
  }

  mutating func member(_ name: StaticString, _ value: Bool) {
    key(name)
    bool(value)
  }
}
