public import Logging
import Synchronization

/// Serves HTTP/1.1 (RFC 9110, RFC 9112) over libmicrohttpd: epoll, a few threads, and no thread
/// held by a waiting request.
///
/// A handler runs on the thread that read the request until it first suspends; one that never does
/// is answered without a switch of threads, so it must not block. While it waits, a client that
/// goes away, or shuts down its sending side, has the handler's task cancelled.
///
/// A request whose content is over 16 KiB or of unknown length reaches the handler before its
/// content, of which at most some 90 KiB wait for it; what it does not take stays with the client. An
/// answer given before the first of that content closes the connection; one given in the middle of
/// it is sent at its end, what remains being read and dropped within the limits.
public final class HTTPServer: Sendable {
  private let service: Service
  private let monitor = Mutex<Monitor?>(nil)

  /// A server that is not listening yet.
  /// - Parameters:
  ///   - handler: answers each well-formed request.
  ///   - refusal: words the answer to a request that is not; the connection is closed after it.
  public init(
    _ configuration: Configuration, handler: @escaping RequestHandler,
    refusal: @escaping RefusalHandler, log: Logger = Logger(label: "http")
  ) {
    service = Service(configuration, handler: handler, refusal: refusal, log: log)
  }

  /// Listens and serves, till `stop`.
  /// - Returns: the address and port that are listened on.
  public func start() throws(ServerError) -> (host: String, port: Int) {
    let service = service
    try MicroHTTPDLibrary.check(log: service.log)
    let started = try monitor.withLock { (monitor) throws(ServerError) in
      guard monitor == nil else { throw .alreadyStarted }
      let new = try Monitor(service)
      try new.start()
      monitor = new
      return new
    }
    return (started.listener.host, started.listener.port)
  }

  /// Closes the listening socket. Connections that are open go on, and are closed with their next
  /// answer.
  public func stopAccepting() { monitor.withLock { $0 }?.stopAccepting() }

  /// Stops: no more connections; streams end; requests may finish within the time; the tasks of those
  /// that did not are cancelled, and get 5 s to return an answer; all is closed.
  public func stop(within grace: Duration) async {
    await monitor.withLock { $0 }?.stop(by: now() + grace.nanoseconds)
  }

  /// What is going on.
  public struct Statistics: Sendable, Equatable {
    /// Connections that are open.
    public var connections: Int
    /// Requests since the start, refused ones included.
    public var requests: Int
    /// Requests that are being read, answered or sent.
    public var active: Int
  }

  /// What is going on now.
  public var statistics: Statistics {
    Statistics(
      connections: monitor.withLock { $0 }.map { $0.taken + $0.takenByProbes } ?? 0,
      requests: service.requests,
      active: service.active)
  }
}
