public import HTTPTypes

/// An answer. `Content-Length`, `Date` and `Connection` are the server's to add.
public struct Response: Sendable {
  /// The status.
  public var status: HTTPResponse.Status
  /// The header fields.
  public var fields: HTTPFields
  /// The content; for HEAD and 304 only its length is sent.
  public var content: Content
  /// What is let go of once the answer was sent, or its client is gone.
  public var keeping: (any Sendable & AnyObject)?

  /// An answer.
  public init(
    status: HTTPResponse.Status, fields: HTTPFields = [:], content: Content = .none,
    keeping: (any Sendable & AnyObject)? = nil
  ) {
    self.status = status
    self.fields = fields
    self.content = content
    self.keeping = keeping
  }

  /// What is sent after the header section.
  public enum Content: Sendable {
    /// Nothing.
    case none
    /// Bytes in memory.
    case bytes([UInt8])
    /// A part of an open file, sent by the kernel. `owner` keeps the descriptor open until it was sent.
    case file(descriptor: Int32, offset: Int, count: Int, owner: any Sendable & AnyObject)
    /// What comes bit by bit, in chunks (RFC 9112 section 7.1). It has no length, and no timeout but
    /// for a client that does not read. It ends when the client closes or half-closes its side, and,
    /// as if it were whole, when the server stops.
    case stream(any ContentStream)
    /// Content that is described but not sent: of a 304, and of answers to HEAD. `Content-Length` is `count`, as in the
    /// 200 that GET would have (RFC 9110 section 8.6). nil: the length is unknown, so there is no `Content-Length`.
    case omitted(count: Int?)
  }
}

/// An open file that the kernel can send from, closed once nobody holds it.
public protocol SendableFile: AnyObject, Sendable {
  /// Of the open file.
  var descriptor: Int32 { get }
}

/// Answers requests. It may return without ever suspending, which costs the least; while it waits no thread is held,
/// and when the client goes away its task is cancelled.
public typealias RequestHandler = nonisolated(nonsending) @Sendable (Request) async -> Response

/// Words the answer to a request that is refused; with what its `Origin` said, where that was found.
public typealias RefusalHandler = @Sendable (Refusal, _ origin: String?) -> Response

/// A request that the server refuses before anyone handles it.
public enum Refusal: Sendable, Equatable {
  /// Its framing or header section breaks RFC 9112; `detail` says where.
  case malformed(detail: String)
  /// The request target is longer than `limit`.
  case targetTooLong(limit: Int)
  /// The header section is longer than `limit`, or has more fields.
  case headerTooLarge(limit: Int)
  /// `Content-Length` is over the limit.
  case bodyTooLarge(limit: Int)
  /// A `Transfer-Encoding` other than chunked.
  case unknownTransferCoding
  /// An `Expect` other than 100-continue.
  case unknownExpectation
  /// There is no place left but those kept for probes, and this is none.
  case overloaded
}
