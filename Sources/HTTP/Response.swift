package import HTTPTypes

/// A response. The server adds `Content-Length`, `Date` and `Connection`.
package struct Response: Sendable {
  package var status: HTTPResponse.Status
  package var fields: HTTPFields
  /// The content. For HEAD and 304 only its length is sent.
  package var content: Content
  /// An object that is released once the response was sent or the client disconnected.
  package var retained: (any Sendable & AnyObject)?

  package init(
    status: HTTPResponse.Status, fields: HTTPFields = [:], content: Content = .none,
    keeping: (any Sendable & AnyObject)? = nil
  ) {
    self.status = status
    self.fields = fields
    self.content = content
    self.retained = keeping
  }

  /// The content after the header section.
  package enum Content: Sendable {
    /// No content.
    case none
    /// Bytes in memory.
    case bytes([UInt8])
    /// A part of an open file, sent by the kernel. `owner` keeps the descriptor open until the part was sent.
    case file(descriptor: Int32, offset: Int, count: Int, owner: any Sendable & AnyObject)
    /// Content that is produced over time, sent in chunks (RFC 9112 section 7.1). It has no length, and a
    /// timeout only for a client that does not read. It ends when the client closes or half-closes its side,
    /// and when the server stops.
    case stream(any ContentStream)
    /// Content whose length is announced but which is not sent, for 304 and responses to HEAD.
    /// `Content-Length` is `count`, as in the 200 response to GET (RFC 9110 section 8.6). Nil: the length is
    /// unknown, and there is no `Content-Length`.
    case omitted(count: Int?)
  }
}

/// An open file that the kernel can send from. It is closed when the last reference is released.
package protocol SendableFile: AnyObject, Sendable {
  var descriptor: Int32 { get }
}

/// Responds to requests. A handler that never suspends is the fastest. A waiting handler occupies no thread;
/// its task is cancelled when the client disconnects.
package typealias RequestHandler = nonisolated(nonsending) @Sendable (Request) async -> Response

/// Creates the response to a refused request. `origin` is the request's `Origin` field, if it has one.
package typealias RefusalHandler = @Sendable (Refusal, _ origin: String?) -> Response

/// Why the server refuses a request before it reaches the handler.
package enum Refusal: Sendable, Equatable {
  /// The framing or the header section violates RFC 9112; `detail` says how.
  case malformed(detail: String)
  /// The request target is longer than `limit`.
  case targetTooLong(limit: Int)
  /// The header section is longer than `limit` bytes, or has more than `limit` fields.
  case headerTooLarge(limit: Int)
  /// `Content-Length` exceeds the limit.
  case bodyTooLarge(limit: Int)
  /// A `Transfer-Encoding` other than chunked.
  case unknownTransferCoding
  /// An `Expect` other than 100-continue.
  case unknownExpectation
  /// Only slots for probes are free, and this request is not a probe.
  case overloaded
}
