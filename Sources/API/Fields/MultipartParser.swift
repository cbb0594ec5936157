internal import HTTP

/// Parses a `multipart/form-data` body (RFC 7578) while it arrives. Nested parts and transfer encodings are refused.
///
/// Memory is bounded: the parser buffers at most one header section, or as many bytes before the first delimiter, or
/// one piece of content.
struct MultipartParser {
  /// The next element of the body.
  enum Event: Equatable {
    case part(MultipartPart)
    case content([UInt8])
    case endOfPart
  }

  /// The maximum size of a part's header section, in bytes.
  static let maxHeader = 4096
  /// The maximum number of bytes before the first delimiter (RFC 2046 section 5.1.1).
  static let maxPreamble = 4096

  private enum State {
    case start, afterDelimiter, padding, header, contentStart, content, epilogue
  }
  private var state = State.start
  // The first delimiter has no line break before it. This line break lets it match like the others.
  private var buffer: [UInt8] = [0x0D, 0x0A]
  /// The index in the buffer of the first byte that is not parsed yet.
  private var start = 0
  private let delimiter: [UInt8]

  /// - Parameter type: the body's media type. Nil if it has no valid boundary (RFC 2046 section 5.1.1).
  init?(_ type: MediaType) {
    guard let boundary = type.parameter("boundary"), 1...70 ~= boundary.utf8.count,
      boundary.utf8.last != 0x20, boundary.utf8.allSatisfy(Self.isBoundaryByte)
    else { return nil }
    delimiter = Array("\r\n--\(boundary)".utf8)
  }

  /// Appends bytes of the body. ``next()`` returns the elements.
  mutating func append(_ bytes: [UInt8]) {
    guard state != .epilogue else { return }
    // Removes the parsed bytes here, once for all elements in them. Few bytes are left to move.
    buffer.removeFirst(start)
    start = 0
    buffer += bytes
  }

  /// Returns the next element; nil if it needs more bytes.
  mutating func next() throws(MultipartError) -> Event? {
    while true {
      switch state {
      case .start:
        guard try findFirstDelimiter() else { return nil }
      case .afterDelimiter:
        guard parseDelimiterEnd() else { return nil }
      case .padding:
        guard try parseDelimiterLine() else { return nil }
      case .header:
        return try readHeader().map(Event.part)
      case .contentStart:
        guard unread.count >= delimiter.count else { return nil }
        startContent()
      case .content:
        return readContent()
      case .epilogue:
        return nil
      }
    }
  }

  /// Whether the closing delimiter has arrived.
  var isComplete: Bool { state == .epilogue }

  private mutating func findFirstDelimiter() throws(MultipartError) -> Bool {
    // The count includes the artificial line break.
    guard let count = offset(of: delimiter), count <= Self.maxPreamble + 2 else {
      guard unread.count < Self.maxPreamble + 2 + delimiter.count else {
        throw .malformed(reason: "it does not start with its boundary")
      }
      return false
    }
    consume(count + delimiter.count, then: .afterDelimiter)
    return true
  }

  private mutating func parseDelimiterEnd() -> Bool {
    guard unread.count >= 2 else { return false }
    if buffer[start] == UInt8(ascii: "-"), buffer[start + 1] == UInt8(ascii: "-") {
      buffer = []
      start = 0
      state = .epilogue
    } else {
      state = .padding
    }
    return true
  }

  /// Gateways may insert white space after a delimiter (RFC 2046 section 5.1.1).
  private mutating func parseDelimiterLine() throws(MultipartError) -> Bool {
    while let byte = unread.first, byte == 0x20 || byte == 0x09 { start += 1 }
    guard unread.count >= 2 else { return false }
    guard buffer[start] == 0x0D, buffer[start + 1] == 0x0A else {
      throw .malformed(reason: "a boundary is followed by other text on its line")
    }
    consume(2, then: .header)
    return true
  }

