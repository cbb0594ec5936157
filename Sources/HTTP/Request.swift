package import HTTPTypes

/// One request whose header section is complete and well-formed (RFC 9112).
package struct Request: Sendable {
  package var method: HTTPRequest.Method
  /// The target's path as sent: nothing is decoded or removed.
  package var path: String
  /// The target's query as sent, without its question mark. Nil if there is no question mark.
  package var query: String?
  package var fields: HTTPFields
  /// The client's address without its port.
  package var remoteAddress: String
  /// The content, as it arrives.
  package var body: RequestBody

  package init(
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

/// A request's content. One task reads it in order. While it does not read, the client cannot send more.
package struct RequestBody: Sendable {
  /// The value of `Content-Length`; 0 without content, nil if it is sent in chunks.
  package let declaredLength: Int?
  private let take: @Sendable () async throws(BodyError) -> [UInt8]?

  /// A body whose bytes `take` returns; nil after the last.
  package init(
    declaredLength: Int?, take: @escaping @Sendable () async throws(BodyError) -> [UInt8]?
  ) {
    self.declaredLength = declaredLength
    self.take = take
  }

  /// No content.
  package static let empty = RequestBody(declaredLength: 0) { () throws(BodyError) in nil }

  /// Waits for bytes and returns all that have arrived; nil after the last.
  package func next() async throws(BodyError) -> [UInt8]? { try await take() }
}

/// Why a request's content is incomplete.
package enum BodyError: Error, Sendable, Equatable {
  /// The content is larger than allowed.
  case tooLarge(limit: Int)
  /// The client disconnected, or was disconnected for being too slow.
  case disconnected
}
