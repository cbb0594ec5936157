internal import CMicroHTTPD
import HTTPTypes

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
