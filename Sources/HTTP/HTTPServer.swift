package import Logging
package import Settings
import Synchronization

// HTTP: an HTTP/1.1 server on libmicrohttpd.
//
// Input: TCP connections. Output: each well-formed request is passed to a `RequestHandler`; the `Response` is
// sent back. Other requests go to a `RefusalHandler`. Read the files in this order:
//
// 1. `HTTPServer` (this file): start, stop, statistics and limits.
// 2. `Monitor`: the monitor thread. It accepts connections, enforces deadlines and stops the server.
// 3. `Daemon`: libmicrohttpd's threads and the functions that they call. `Sockets`: the listening socket and epoll.
// 4. `ClientConnection`: one client. `ClientConnection+Request`: one request, from its line to its response.
// 5. `RequestHead`: reads and checks a request's line and fields (RFC 9112).
// 6. `StreamWriter` (in `Response`): responses that are produced over time.

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

extension HTTPServer {
  /// The server's address and its limits for clients.
  package struct Configuration: Sendable {
    /// The address to listen on, or a name that resolves to one. `::` accepts IPv4, too.
    package var host = "127.0.0.1"
    /// The port; 0 selects a free one.
    package var port = 8080
    /// The number of threads that serve connections; 0 means one per core.
    package var threads = 0
    /// The most connections open at once. At the limit, connections that wait for a request are closed to
    /// admit new ones.
    package var maxConnections = 10_000
    /// The paths of health probes, and the number of extra connections for them. When `maxConnections` is
    /// reached, these connections admit new clients but answer only probes. Without paths, further clients
    /// wait in the listen queue.
    package var probes: (paths: Set<String>, connections: Int) = ([], 64)
    /// The longest time from a request's first byte to its last. A slower connection is closed.
    package var requestTimeout: Duration = .seconds(30)
    /// The longest silence between requests, or while a response is sent.
    package var idleTimeout: Duration = .seconds(60)
    /// The largest content of a request in bytes.
    package var maxBody = 32 << 20
    /// Whether a path accepts streamed content. It may be larger than `maxBody`, and `requestTimeout` applies
    /// to each piece. The handler must limit its size.
    package var takesStreams: @Sendable (_ path: String) -> Bool = { _ in false }
    /// The longest request target in bytes.
    var maxTarget = 8 << 10
    /// The largest header section in bytes, including the request line.
    ///
    /// libmicrohttpd stores it in a memory pool of fixed size per connection (`poolSize`). The pool has space
    /// for this many bytes and for the fields' bookkeeping, so this server normally refuses a request before
    /// the library does. If a header section fills the pool before it is complete, libmicrohttpd itself
    /// responds with 414 or 431, in HTML. openapi.yaml and docs/limits.md describe this.
    var maxHeader = 12 << 10
    /// The largest number of header fields.
    var maxFields = 100
    /// The certificate chain and its key, both PEM text; nil: no TLS.
    package var tls: (certificate: String, key: String)?

    package init() {}

    /// The number of connection slots for probes.
    var probeSlots: Int { probes.paths.isEmpty ? 0 : probes.connections }

    /// The memory pool of a connection in bytes: the header section, 64 bytes of bookkeeping per field, and 6
    /// KiB for the response's header section.
    var poolSize: Int {
      let size = maxHeader + 64 * maxFields + (6 << 10)
      return (size + 1023) / 1024 * 1024
    }
  }
}

extension HTTPServer.Configuration {
  /// The configuration keys of these settings.
  package static let settings: [Setting<HTTPServer.Configuration>] = [
    Setting(
      "server.host", \.host, .host,
      "Address to listen on. Any other than loopback needs auth.tokens, or auth.disabled: true."),
    Setting(
      "server.port", \.port, .integer(0...65_535),
      "Port; 0 for any free port, which the log line \"listening\" contains."),
    Setting(
      "server.threads", \.threads, .integer(0...1024),
      "Threads that serve connections; 0 for one per core."),
    Setting(
      "server.max_connections", \.maxConnections, .integer(1...1_000_000),
      "Maximum number of connections; 64 more are reserved for probes."),
    Setting(
      "server.request_timeout", \.requestTimeout, .duration(.milliseconds(1) ... .hours(1)),
      "Maximum time from the first byte of a request to its last; then the connection is closed."),
    Setting(
      "server.max_body", \.maxBody, .size(1...(4 << 30)),
      "Maximum size of a request body, such as an uploaded image or a batch."),
  ]
}

/// Why the server could not be started.
package enum ServerError: Error, Sendable, Equatable {
  /// The host is neither an address nor a name that resolves to one.
  case unknownHost(String)
  /// Listening on the address failed with `errno`.
  case addressUnavailable(host: String, port: Int, errno: Int32)
  /// The certificate or its key is not valid PEM.
  case invalidCertificate(detail: String)
  /// The system refused threads, memory or descriptors.
  case resourcesExhausted(detail: String)
  /// The installed libmicrohttpd is older than the oldest supported release.
  case libraryTooOld(version: String, oldest: String)
  /// The server was started before.
  case alreadyStarted
}
