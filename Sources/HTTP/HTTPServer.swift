package import Logging
import Synchronization

// HTTP: an HTTP/1.1 server on libmicrohttpd.
//
// Input: TCP connections. Output: each well-formed request is passed to a `RequestHandler`; the `Response` is
// sent back. Other requests go to a `RefusalHandler`. Read the files in this order:
//
// 1. `HTTPServer` (this file): start, stop, statistics. `HTTPServer+Configuration`: limits.
// 2. `Monitor`: the monitor thread. It accepts connections, enforces deadlines and stops the server.
// 3. `Daemon`: libmicrohttpd's threads and the functions that they call. `Sockets`: the listening socket and epoll.
// 4. `ClientConnection`: one client. `ClientConnection+Request`: one request, from its line to its response.
// 5. `RequestHead`: reads and checks a request's line and fields (RFC 9112).
// 6. `StreamWriter`: responses that are produced over time.

/// Serves HTTP/1.1 (RFC 9110, RFC 9112) with libmicrohttpd: epoll and a few threads. A waiting request
/// occupies no thread.
///
/// A handler starts on the thread that read the request and stays there until it first suspends. A handler
/// that never suspends needs no thread switch, but must not block. If the client disconnects or shuts down
/// its sending side while the handler waits, the handler's task is cancelled.
///
/// If the content is larger than 16 KiB or of unknown length, the handler starts before the content arrives.
/// About 90 KiB are buffered; the client must wait with the rest. A response returned before the content
/// closes the connection. A response returned in the middle of the content is sent after the content's end;
/// the rest is read and dropped, up to a limit.
package final class HTTPServer: Sendable {
  private let service: ServerState
  private let monitor = Mutex<Monitor?>(nil)

  /// Creates a server that is not listening yet.
  /// - Parameters:
  ///   - handler: Responds to each well-formed request.
  ///   - refusal: Creates the response to any other request; the connection is closed after it.
  package init(
    _ configuration: Configuration, handler: @escaping RequestHandler,
    refusal: @escaping RefusalHandler, log: Logger = Logger(label: "http")
  ) {
    service = ServerState(configuration, handler: handler, refusal: refusal, log: log)
  }

  /// Starts to listen and serve, until `stop`.
  /// - Returns: The address and port that the server listens on.
  package func start() throws(ServerError) -> (host: String, port: Int) {
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

  /// Closes the listening socket. Open connections continue and are closed after their next response.
  package func stopAccepting() { monitor.withLock { $0 }?.stopAccepting() }

  /// Stops the server. Accepts no more connections, ends streams, and lets requests finish within `grace`.
  /// Then cancels the remaining handlers, gives them 5 s to return a response, and closes all connections.
  package func stop(within grace: Duration) async {
    await monitor.withLock { $0 }?.stop(by: now() + grace.nanoseconds)
  }

  /// The server's current load.
  package struct Statistics: Sendable, Equatable {
    /// Open connections.
    package var connections: Int
    /// Requests since the start, including refused ones.
    package var requests: Int
    /// Requests that are being read, handled or answered.
    package var active: Int
  }

  package var statistics: Statistics {
    Statistics(
      connections: monitor.withLock { $0 }.map { $0.taken + $0.takenByProbes } ?? 0,
      requests: service.requests,
      active: service.active)
  }
}
