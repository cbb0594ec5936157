internal import CMicroHTTPD
import Glibc
import HTTPTypes

/// A request's line and header fields, well-formed (RFC 9112) and within the limits.
struct RequestHead {
  var method: HTTPRequest.Method
  var target: RequestTarget
  var fields: HTTPFields
  /// The value of Content-Length; 0 without content, nil if it is sent in chunks.
  var declaredLength: Int?

  /// Reads the head of the current request on `connection`.
  /// - Throws: The refusal, if the head is malformed or exceeds a limit.
  init(
    _ connection: OpaquePointer, _ method: UnsafePointer<CChar>, _ target: SentTarget,
    _ version: UnsafePointer<CChar>, _ limits: HTTPServer.Configuration
  ) throws(RefusalError) {
    guard target.bytes.count <= limits.maxTarget else {
      throw RefusalError(.targetTooLong(limit: limits.maxTarget))
    }
    guard CMicroHTTPD_headerSize(connection) <= limits.maxHeader else {
      throw RefusalError(.headerTooLarge(limit: limits.maxHeader))
    }
    guard let method = Self.method(method) else {
      throw RefusalError(malformed: "the method must be a token of less than 64 characters")
    }
    let read = target.bytes.withUnsafeBufferPointer { RequestTarget($0, method: method) }
    guard let target = read else {
      throw RefusalError(malformed: "the request target is not valid")
    }
    let reader = FieldReader(connection, limits)
    // The library accepts only `HTTP/1.` and a digit.
    let isOld = version[7] == CChar(bitPattern: UInt8(ascii: "0"))
    if let refusal = reader.refusal ?? reader.framingFault(isOld: isOld) {
      throw RefusalError(refusal)
    }
    if let length = reader.contentLength, length > limits.maxBody,
      !limits.takesStreams(target.path)
    {
      throw RefusalError(.bodyTooLarge(limit: limits.maxBody))
    }
    self.method = method
    self.target = target
    fields = reader.fields
    declaredLength = reader.isChunked ? nil : reader.contentLength ?? 0
    if let authority = target.authority { fields[FieldName.host] = authority }
  }

  private static func method(_ text: UnsafePointer<CChar>) -> HTTPRequest.Method? {
    let bytes = UnsafeRawBufferPointer(start: text, count: strlen(text))
    guard !bytes.isEmpty, bytes.count < 64, bytes.allSatisfy({ $0.isTokenCharacter }) else {
      return nil
    }
    let text = String(decoding: bytes, as: UTF8.self)
    switch text {
    case "GET": return .get
    case "POST": return .post
    default: return HTTPRequest.Method(text)
    }
  }
}

/// Throws a refusal while a head is read.
struct RefusalError: Error {
  let refusal: Refusal

  init(_ refusal: Refusal) { self.refusal = refusal }

  init(malformed detail: String) { refusal = .malformed(detail: detail) }
}

/// The target of a request line in one of its four forms (RFC 9112, section 3.2).
struct RequestTarget {
  /// The path as sent.
  let path: String
  /// The query as sent.
  let query: String?
  /// The authority of an absolute-form target. It overrides the Host field.
  let authority: String?

  /// Parses a target.
  /// - Returns: Nil if the target has a byte or a form that the method does not allow.
  init?(_ bytes: UnsafeBufferPointer<UInt8>, method: HTTPRequest.Method) {
    guard let first = bytes.first, bytes.allSatisfy({ $0.isTargetCharacter }) else { return nil }
    if first == UInt8(ascii: "/") {
      self.init(Slice(base: bytes, bounds: bytes.indices), authority: nil)
    } else if method == .connect {
      guard bytes.allSatisfy({ $0.isHostCharacter }) else { return nil }
      self.init(path: String(decoding: bytes, as: UTF8.self))
    } else if bytes.count == 1 && first == UInt8(ascii: "*") && method == .options {
      self.init(path: "*")
    } else {
      self.init(absolute: bytes)
    }
  }

  private init(path: String) {
    (self.path, query, authority) = (path, nil, nil)
  }

  private init?(absolute bytes: UnsafeBufferPointer<UInt8>) {
    let start = ["http://", "https://"].lazy.compactMap { scheme -> Int? in
      let prefix = String(decoding: bytes.prefix(scheme.utf8.count), as: UTF8.self)
      return prefix.lowercased() == scheme ? scheme.utf8.count : nil
    }.first
    guard let start else { return nil }
    let marks = [UInt8(ascii: "/"), UInt8(ascii: "?")]
    let end = bytes[start...].firstIndex(where: marks.contains) ?? bytes.endIndex
    let host = bytes[start..<end]
    guard !host.isEmpty, host.allSatisfy({ $0.isHostCharacter }) else { return nil }
    self.init(bytes[end...], authority: String(decoding: host, as: UTF8.self))
  }

