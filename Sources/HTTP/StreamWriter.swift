internal import CMicroHTTPD
import Glibc
internal import Synchronization

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
