internal import CMicroHTTPD
import Glibc
package import HTTPTypes
internal import Synchronization

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

/// Reads a content stream for libmicrohttpd's reader callback. It lives as long as libmicrohttpd keeps the
/// response.
///
/// Not `Sendable`: only libmicrohttpd's thread for the connection uses it.
final class StreamWriter {
  private let connection: ClientConnection
  private let stream: any ContentStream
  private var rest: ArraySlice<UInt8> = []
  /// The reader's result once the stream has ended.
  private var end: Int?
  /// Whether bytes were sent since the last pause.
  private var hasSent = false

  init(_ stream: any ContentStream, on connection: ClientConnection) {
    self.stream = stream
    self.connection = connection
    let serial = connection.beginStream(stream.keepAlive)
    stream.attach { connection.wakeStream(serial) }
  }

  /// Fills the buffer with everything that the stream has now.
  /// - Returns: The number of bytes, 0 if the connection was suspended, or one of libmicrohttpd's two end
  ///   markers.
  func read(into buffer: UnsafeMutableRawBufferPointer) -> Int {
    var filled = 0
    while filled < buffer.count {
      while rest.isEmpty {
        if let outcome = refill(canPause: filled == 0) { return filled > 0 ? filled : outcome }
      }
      let count = min(rest.count, buffer.count - filled)
      rest.prefix(count).withUnsafeBytes {
        UnsafeMutableRawBufferPointer(rebasing: buffer[filled...]).copyMemory(from: $0)
      }
      rest = rest.dropFirst(count)
      filled += count
      hasSent = true
    }
    return filled
  }

  /// Requests the next piece of the stream.
  /// - Returns: Nil to continue. Otherwise the reader's result if it has no bytes yet.
  private func refill(canPause: Bool) -> Int? {
    switch connection.nextStreamAction() {
    case .leave: return Int(CMicroHTTPD_streamFailed)
    case .end:
      if let end { return end }
      // The stream may have sent everything without having returned `.end` yet.
      let isWhole = stream.mayEndAnywhere || stream.next() == .end
      end = Int(isWhole ? CMicroHTTPD_streamEnded : CMicroHTTPD_streamFailed)
      return end
    case .send(let bytes): rest = bytes[...]
    case .ask:
      if let end { return end }
      switch stream.next() {
      case .bytes(let bytes): rest = bytes[...]
      case .end:
        end = Int(CMicroHTTPD_streamEnded)
        return end
      case .failed:
        end = Int(CMicroHTTPD_streamFailed)
        return end
      case .nothingYet:
        guard canPause else { return 0 }
        guard connection.pauseStream(afterSending: hasSent) else { return nil }
        hasSent = false
        return 0
      }
    }
    return nil
  }

  /// The reader callback, and the callback that frees its context.
  static let reader: MHD_ContentReaderCallback = { context, _, buffer, capacity in
    guard let context, let buffer else { return Int(CMicroHTTPD_streamFailed) }
    return Unmanaged<StreamWriter>.fromOpaque(context).takeUnretainedValue()
      .read(into: UnsafeMutableRawBufferPointer(start: buffer, count: capacity))
  }
  static let free: MHD_ContentReaderFreeCallback = { context in
    if let context { Unmanaged<StreamWriter>.fromOpaque(context).release() }
  }
}

/// The state of a connection's stream. The connection's lock protects it.
struct StreamState {
  let keepAlive: KeepAlive?
  /// The stream may have data that was not requested yet.
  var isReady = true
  /// Keep-alive bytes are due.
  var isKeepAliveDue = false
  var silentSince = now()
}

/// Streams. Another thread only sets a flag and resumes the connection, under one lock. libmicrohttpd's
/// thread then decides what to send.
extension ClientConnection {
  /// The reader's next action.
  enum StreamAction {
    case ask, send([UInt8])
    /// The content ends here. If it is incomplete, the stream is aborted.
    case end
    /// The client has disconnected.
    case leave
  }

  /// Starts a stream.
  /// - Returns: The request's number, for ``wakeStream(_:)``.
  func beginStream(_ keepAlive: KeepAlive?) -> UInt64 {
    limitUnsent(Self.maxUnsent, patience: service.configuration.idleTimeout)
    return state.withLock { state in
      state.writer = StreamState(keepAlive: keepAlive)
      return state.serial
    }
  }

  /// Resumes the stream of the request with this number. Does nothing if that request is over.
  func wakeStream(_ serial: UInt64) {
    state.withLock { state in
      guard state.serial == serial, state.writer != nil else { return }
      state.writer?.isReady = true
      resume(&state)
    }
  }