  private init(_ rest: Slice<UnsafeBufferPointer<UInt8>>, authority: String?) {
    let mark = rest.firstIndex(of: UInt8(ascii: "?"))
    let path = rest[..<(mark ?? rest.endIndex)]
    self.path =
      path.isEmpty ? "/" : String(decoding: UnsafeBufferPointer(rebasing: path), as: UTF8.self)
    query = mark.map {
      String(decoding: UnsafeBufferPointer(rebasing: rest[($0 + 1)...]), as: UTF8.self)
    }
    self.authority = authority
  }
}

/// Reads the header fields that libmicrohttpd found. Checks their grammar (RFC 9110, section 5) and what they
/// say about the framing of the message (RFC 9112, section 6).
struct FieldReader {
  private let limits: HTTPServer.Configuration
  private(set) var fields = HTTPFields()
  private(set) var refusal: Refusal?
  private(set) var contentLength: Int?
  private(set) var isChunked = false
  private var hasHost = false
  private var hasExpectation = false
  private var count = 0

  /// Reads the fields of the current request on `connection`.
  init(_ connection: OpaquePointer, _ limits: HTTPServer.Configuration) {
    self.limits = limits
    withUnsafeMutablePointer(to: &self) { pointer in
      _ = MHD_get_connection_values_n(connection, .HEADER_KIND, readField, pointer)
    }
  }

  /// Returns why a combination of well-formed fields is refused (RFC 9112, sections 3.2 and 6.1): another
  /// reader could frame the message differently.
  ///
  /// - Parameter isOld: Whether the request uses HTTP/1.0.
  func framingFault(isOld: Bool) -> Refusal? {
    if isChunked && contentLength != nil {
      return .malformed(detail: "Transfer-Encoding and Content-Length exclude each other")
    }
    if isChunked && isOld {
      return .malformed(detail: "Transfer-Encoding is not allowed in HTTP/1.0")
    }
    if !isOld && !hasHost { return .malformed(detail: "the Host field is missing") }
    return nil
  }

  /// Checks and adds one field. False stops the reading.
  fileprivate mutating func addField(
    _ key: UnsafePointer<CChar>, _ keyCount: Int, _ value: UnsafePointer<CChar>?, _ valueCount: Int
  ) -> Bool {
    count += 1
    guard count <= limits.maxFields else { return refuse(.headerTooLarge(limit: limits.maxFields)) }
    guard let value else { return refuse("a field has no value") }
    let name = key.withMemoryRebound(to: UInt8.self, capacity: keyCount) {
      UnsafeBufferPointer(start: $0, count: keyCount)
    }
    let sent = value.withMemoryRebound(to: UInt8.self, capacity: valueCount) {
      UnsafeBufferPointer(start: $0, count: valueCount)
    }
    // Releases before 1.0 do not remove blanks after a value.
    var text = sent
    while let last = text.last, last == 0x20 || last == 0x09 {
      text = .init(rebasing: text.dropLast())
    }
    guard text.allSatisfy({ $0.isFieldCharacter }) else {
      return refuse("a field value contains a control character")
    }
    if let known = FieldName.known(name) {
      fields.append(HTTPField(name: known.name, value: text))
      return checkFraming(known.meaning, text, isTrimmed: text.count < valueCount)
    }
    guard !name.isEmpty, name.allSatisfy({ $0.isTokenCharacter }),
      let name = HTTPField.Name(String(decoding: name, as: UTF8.self))
    else { return refuse("a field name is not a token") }
    fields.append(HTTPField(name: name, value: text))
    return true
  }

