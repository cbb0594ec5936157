internal import CMicroHTTPD
import HTTPTypes

/// A request's line and header fields, found well-formed (RFC 9112) and within the limits.
struct RequestHead {
  var method: HTTPRequest.Method
  var target: RequestTarget
  var fields: HTTPFields
  /// What Content-Length says, 0 without content, nil if it comes in chunks.
  var declaredLength: Int?

  /// Where libmicrohttpd left the pieces of the request line. All point into one buffer.
  struct Line {
    let method: UnsafePointer<CChar>
    let target: UnsafeBufferPointer<UInt8>
    let version: UnsafePointer<CChar>
  }

  /// Reads the head of the request that waits on `connection`.
  /// - Throws: the refusal it deserves.
  init(
    _ connection: OpaquePointer, _ line: Line, _ limits: HTTPServer.Configuration
  ) throws(RefusalError) {
    guard line.target.count <= limits.maxTarget else {
      throw RefusalError(.targetTooLong(limit: limits.maxTarget))
    }
    let size = CMicroHTTPD_headerSize(connection)
    guard size <= limits.maxHeader else {
      throw RefusalError(.headerTooLarge(limit: limits.maxHeader))
    }
    guard let method = Self.method(line) else {
      throw RefusalError(malformed: "the request line is not method, target, version")
    }
    guard let target = RequestTarget(line.target, method: method) else {
      throw RefusalError(malformed: "the request target is not one")
    }
    let reader = FieldReader.read(
      connection, from: line.version + 10, to: line.method + size, limits: limits)
    if let refusal = reader.refusal { throw RefusalError(refusal) }
    self.method = method
    self.target = target
    fields = reader.fields
    declaredLength = reader.isChunked ? nil : reader.contentLength ?? 0
    let isOld = line.version[7] == CChar(bitPattern: UInt8(ascii: "0"))
    try checkFraming(reader, isOld: isOld, limits)
    if let authority = target.authority { fields[FieldName.host] = authority }
  }

  private func checkFraming(
    _ reader: FieldReader, isOld: Bool, _ limits: HTTPServer.Configuration
  ) throws(RefusalError) {
    // RFC 9112, sections 3.2 and 6.1: what two readers could frame differently is refused.
    guard isOld || reader.hasHost else {
      throw RefusalError(malformed: "there is no Host field")
    }
    guard !(reader.isChunked && reader.contentLength != nil) else {
      throw RefusalError(malformed: "there are both Transfer-Encoding and Content-Length")
    }
    guard !(reader.isChunked && isOld) else {
      throw RefusalError(malformed: "HTTP/1.0 has no Transfer-Encoding")
    }
    if let length = reader.contentLength, length > limits.maxBody,
      !limits.takesStreams(target.path)
    {
      throw RefusalError(.bodyTooLarge(limit: limits.maxBody))
    }
  }

  /// The method, if the line is its three parts with one space between.
  private static func method(_ line: Line) -> HTTPRequest.Method? {
    guard let target = line.target.baseAddress else { return nil }
    let start = UnsafeRawPointer(line.method)
    let length = UnsafeRawPointer(target) - start - 1
    guard length > 0, length < 64,
      UnsafeRawPointer(line.version) - start == length + 1 + line.target.count + 1,
      line.version[8] == 0, line.version[9] == 0
    else { return nil }
    let bytes = UnsafeRawBufferPointer(start: start, count: length)
    guard bytes.allSatisfy({ $0.isTokenCharacter }),
      start.load(fromByteOffset: length, as: UInt8.self) == 0
    else { return nil }
    let text = String(decoding: bytes, as: UTF8.self)
    switch text {
    case "GET": return .get
    case "POST": return .post
    default: return HTTPRequest.Method(text)
    }
  }
}

/// Carries a refusal out of the reading.
struct RefusalError: Error {
  let refusal: Refusal

  init(_ refusal: Refusal) { self.refusal = refusal }

  init(malformed detail: String) { refusal = .malformed(detail: detail) }
}
