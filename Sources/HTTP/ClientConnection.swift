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
