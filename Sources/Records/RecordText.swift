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