  private mutating func readHeader() throws(MultipartError) -> MultipartPart? {
    guard let count = offset(of: [0x0D, 0x0A, 0x0D, 0x0A]), count <= Self.maxHeader else {
      guard unread.count <= Self.maxHeader else { throw .headerTooLarge(limit: Self.maxHeader) }
      return nil
    }
    let part = try MultipartPart(header: unread.prefix(count))
    // The line break of the blank line stays in the buffer. If the part is empty, it belongs to the next delimiter.
    consume(count + 2, then: .contentStart)
    return part
  }

  private mutating func startContent() {
    consume(unread.starts(with: delimiter) ? 0 : 2, then: .content)
  }

  private mutating func readContent() -> Event? {
    if let count = offset(of: delimiter) {
      guard count == 0 else { return contentEvent(count) }
      consume(delimiter.count, then: .afterDelimiter)
      return .endOfPart
    }
    // The last bytes may be the start of a delimiter.
    let certain = unread.count - delimiter.count + 1
    return certain > 0 ? contentEvent(certain) : nil
  }

  private mutating func contentEvent(_ count: Int) -> Event {
    let content = Array(unread.prefix(count))
    start += count
    return .content(content)
  }

  private mutating func consume(_ count: Int, then next: State) {
    start += count
    state = next
  }

  private var unread: ArraySlice<UInt8> { buffer[start...] }

  /// The number of bytes before the pattern, which starts with a carriage return; nil if it is not found.
  private func offset(of pattern: [UInt8]) -> Int? {
    var rest = unread
    while let at = rest.firstIndex(of: 0x0D), at + pattern.count <= buffer.count {
      if buffer[at...].starts(with: pattern) { return at - start }
      rest = buffer[(at + 1)...]
    }
    return nil
  }

  private static func isBoundaryByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"):
      true
    default: "'()+_,-./:=? ".utf8.contains(byte)
    }
  }
}

/// A part's header section.
struct MultipartPart: Equatable {
  /// The form field's name.
  let name: String
  /// Its `Content-Type`; nil if it has none.
  let type: String?

  /// - Parameter header: without the final blank line.
  init(header: ArraySlice<UInt8>) throws(MultipartError) {
    guard let text = String(validating: header, as: UTF8.self) else {
      throw .malformed(reason: "a part's header is not UTF-8")
    }
    var fields: [String: String] = [:]
    for line in text.utf8.split(separator: 0x0A) {
      let line = line.last == 0x0D ? line.dropLast() : line
      guard let colon = line.firstIndex(of: UInt8(ascii: ":")),
        line[..<colon].allSatisfy({ $0.isTokenCharacter })
      else { throw .malformed(reason: "a part's header has a line that is not a field") }
      let name = Substring(line[..<colon]).lowercased()
      let value = Substring(line[line.index(after: colon)...]).drop { $0 == " " || $0 == "\t" }
      guard fields.updateValue(String(value), forKey: name) == nil else {
        throw .malformed(reason: "a part's header has a duplicate field")
      }
    }
    guard let name = Self.name(fields["content-disposition"]) else {
      throw .malformed(reason: "a part has no Content-Disposition: form-data with a name")
    }
    let encoding = fields["content-transfer-encoding"]?.lowercased() ?? "binary"
    guard ["binary", "8bit", "7bit"].contains(encoding) else {
      throw .malformed(reason: "a part has a Content-Transfer-Encoding that is not supported")
    }
    self.name = name
    type = fields["content-type"]
  }

  private static func name(_ disposition: String?) -> String? {
    guard var rest = disposition?.utf8[...], MediaType.token(&rest).lowercased() == "form-data"
    else { return nil }
    return MediaType.parameters(&rest)?.first { $0.name == "name" }?.value
  }
}

/// Why a form was refused.
enum MultipartError: Error, Equatable {
  /// The form violates RFC 7578 or uses a part of it that is not supported.
  case malformed(reason: String)
  /// A part's header section is longer than `limit` bytes.
  case headerTooLarge(limit: Int)
}
