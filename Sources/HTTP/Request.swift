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
  static let empty = RequestBody(declaredLength: 0) { () throws(BodyError) in nil }

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

/// Buffers the content of one request between libmicrohttpd's thread and the handler's task. A value type;
/// the connection's lock protects it.
struct BodyBuffer {
  typealias Piece = Result<[UInt8]?, BodyError>
  typealias Waiter = UnsafeContinuation<Piece, Never>

  /// The bytes buffered for the handler before the connection stops reading. One more piece may be added; its
  /// size is at most that of the connection's memory pool.
  static let capacity = 64 << 10
  /// Content up to this length is read completely before the handler runs.
  static let maxPrebuffered = 16 << 10

  /// The number of the request, which distinguishes it from later requests on the same connection.
  let serial: UInt64
  /// Whether the content has no length limit (a stream).
  let isStream: Bool
  private var limit: Int
  private var bytes: [UInt8] = []
  private var received = 0
  private var isComplete = false
  private var failure: BodyError?
  /// Bytes dropped since the client's deadline was last extended.
  private var droppedSinceExtension = 0
  private var waiter: Waiter?

  /// - Parameter limit: The limit in bytes. Nil: a stream without a limit.
  init(serial: UInt64, limit: Int?) {
    self.serial = serial
    isStream = limit == nil
    self.limit = limit ?? .max
  }

  /// Whether the connection should stop reading for now.
  var isFull: Bool { bytes.count >= Self.capacity && failure == nil }

  /// The number of bytes received beyond the limit and dropped.
  var excess: Int { max(0, received - limit) }

  /// Whether the last piece extends the deadline of a stream's client. While the handler reads, every piece
  /// does. After the content has failed, only every 64 KiB do, so that a client cannot keep the connection
  /// open by sending slowly.
  var extendsDeadline: Bool { isStream && (failure == nil || droppedSinceExtension == 0) }

  /// Appends a piece, or drops it if the content has failed.
  mutating func append(_ piece: UnsafeRawBufferPointer) -> Wake? {
    received += piece.count
    if received > limit, !isStream { return fail(.tooLarge(limit: limit)) }
    guard failure == nil else {
      droppedSinceExtension += piece.count
      if droppedSinceExtension >= Self.capacity { droppedSinceExtension = 0 }
      return nil
    }
    bytes.append(contentsOf: piece)
    return wake()
  }

  /// Marks the content as complete.
  mutating func finish() -> Wake? {
    isComplete = true
    return wake()
  }

  /// Marks the content as failed. Buffered bytes are dropped.
  mutating func fail(_ error: BodyError) -> Wake? {
    if failure == nil && !(isComplete && error == .disconnected) { failure = error }
    // Bytes that a stream receives from now on count as excess.
    if isStream { limit = received }
    bytes = []
    return wake()
  }

  /// Returns what is available now: bytes, the end or an error. Nil if the reader must wait.
  mutating func dequeue() -> Piece? {
    if let failure { return .failure(failure) }
    guard bytes.isEmpty else {
      defer { bytes = [] }
      return .success(bytes)
    }
    return isComplete ? .success(nil) : nil
  }

  /// Stores a waiting reader.
  mutating func wait(_ waiter: Waiter) { self.waiter = waiter }

  /// Ends the wait of a reader whose task was cancelled.
  mutating func release() -> Wake? {
    guard let waiter else { return nil }
    self.waiter = nil
    return Wake(waiter: waiter, piece: .failure(.disconnected))
  }

  private mutating func wake() -> Wake? {
    guard let waiter, let piece = dequeue() else { return nil }
    self.waiter = nil
    return Wake(waiter: waiter, piece: piece)
  }

  /// A reader and its result. Call `run` after releasing the lock.
  struct Wake {
    let waiter: Waiter
    let piece: Piece

    func run() { waiter.resume(returning: piece) }
  }
}