  func nextStreamAction() -> StreamAction {
    state.withLock { state in
      if state.isDisconnected { return .leave }
      guard !service.isStopping, !state.isEnding, var writer = state.writer else { return .end }
      writer.isReady = false
      defer { state.writer = writer }
      guard writer.isKeepAliveDue, let keepAlive = writer.keepAlive else { return .ask }
      writer.isKeepAliveDue = false
      // The stream may have data, too, so it is asked next.
      writer.isReady = true
      return .send(keepAlive.bytes)
    }
  }

  /// Suspends the connection, unless something has changed since the stream was asked.
  func pauseStream(afterSending hasSent: Bool) -> Bool {
    state.withLock { state in
      guard let writer = state.writer, !writer.isReady, !writer.isKeepAliveDue,
        !state.isDisconnected,
        !state.isEnding, !service.isStopping
      else { return false }
      if hasSent { state.writer?.silentSince = now() }
      suspend(&state)
      return true
    }
  }

  /// Sends keep-alive bytes if the stream has been silent for too long.
  func sendKeepAliveIfDue(_ now: Instant) {
    state.withLock { state in
      guard state.isSuspended, let writer = state.writer, let keepAlive = writer.keepAlive,
        now >= writer.silentSince + keepAlive.interval.nanoseconds
      else { return }
      state.writer?.isKeepAliveDue = true
      resume(&state)
    }
  }

  /// Resumes the stream, if there is one, so that it notices that the server is stopping.
  func resumeStream() {
    state.withLock { state in if state.writer != nil { resume(&state) } }
  }

  /// Forgets the stream, if there is one.
  func forgetStream() {
    let had = state.withLock { $0.writer.take() != nil }
    if had { limitUnsent(.max, patience: .zero) }
  }

  /// The most unsent bytes in the kernel for a client that does not read. Beyond that, libmicrohttpd waits,
  /// and its idle timeout closes the connection.
  private static let maxUnsent: UInt32 = 16 << 10

  /// - Parameter patience: How long sent bytes may stay unacknowledged before the kernel closes the
  ///   connection. Zero selects the kernel's default of several minutes.
  private func limitUnsent(_ bytes: UInt32, patience: Duration) {
    let milliseconds = UInt32(clamping: patience.nanoseconds / 1_000_000)
    for (option, value) in [(TCP_NOTSENT_LOWAT, bytes), (TCP_USER_TIMEOUT, milliseconds)] {
      withUnsafePointer(to: value) {
        _ = setsockopt(
          descriptor, Int32(IPPROTO_TCP), option, $0, socklen_t(MemoryLayout<UInt32>.size))
      }
    }
  }
}

/// A response's content that is produced over time, for example server-sent events.
///
/// The server pulls: it requests the next piece when the client can receive it, so nothing accumulates for a
/// slow client. A stream without data uses no thread and no timer. When the stream is over, the server only
/// releases it. This happens when the client disconnects, when the last piece was sent, and when the server
/// stops.
package protocol ContentStream: AnyObject, Sendable {
  /// Stores a function to call, from any thread, when ``next()`` returned `.nothingYet` and may now return
  /// more. The server calls `attach` once, before anything else. Extra calls of `wake` are harmless.
  func attach(_ wake: @escaping @Sendable () -> Void)

  /// Returns the next piece to send. It must not block: its thread serves other connections, too.
  func next() -> StreamPiece

  /// What to send when the stream is silent for some time; nil: nothing.
  var keepAlive: KeepAlive? { get }

  /// Whether the stream may end at any point, like an event stream. Any other stream is aborted if it must
  /// end early, because a normal end would tell the client that the content is complete.
  var mayEndAnywhere: Bool { get }

  /// Called before the service ends the stream although its client is still connected.
  func willAbort()
}

extension ContentStream {
  /// Does nothing.
  package func willAbort() {}
}

/// The result of asking a stream for its next piece.
package enum StreamPiece: Sendable, Equatable {
  case bytes([UInt8])
  /// Nothing at the moment.
  case nothingYet
  /// The content is complete.
  case end
  /// The content is incomplete and ends here. The connection is closed without the terminating chunk.
  case failed
}

/// Bytes without meaning, sent so that neither side nor a proxy closes a silent stream.
package struct KeepAlive: Sendable, Equatable {
  package var bytes: [UInt8]
  /// The longest silence. It may last up to one second longer.
  package var interval: Duration

  package init(bytes: [UInt8], interval: Duration) {
    self.bytes = bytes
    self.interval = interval
  }
}
