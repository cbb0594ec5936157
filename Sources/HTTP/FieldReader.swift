internal import CMicroHTTPD
import HTTPTypes

/// Reads the header fields that libmicrohttpd found, and holds its reading against the bytes.
///
/// libmicrohttpd is lenient: it takes a bare LF for a line's end, cuts values at a NUL, adds a
/// folded line to the field's *name*, and looks at the first Content-Length only. It parses in
/// place, writing a NUL over each delimiter, so a well-formed section is a chain: name, NUL,
/// blanks, value, NUL (CR), NUL (LF), next name. A field that does not stand where the one before
/// ended was not what the client sent.
struct FieldReader {
  private let limits: HTTPServer.Configuration
  private var next: UnsafePointer<CChar>
  private(set) var fields = HTTPFields()
  private(set) var refusal: Refusal?
  private(set) var hasHost = false
  private(set) var contentLength: Int?
  private(set) var isChunked = false
  private var hasExpectation = false
  private var count = 0

  private init(from start: UnsafePointer<CChar>, limits: HTTPServer.Configuration) {
    next = start
    self.limits = limits
  }

  /// Reads the fields of `connection`, whose first line begins at `start` and whose header section
  /// ends at `end`.
  static func read(
    _ connection: OpaquePointer, from start: UnsafePointer<CChar>, to end: UnsafePointer<CChar>,
    limits: HTTPServer.Configuration
  ) -> FieldReader {
    var reader = FieldReader(from: start, limits: limits)
    withUnsafeMutablePointer(to: &reader) { pointer in
      _ = MHD_get_connection_values_n(connection, .HEADER_KIND, readField, pointer)
    }
    if reader.refusal == nil && reader.next + 2 != end {
      reader.refusal = .malformed(detail: "the header section is not ended by CRLF CRLF")
    }
    return reader
  }

  /// Takes one field; false ends the reading.
  fileprivate mutating func take(
    _ key: UnsafePointer<CChar>, _ keyCount: Int, _ value: UnsafePointer<CChar>?, _ valueCount: Int
  ) -> Bool {
    count += 1
    guard count <= limits.maxFields else { return refuse(.headerTooLarge(limit: limits.maxFields)) }
    guard let value, stands(key, keyCount, value, valueCount) else {
      return refuse("a field line is folded, not ended by CRLF, or holds a NUL")
    }
    let name = key.withMemoryRebound(to: UInt8.self, capacity: keyCount) {
      UnsafeBufferPointer(start: $0, count: keyCount)
    }
    var text = value.withMemoryRebound(to: UInt8.self, capacity: valueCount) {
      UnsafeBufferPointer(start: $0, count: valueCount)
    }
    while let last = text.last, last == 0x20 || last == 0x09 {
      text = .init(rebasing: text.dropLast())
    }
    guard text.allSatisfy({ $0.isFieldCharacter }) else {
      return refuse("a field value holds a control character")
    }
    if let known = FieldName.known(name) {
      fields.append(HTTPField(name: known.name, value: text))
      return known.meaning == .other
        || judge(known.meaning, text, isTrimmed: text.count < valueCount)
    }
    guard !name.isEmpty, name.allSatisfy({ $0.isTokenCharacter }),
      let name = HTTPField.Name(String(decoding: name, as: UTF8.self))
    else { return refuse("a field name is not a token") }
    fields.append(HTTPField(name: name, value: text))
    return true
  }

  /// Whether the field stands in the chain, which then goes on behind it.
  private mutating func stands(
    _ key: UnsafePointer<CChar>, _ keyCount: Int, _ value: UnsafePointer<CChar>, _ valueCount: Int
  ) -> Bool {
    guard key == next, value > key + keyCount, value[valueCount] == 0, value[valueCount + 1] == 0
    else { return false }
    var blank = key + keyCount + 1
    while blank < value {
      guard blank.pointee == 0x20 || blank.pointee == 0x09 else { return false }
      blank += 1
    }
    next = value + valueCount + 2
    return blank == value
  }

  private mutating func judge(
    _ meaning: FieldName.Meaning, _ text: UnsafeBufferPointer<UInt8>, isTrimmed: Bool
  ) -> Bool {
    switch meaning {
    case .other: return true
    case .host:
      guard !hasHost else { return refuse("there are two Host fields") }
      guard text.allSatisfy({ $0.isHostCharacter }) else { return refuse("Host is not host:port") }
      hasHost = true
    case .contentLength:
      guard contentLength == nil else { return refuse("there are two Content-Length fields") }
      guard text.allSatisfy({ $0 >= 48 && $0 <= 57 }),
        let length = Int(String(decoding: text, as: UTF8.self))
      else { return refuse("Content-Length is not a number") }
      contentLength = length
    case .transferEncoding:
      guard !isChunked else { return refuse("there are two Transfer-Encoding fields") }
      // A blank behind it would be a coding that libmicrohttpd does not know: it would wait for
      // ever.
      guard !isTrimmed, String(decoding: text, as: UTF8.self).lowercased() == "chunked" else {
        return refuse(.unknownTransferCoding)
      }
      isChunked = true
    case .expect:
      guard !hasExpectation, String(decoding: text, as: UTF8.self).lowercased() == "100-continue"
      else { return refuse(.unknownExpectation) }
      hasExpectation = true
    }
    return true
  }

  private mutating func refuse(_ detail: String) -> Bool { refuse(.malformed(detail: detail)) }

  private mutating func refuse(_ refusal: Refusal) -> Bool {
    self.refusal = refusal
    return false
  }
}

private func readField(
  context: UnsafeMutableRawPointer?, kind: MHD_ValueKind, key: UnsafePointer<CChar>?, keyCount: Int,
  value: UnsafePointer<CChar>?, valueCount: Int
) -> MHD_Result {
  guard let reader = context?.assumingMemoryBound(to: FieldReader.self), let key else { return .NO }
  return reader.pointee.take(key, keyCount, value, valueCount) ? .YES : .NO
}
