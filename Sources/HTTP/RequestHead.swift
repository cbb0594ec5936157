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
