internal import CMicroHTTPD
import Glibc
internal import Synchronization

/// A stream on its way to the client, as libmicrohttpd's reader callback knows it. It lives as long
/// as libmicrohttpd keeps the answer.
///
/// Not `Sendable`: only libmicrohttpd's thread for the connection has it.
final class StreamWriter {
  private let connection: Connection
  private let stream: any ContentStream
  private var rest: ArraySlice<UInt8> = []
  /// What the reader returns once the stream has nothing more.
  private var end: Int?
  /// Whether something was sent since the last pause.
  private var hasSent = false

  init(_ stream: any ContentStream, on connection: Connection) {
    self.stream = stream
    self.connection = connection
    let serial = connection.beginStream(stream.keepAlive)
    stream.attach { connection.wakeStream(serial) }
  }

  /// Fills the buffer as far as there is something: what has gathered goes out at once.
  /// - Returns: how many bytes, 0 with the connection suspended, or one of libmicrohttpd's two ends.
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

  /// Asks for the next piece.
  /// - Returns: nil to go on, or what the reader returns unless it has bytes; then it is asked again.
  private func refill(canPause: Bool) -> Int? {
    switch connection.streamTurn() {
    case .leave: return Int(CMicroHTTPD_streamFailed)
    case .end:
      if let end { return end }
      // All of it may have been sent, and its end not been asked for yet.
      let isWhole = stream.endsAnywhere || stream.next() == .end
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

  /// The callback, and what frees its context.
  static let reader: MHD_ContentReaderCallback = { context, _, buffer, capacity in
    guard let context, let buffer else { return Int(CMicroHTTPD_streamFailed) }
    return Unmanaged<StreamWriter>.fromOpaque(context).takeUnretainedValue()
      .read(into: UnsafeMutableRawBufferPointer(start: buffer, count: capacity))
  }
  static let free: MHD_ContentReaderFreeCallback = { context in
    if let context { Unmanaged<StreamWriter>.fromOpaque(context).release() }
  }
}

/// How far a connection's stream is; behind the connection's lock.
struct StreamState {
  let keepAlive: KeepAlive?
  /// The stream was not asked since it may have something.
  var isReady = true
  /// A silence is to be broken.
  var isPulseDue = false
  var silentSince = now()
}

/// Streams. What another thread wants of one is noted and the connection resumed, in one step; what
/// is to be sent is then decided on libmicrohttpd's thread.
extension Connection {
  /// What the reader does next.
  enum StreamTurn {
    case ask, send([UInt8])
    /// The content ends here, if it may.
    case end
    /// The client is gone.
    case leave
  }

  /// - Returns: the request's number, for ``wakeStream(_:)``.
  func beginStream(_ keepAlive: KeepAlive?) -> UInt64 {
    limitUnsent(Self.maxUnsent, patience: service.configuration.idleTimeout)
    return state.withLock { state in
      state.writer = StreamState(keepAlive: keepAlive)
      return state.serial
    }
  }

  /// Another request's stream is none of its business.
  func wakeStream(_ serial: UInt64) {
    state.withLock { state in
      guard state.serial == serial, state.writer != nil else { return }
      state.writer?.isReady = true
      resume(&state)
    }
  }

  func streamTurn() -> StreamTurn {
    state.withLock { state in
      if state.hasLeft { return .leave }
      guard !service.isStopping, !state.isEnding, var writer = state.writer else { return .end }
      writer.isReady = false
      defer { state.writer = writer }
      guard writer.isPulseDue, let keepAlive = writer.keepAlive else { return .ask }
      writer.isPulseDue = false
      // The stream may have woken the connection as well.
      writer.isReady = true
      return .send(keepAlive.bytes)
    }
  }

  /// Suspends the connection unless something has come up since the stream was asked.
  func pauseStream(afterSending hasSent: Bool) -> Bool {
    state.withLock { state in
      guard let writer = state.writer, !writer.isReady, !writer.isPulseDue, !state.hasLeft,
        !state.isEnding, !service.isStopping
      else { return false }
      if hasSent { state.writer?.silentSince = now() }
      suspend(&state)
      return true
    }
  }

  /// Has a silence broken that lasts too long.
  func breakSilence(_ now: Instant) {
    state.withLock { state in
      guard state.isSuspended, let writer = state.writer, let keepAlive = writer.keepAlive,
        now >= writer.silentSince + keepAlive.interval.nanoseconds
      else { return }
      state.writer?.isPulseDue = true
      resume(&state)
    }
  }

  /// Lets the stream, if there is one, look at what became of the service or the client.
  func endStream() {
    state.withLock { state in if state.writer != nil { resume(&state) } }
  }

  /// No stream, or no more.
  func forgetStream() {
    let had = state.withLock { $0.writer.take() != nil }
    if had { limitUnsent(.max, patience: .zero) }
  }

  /// So many bytes may wait in the kernel for a client that does not read; then libmicrohttpd has to,
  /// and its idle timeout cuts the client.
  private static let maxUnsent: UInt32 = 16 << 10

  /// - Parameter patience: how long sent bytes may stay unacknowledged, by a client whose machine is
  ///   gone, before the kernel closes; zero is its own many minutes.
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
