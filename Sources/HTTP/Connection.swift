internal import CMicroHTTPD
import Glibc
import Synchronization

/// One client's connection, and the request being answered on it.
///
/// libmicrohttpd calls for it on one thread of its own; the handler's task, the monitor's thread
/// and that thread meet in `state`. A connection is suspended, and resumed, only under that lock
/// and only by `isSuspended`: so 'the task completed' and 'nothing to say yet' can never miss each
/// other. The order of locks is ours, then libmicrohttpd's, which never calls us holding its own.
///
/// `@unchecked Sendable`: `state` is behind its lock; the variables below `Only libmicrohttpd's
/// thread` are touched by the callbacks for this connection alone, which come one after another.
final class Connection: @unchecked Sendable {
  /// What is shared, behind the lock.
  struct State {
    /// Counts the requests, so that late takers of a body are told apart.
    var serial: UInt64 = 0
    var timing = Timing()
    var upload: BodyBuffer?
    var response: Response?
    /// The answer's stream, if it is one.
    var writer: StreamState?
    /// The handler's task, if it did not finish at once.
    var task: Task<Void, Never>?
    var isSuspended = false
    /// The client closed its side.
    var hasLeft = false
    /// The server is going away: nothing may be suspended any more.
    var isEnding = false
    /// libmicrohttpd has closed it, or is about to.
    var isClosed = false
    /// Its place was given to another.
    var isEvicted = false
  }

  /// What the next call from libmicrohttpd is about.
  enum Step { case head, gathering, streaming, complete, answered }

  let id: UInt64
  let handle: OpaquePointer
  let descriptor: Int32
  let remoteAddress: String
  let service: Service
  let place: Places.Kind
  let state = Mutex(State())

  /// Libmicrohttpd's for it.
  let thread = pthread_self()

  // Only libmicrohttpd's thread
  var step = Step.head
  /// The target of the request whose line has come.
  var sentTarget: SentTarget?
  var head: RequestHead?
  /// Whether the content came, or is to come, in chunks.
  var isChunked = false
  /// Whether the request's method is HEAD.
  var isHead = false
  /// Keeps the bytes of an answer where they are until they were sent.
  var sending: Response.Content = .none
  var keeping: (any Sendable & AnyObject)?
  /// Whether the client may still be sending when we close, and would lose our answer to a reset.
  var lingers = false
  var isActive = false

  init(id: UInt64, handle: OpaquePointer, at place: Places.Kind, service: Service) {
    self.id = id
    self.place = place
    self.handle = handle
    self.service = service
    descriptor = CMicroHTTPD_descriptor(handle)
    remoteAddress = CMicroHTTPD_clientAddress(handle).map(Address.text) ?? ""
  }

  // MARK: Suspending, under the lock

  /// Stops libmicrohttpd from calling for the connection. No thread is held meanwhile.
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

  // MARK: From outside

  /// The client closed its side. Its handler is told by cancelling the task; what it returns then
  /// is sent if the client still reads, which libmicrohttpd finds out. A stream ends.
  ///
  /// Nobody can tell a client that is gone from one that only said it has no more to send (`nc
  /// -N`), so the latter is not waited for either: it gets its answer only if that is there at
  /// once.
  func clientLeft() {
    let task = state.withLock { state in
      state.hasLeft = true
      state.timing.clientLeft(now())
      if state.writer != nil { resume(&state) }
      return state.task
    }
    task?.cancel()
  }

  /// Cancels the handler, if it is running.
  func cancel() {
    state.withLock { $0.task }?.cancel()
  }

  /// Lets go of the connection whatever its handler does, so that the daemon can be stopped.
  func end() {
    state.withLock { state in
      state.isEnding = true
      resume(&state)
    }
  }

  /// Since when it waits for a request; nil while it has one.
  var idleSince: Instant? {
    state.withLock { state in
      guard case .head = state.timing.stage, !state.isClosed, !state.isEvicted else { return nil }
      return state.timing.idleSince
    }
  }

  /// Cuts the connection, unless it has a request by now.
  /// - Returns: whether its place is free.
  func evict() -> Bool {
    state.withLock { state in
      guard case .head = state.timing.stage, !state.isClosed, !state.isEvicted else { return false }
      state.isEvicted = true
      _ = shutdown(descriptor, Int32(SHUT_RDWR))
      return true
    }
  }

  /// Cuts the connection if its request has taken too long.
  func enforceDeadline(_ now: Instant, _ limits: HTTPServer.Configuration) {
    state.withLock { state in
      guard !state.isClosed else { return }
      if state.timing.isOverdue(now, descriptor, serial: state.serial, limits) {
        _ = shutdown(descriptor, Int32(SHUT_RDWR))
      }
    }
  }
}
