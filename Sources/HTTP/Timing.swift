import Glibc

/// Nanoseconds of the monotonic clock.
typealias Instant = UInt64

/// The monotonic clock's time.
func now() -> Instant {
  var time = timespec()
  clock_gettime(CLOCK_MONOTONIC, &time)
  return Instant(time.tv_sec) * 1_000_000_000 + Instant(time.tv_nsec)
}

extension Duration {
  /// The duration in nanoseconds, none below zero.
  var nanoseconds: UInt64 {
    let (seconds, attoseconds) = components
    return seconds < 0 ? 0 : UInt64(seconds) * 1_000_000_000 + UInt64(attoseconds / 1_000_000_000)
  }
}

/// How long a connection's request has been on its way. A value: the connection's lock guards it.
///
/// libmicrohttpd's own timeout starts anew with each byte and says nothing of a request before its
/// head is whole. So the first byte is looked for in the kernel's count of bytes received, at each
/// sweep.
struct Timing {
  /// What the client owes.
  enum Stage {
    /// A request; it may have begun to send one.
    case head
    /// The rest of its content, by then.
    case content(by: Instant)
    /// Content that we do not take in at the moment, since then.
    case heldBack(by: Instant, since: Instant)
    /// Nothing: it waits for us.
    case answer
  }

  var stage = Stage.head
  /// Since when the client owes a request's head.
  var idleSince = now()
  private var watched: UInt64?
  private var base: UInt64 = 0
  private var begun: Instant?
  private var left: Instant?

  /// Whether the client should be cut.
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
        // A connection's first request begins with its first byte; a later one's is whatever comes
        // from now on.
        base = serial == 0 ? 0 : bytesReceived(descriptor)
      }
      if begun == nil && bytesReceived(descriptor) > base { begun = now }
      return begun.map { now > $0 + limits.requestTimeout.nanoseconds } ?? false
    }
  }

  /// The client sends no more. What it has sent may still be on its way to libmicrohttpd, which does not notice the
  /// end where that came together with the last bytes.
  mutating func clientLeft(_ now: Instant) { left = left ?? now }
  private static let lastBytes: UInt64 = 1_000_000_000

  /// The head is whole, content follows.
  mutating func awaitContent(_ now: Instant, serial: UInt64, _ limits: HTTPServer.Configuration) {
    let start = watched == serial ? begun ?? now : now
    stage = .content(by: start + limits.requestTimeout.nanoseconds)
  }

  /// A piece of content came that may go on for as long as it likes.
  mutating func contentCame(_ now: Instant, _ limits: HTTPServer.Configuration) {
    if case .content = stage { stage = .content(by: now + limits.requestTimeout.nanoseconds) }
  }

  /// We stop reading: the time does not count against the client.
  mutating func holdBack(_ now: Instant) {
    if case .content(let deadline) = stage { stage = .heldBack(by: deadline, since: now) }
  }

  /// We read again.
  mutating func goOn(_ now: Instant) {
    if case .heldBack(let deadline, let since) = stage {
      stage = .content(by: deadline + (now - since))
    }
  }
}

/// How many bytes the kernel has received on a TCP connection.
private func bytesReceived(_ descriptor: Int32) -> UInt64 {
  // glibc's tcp_info ends before tcpi_bytes_received, whose place in the kernel's ABI is byte 128.
  withUnsafeTemporaryAllocation(byteCount: 256, alignment: 8) { info in
    var size = socklen_t(info.count)
    guard getsockopt(descriptor, Int32(IPPROTO_TCP), TCP_INFO, info.baseAddress, &size) == 0,
      size >= 136
    else { return 0 }
    return info.load(fromByteOffset: 128, as: UInt64.self)
  }
}
