import Glibc

/// Nanoseconds of the monotonic clock.
typealias Instant = UInt64

/// Returns the time of the monotonic clock.
func now() -> Instant {
  var time = timespec()
  clock_gettime(CLOCK_MONOTONIC, &time)
  return Instant(time.tv_sec) * 1_000_000_000 + Instant(time.tv_nsec)
}

extension Duration {
  /// The duration in nanoseconds; 0 if it is negative.
  var nanoseconds: UInt64 {
    let (seconds, attoseconds) = components
    return seconds < 0 ? 0 : UInt64(seconds) * 1_000_000_000 + UInt64(attoseconds / 1_000_000_000)
  }
}

/// How long a connection's request has taken. A value type; the connection's lock protects it.
///
/// libmicrohttpd's own timeout restarts with each byte and does not cover a request whose head is incomplete.
/// The start of a request is therefore detected by the kernel's count of received bytes, each time the
/// monitor checks deadlines.
struct Timing {
  /// What the server waits for.
  enum Stage {
    /// A request's head, of which bytes may have arrived.
    case head
    /// The rest of the content, until this deadline.
    case content(by: Instant)
    /// The handler, which must read buffered content first. The client's deadline is paused since `since`.
    case heldBack(by: Instant, since: Instant)
    /// The handler or the response. The client has no deadline.
    case answer
  }

  var stage = Stage.head
  /// Since when the server has waited for a request's head.
  var idleSince = now()
  private var watched: UInt64?
  private var base: UInt64 = 0
  private var begun: Instant?
  private var left: Instant?

  /// Whether the connection should be closed because its client is too slow.
  mutating func isOverdue(
    _ now: Instant, _ descriptor: Int32, serial: UInt64, _ limits: HTTPServer.Configuration
  ) -> Bool {
    switch stage {
    case .answer, .heldBack: return false
    case _ where left.map { now > $0 + Self.lastBytes } ?? false: return true
    case .content(let deadline): return now > deadline
    case .head:
      if watched != serial {
        watched = serial
        begun = nil
        // The first request of a connection starts with the connection's first byte. A later one starts with
        // the next byte that arrives.
        base = serial == 0 ? 0 : bytesReceived(descriptor)
      }
      if begun == nil && bytesReceived(descriptor) > base { begun = now }
      return begun.map { now > $0 + limits.requestTimeout.nanoseconds } ?? false
    }
  }

  /// Called when the client stops sending. libmicrohttpd gets one more second to process the last bytes: it
  /// does not notice the end of the connection if it arrived together with them.
  mutating func clientStoppedSending(_ now: Instant) { left = left ?? now }
  private static let lastBytes: UInt64 = 1_000_000_000

  /// Called when the head is complete and content follows.
  mutating func awaitContent(_ now: Instant, serial: UInt64, _ limits: HTTPServer.Configuration) {
    let start = watched == serial ? begun ?? now : now
    stage = .content(by: start + limits.requestTimeout.nanoseconds)
  }

  /// Called for a piece of streamed content: restarts its deadline.
  mutating func restartDeadline(_ now: Instant, _ limits: HTTPServer.Configuration) {
    if case .content = stage { stage = .content(by: now + limits.requestTimeout.nanoseconds) }
  }

  /// Pauses the client's deadline while the server does not read.
  mutating func pauseDeadline(_ now: Instant) {
    if case .content(let deadline) = stage { stage = .heldBack(by: deadline, since: now) }
  }

  /// Continues the client's deadline when the server reads again.
  mutating func resumeDeadline(_ now: Instant) {
    if case .heldBack(let deadline, let since) = stage {
      stage = .content(by: deadline + (now - since))
    }
  }
}

/// Returns how many bytes the kernel has received on a TCP connection.
private func bytesReceived(_ descriptor: Int32) -> UInt64 {
  // glibc's tcp_info ends before tcpi_bytes_received, which is at byte 128 in the kernel's ABI.
  withUnsafeTemporaryAllocation(byteCount: 256, alignment: 8) { info in
    var size = socklen_t(info.count)
    guard getsockopt(descriptor, Int32(IPPROTO_TCP), TCP_INFO, info.baseAddress, &size) == 0,
      size >= 136
    else { return 0 }
    return info.load(fromByteOffset: 128, as: UInt64.self)
  }
}
