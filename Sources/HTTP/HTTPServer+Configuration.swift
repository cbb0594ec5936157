package import Settings

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
    package var maxTarget = 8 << 10
    /// The largest header section in bytes, including the request line.
    ///
    /// libmicrohttpd stores it in a memory pool of fixed size per connection (`poolSize`). The pool has space
    /// for this many bytes and for the fields' bookkeeping, so this server normally refuses a request before
    /// the library does. If a header section fills the pool before it is complete, libmicrohttpd itself
    /// responds with 414 or 431, in HTML. openapi.yaml and docs/limits.md describe this.
    package var maxHeader = 12 << 10
    /// The largest number of header fields.
    package var maxFields = 100
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
