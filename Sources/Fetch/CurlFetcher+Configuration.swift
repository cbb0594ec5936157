extension CurlFetcher {
  /// How to fetch. The bounds are the configuration file's; nothing here is checked again but what
  /// ``CurlFetcher/init(_:)`` names.
  public struct Configuration: Sendable {
    /// For the name's lookup, and again for the TCP and TLS handshakes together.
    public var connectTimeout: Duration = .seconds(5)
    /// The longest time without a byte while we want some.
    public var stallTimeout: Duration = .seconds(15)
    /// How many redirects are followed; the next one is an error.
    public var maxRedirects = 5
    /// The `User-Agent` field, unless the request has its own.
    public var userAgent = "imagefetch"
    /// An egress proxy, `http://[user:password@]host:port` or `https://…`, asked by CONNECT for
    /// each judged address; nil: none, whatever the environment says.
    public var proxy: String?
    /// Where the fetcher may go.
    public var policy = AddressPolicy()
    /// A PEM file of the authorities to trust in place of the system's.
    public var certificateAuthorities: String?
    /// Connections at once; more transfers wait for their turn within their timeout.
    public var maxConnections = 10_000
    /// Connections kept open for later requests.
    public var maxIdleConnections = 256
    /// Bytes of one response that wait to be taken before its origin is held back.
    public var bufferSize = 262_144
    /// Of a response's header section, interim responses included, in bytes.
    public var maxHeaderBytes = 65_536
    /// Finds the addresses of names.
    public var resolver: any NameResolver = SystemResolver()
    /// Names looked up at once, each on a thread that lives no longer than there is work. With those
    /// that nobody waits for any more there are four times as many threads at the most.
    public var maxLookups = 64
    /// How long a name's addresses are used again. Short: it only spares a burst its repetitions.
    public var lookupCacheTime: Duration = .seconds(5)

    /// Whether its open transfers are the ones that the metrics tell of.
    public var isCounted = true

    /// The defaults.
    public init() {}
  }
}