  private mutating func checkFraming(
    _ meaning: FieldName.Meaning, _ text: UnsafeBufferPointer<UInt8>, isTrimmed: Bool
  ) -> Bool {
    switch meaning {
    case .other: return true
    case .host:
      guard !hasHost else { return refuse("there is more than one Host field") }
      guard text.allSatisfy({ $0.isHostCharacter }) else {
        return refuse("Host must be a host with an optional port")
      }
      hasHost = true
    case .contentLength:
      guard contentLength == nil else {
        return refuse("there is more than one Content-Length field")
      }
      guard !text.isEmpty, text.allSatisfy({ $0 >= 48 && $0 <= 57 }) else {
        return refuse("Content-Length is not a number")
      }
      guard let length = Int(String(decoding: text, as: UTF8.self)) else {
        return refuse(.bodyTooLarge(limit: limits.maxBody))
      }
      contentLength = length
    case .transferEncoding:
      guard !isChunked else { return refuse("there is more than one Transfer-Encoding field") }
      // Releases before 1.0 do not recognize the coding if a blank follows it, and would wait forever.
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
  return reader.pointee.addField(key, keyCount, value, valueCount) ? .YES : .NO
}

/// Common field names. Looking one up allocates no memory.
struct FieldName: Sendable {
  /// How the field affects the framing of the message.
  enum Meaning: Sendable { case other, host, contentLength, transferEncoding, expect }

  let name: HTTPField.Name
  let meaning: Meaning
  private let lowercased: [UInt8]

  private init(_ name: HTTPField.Name, _ meaning: Meaning = .other) {
    self.name = name
    self.meaning = meaning
    lowercased = Array(name.canonicalName.utf8)
  }

  /// Returns the known name that equals these bytes, ignoring case.
  static func known(_ bytes: UnsafeBufferPointer<UInt8>) -> FieldName? {
    guard bytes.count < byLength.count else { return nil }
    for candidate in byLength[bytes.count] where candidate.matches(bytes) { return candidate }
    return nil
  }

  private func matches(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
    lowercased.withUnsafeBufferPointer { own in
      for index in 0..<own.count {
        let byte = bytes[index]
        let isUpper = byte &- 65 < 26
        if own[index] != (isUpper ? byte | 0x20 : byte) { return false }
      }
      return true
    }
  }

  static let host = HTTPField.Name("Host")!

  private static let byLength: [[FieldName]] = {
    let all =
      [
        FieldName(host, .host), FieldName(.contentLength, .contentLength),
        FieldName(.transferEncoding, .transferEncoding), FieldName(.expect, .expect),
      ]
      + [
        .accept, .acceptEncoding, .acceptLanguage, .authorization, .cacheControl, .connection,
        .contentType, .cookie, .ifMatch, .ifModifiedSince, .ifNoneMatch, .ifRange,
        .ifUnmodifiedSince, .origin, .range, .referer, .te, .userAgent, .via,
      ].map { FieldName($0) }
      + [
        "Dnt", "Forwarded", "Idempotency-Key", "Last-Event-Id", "Pragma", "Prefer", "Priority",
        "Save-Data",
        "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Traceparent",
        "Upgrade-Insecure-Requests",
        "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-Ip", "X-Request-Id",
      ].map { FieldName(HTTPField.Name($0)!) }
    var table: [[FieldName]] = []
    for known in all {
      while table.count <= known.lowercased.count { table.append([]) }
      table[known.lowercased.count].append(known)
    }
    return table
  }()
}

/// The characters that HTTP's grammar allows at each place.
extension UInt8 {
  /// Whether the byte is a `tchar`, the characters of methods and field names (RFC 9110, section 5.6.2).
  package var isTokenCharacter: Bool {
    self < 128 && (self < 64 ? tokenLow >> self : tokenHigh >> (self - 64)) & 1 == 1
  }

  /// Whether the byte may occur in a field value: visible, space, tab or beyond ASCII (RFC 9110, section
  /// 5.5).
  var isFieldCharacter: Bool { (self >= 0x20 && self != 0x7f) || self == 0x09 }

  /// Whether the byte may occur in a request target. More lenient than RFC 3986, because clients are; but
  /// blanks, controls, `#` and bytes beyond ASCII are refused.
  var isTargetCharacter: Bool { self > 0x20 && self < 0x7f && self != UInt8(ascii: "#") }

  /// Whether the byte may occur in `host [":" port]` (RFC 3986, section 3.2).
  var isHostCharacter: Bool {
    self < 128 && (self < 64 ? hostLow >> self : hostHigh >> (self - 64)) & 1 == 1
  }
}

private let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
private let tokenLow = mask("!#$%&'*+-.0123456789", from: 0)
private let tokenHigh = mask("^_`|~" + letters, from: 64)
private let hostLow = mask("-.!$&'()*+,;=%:0123456789", from: 0)
private let hostHigh = mask("_~[]" + letters, from: 64)

private func mask(_ characters: String, from base: UInt8) -> UInt64 {
  characters.utf8.reduce(0) { $0 | 1 << UInt64($1 - base) }
}
