internal import CMicroHTTPD
import Glibc
import Synchronization

/// One client's connection and the request being handled on it.
///
/// Three threads use it: libmicrohttpd's thread for the connection, the thread of the handler's task, and the
/// monitor's thread. The lock of `state` protects what they share. A connection is suspended and resumed only
/// under this lock, so a response that arrives while the connection is being suspended is never missed. Lock
/// order: this lock first, then libmicrohttpd's. libmicrohttpd never calls this class while it holds its own
/// lock.
///
/// `@unchecked Sendable`: `state` is behind a lock. The variables below `Only libmicrohttpd's thread` are
/// used only by the callbacks for this connection, which run one after another.
final class ClientConnection: @unchecked Sendable {
  /// The state shared between threads.
  struct State {
    /// The number of the request. A reader of an earlier request's body is recognized by it.
    var serial: UInt64 = 0
    var timing = Timing()
    var upload: BodyBuffer?
    var response: Response?
    /// The state of the response's stream, if it has one.
    var writer: StreamState?
    /// The handler's task, unless it finished without suspending.
    var task: Task<Void, Never>?
    var isSuspended = false
    /// The client closed its side of the connection.
    var isDisconnected = false
    /// The server is stopping, so no connection may be suspended.
    var isEnding = false
    /// libmicrohttpd has closed the connection or is about to.
    var isClosed = false
    /// The connection's slot was given to another client.
    var isEvicted = false
  }

  /// The subject of libmicrohttpd's next call.
  enum Step { case head, gathering, streaming, complete, answered }

  let id: UInt64
  let handle: OpaquePointer
  let descriptor: Int32
  let remoteAddress: String
  let service: ServerState
  let slot: ConnectionSlots.Kind
  let state = Mutex(State())

  /// libmicrohttpd's thread for this connection.
  let thread = pthread_self()

  // Only libmicrohttpd's thread
  var step = Step.head
  /// The target of the current request.
  var sentTarget: SentTarget?
  var head: RequestHead?
  /// Whether the content is sent in chunks.
  var isChunked = false
  var isHead = false
  /// Keeps the bytes of a response in memory until they are sent.
  var sending: Response.Content = .none
  var keeping: (any Sendable & AnyObject)?
  /// Whether the client may still be sending when the connection is closed. A TCP reset could then destroy
  /// the response.
  var lingers = false
  var isActive = false

  init(id: UInt64, handle: OpaquePointer, at place: ConnectionSlots.Kind, service: ServerState) {
    self.id = id
    self.slot = place
    self.handle = handle
    self.service = service
    descriptor = CMicroHTTPD_descriptor(handle)
    remoteAddress = CMicroHTTPD_clientAddress(handle).map(Address.text) ?? ""
  }

  // MARK: Suspending, under the lock

  /// Stops libmicrohttpd from calling for this connection. A suspended connection occupies no thread.
  func suspend(_ state: inout State) {
    guard !state.isSuspended else { return }
    state.isSuspended = true
    MHD_suspend_connection(handle)
  }

  /// Lets libmicrohttpd call again.
  func resume(_ state: inout State) {
    guard state.isSuspended else { return }
    state.isSuspended = false
    MHD_resume_connection(handle)
  }

  // MARK: Calls from other threads

  /// Called when the client closed its side. Cancels the handler's task and ends a stream. If the client
  /// still reads, it receives a response that is available at once.
  ///
  /// A disconnected client cannot be distinguished from one that only finished sending (`nc -N`), so the
  /// server does not wait for either.
  func clientDisconnected() {
    let task = state.withLock { state in
      state.isDisconnected = true
      state.timing.clientStoppedSending(now())
      if state.writer != nil { resume(&state) }
      return state.task
    }
    task?.cancel()
  }

  /// Cancels the handler's task if it is running.
  func cancel() {
    state.withLock { $0.task }?.cancel()
  }

  /// Resumes the connection even if its handler is still running, so that the daemon can be stopped.
  func resumeForStop() {
    state.withLock { state in
      state.isEnding = true
      resume(&state)
    }
  }

  /// Since when the connection has been waiting for a request; nil while it has one.
  var idleSince: Instant? {
    state.withLock { state in
      guard case .head = state.timing.stage, !state.isClosed, !state.isEvicted else { return nil }
      return state.timing.idleSince
    }
  }

  /// Closes the connection, unless it has received a request.
  /// - Returns: Whether its slot is free.
  func evict() -> Bool {
    state.withLock { state in
      guard case .head = state.timing.stage, !state.isClosed, !state.isEvicted else { return false }
      state.isEvicted = true
      _ = shutdown(descriptor, Int32(SHUT_RDWR))
      return true
    }
  }

  /// Closes the connection if its request has taken too long.
  func enforceDeadline(_ now: Instant, _ limits: HTTPServer.Configuration) {
    state.withLock { state in
      guard !state.isClosed else { return }
      if state.timing.isOverdue(now, descriptor, serial: state.serial, limits) {
        _ = shutdown(descriptor, Int32(SHUT_RDWR))
      }
    }
  }
}

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
  /// The event that the server waits for.
  enum Stage {
    /// A request's head. Some of its bytes may have arrived.
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
