public import HTTPTypes

/// One request whose header section is complete and was found well-formed (RFC 9112).
public struct Request: Sendable {
  /// The method.
  public var method: HTTPRequest.Method
  /// The target's path as sent: nothing decoded, nothing removed.
  public var path: String
  /// The target's query as sent, without its question mark; nil without one.
  public var query: String?
  /// The header fields.
  public var fields: HTTPFields
  /// The client's address, without its port.
  public var remoteAddress: String
  /// The content, as it arrives.
  public var body: RequestBody

  /// A request.
  public init(
    method: HTTPRequest.Method, path: String, query: String? = nil, fields: HTTPFields = [:],
    remoteAddress: String = "127.0.0.1", body: RequestBody = .empty
  ) {
    self.method = method
    self.path = path
    self.query = query
    self.fields = fields
    self.remoteAddress = remoteAddress
    self.body = body
  }
}

/// A request's content, taken in order by one task. What is not taken holds the client back.
public struct RequestBody: Sendable {
  /// What `Content-Length` said; 0 without content, nil when it is sent in chunks.
  public let declaredLength: Int?
  private let take: @Sendable () async throws(BodyError) -> [UInt8]?

  /// A body whose bytes come from `take`, nil after the last.
  public init(
    declaredLength: Int?, take: @escaping @Sendable () async throws(BodyError) -> [UInt8]?
  ) {
    self.declaredLength = declaredLength
    self.take = take
  }

  /// No content.
  public static let empty = RequestBody(declaredLength: 0) { () throws(BodyError) in nil }

  /// Waits for bytes and takes all that have arrived; nil after the last.
  public func next() async throws(BodyError) -> [UInt8]? { try await take() }
}

/// Why a request's content did not come whole.
public enum BodyError: Error, Sendable, Equatable {
  /// More bytes than allowed.
  case tooLarge(limit: Int)
  /// The client went away or was cut for being slow.
  case disconnected
}
