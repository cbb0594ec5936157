extension HTTPServer {
  /// Where the server listens and what it lets a client take.
  public struct Configuration: Sendable {
    /// The address, or a name for one, to listen on; `::` takes IPv4 as well.
    public var host = "127.0.0.1"
    /// The port; 0 picks a free one.
    public var port = 8080
    /// Threads that serve connections; 0 is one a core.
    public var threads = 0
    /// Connections open at once. Where all are taken, those go first that wait for a request.
    public var maxConnections = 10_000
    /// The paths of probes, which get their answer also where all connections are taken: so many more are open for them,
    /// and any other request on one of those is refused. Without paths further clients wait in the listen queue.
    public var probes: (paths: Set<String>, connections: Int) = ([], 64)
    /// How long a request may take from its first byte to its last. A slower client is cut.
    public var requestTimeout: Duration = .seconds(30)
    /// How long a connection may be silent between requests, or while an answer is sent.
    public var idleTimeout: Duration = .seconds(60)
    /// The largest content of a request, in bytes.
    public var maxBody = 32 << 20
    /// Whether a path takes content for as long as it comes: it may be larger than `maxBody`, and a client has
    /// `requestTimeout` for each piece of it. What bounds it is whoever reads it.
    public var takesStreams: @Sendable (_ path: String) -> Bool = { _ in false }
    /// The longest request target, in bytes.
    public var maxTarget = 8 << 10
    /// The largest header section, in bytes, request line included.
    ///
    /// libmicrohttpd keeps it in a pool of fixed size a connection (`poolSize`), which is made to
    /// hold this much and the fields' bookkeeping, so that our refusals come before its own. A
    /// header section that is not over even when the pool is full, is answered by libmicrohttpd:
    /// 414 or 431, in HTML. openapi.yaml and docs/limits.md describe it.
    public var maxHeader = 12 << 10
    /// The most header fields.
    public var maxFields = 100
    /// The certificate chain and its key, both PEM text; nil serves without TLS.
    public var tls: (certificate: String, key: String)?

    /// The defaults.
    public init() {}

    /// Places that are kept for probes.
    var probePlaces: Int { probes.paths.isEmpty ? 0 : probes.connections }

    /// The memory of a connection: the header section, 64 bytes of bookkeeping a field, and room
    /// for the answer's header section.
    var poolSize: Int {
      let size = maxHeader + 64 * maxFields + (6 << 10)
      return (size + 1023) / 1024 * 1024
    }
  }
}
