package import Settings

extension CurlFetcher {
  /// The settings of a fetcher. The configuration file's reader has checked the bounds; only the errors of
  /// ``CurlFetcher/init(_:)`` are detected here.
  package struct Configuration: Sendable {
    /// Limits the name's lookup, and separately the TCP and TLS handshakes together.
    package var connectTimeout: Duration = .seconds(5)
    /// The longest time without a byte while the reader wants more.
    package var stallTimeout: Duration = .seconds(15)
    /// The number of redirects that are followed; one more is an error.
    package var maxRedirects = 5
    /// The `User-Agent` field of requests that have none of their own.
    package var userAgent = "imagefetch"
    /// An egress proxy, `http://[user:password@]host:port` or `https://…`. The fetcher sends it a CONNECT
    /// request for an address that the policy allows. Nil: no proxy; environment variables such as
    /// `http_proxy` are ignored.
    package var proxy: String?
    /// Where the fetcher may go.
    package var policy = AddressPolicy()
    /// A PEM file of the certificate authorities to trust instead of the system's.
    package var certificateAuthorities: String?
    /// The most connections at once. Further transfers wait in a queue, within their timeout.
    package var maxConnections = 10_000
    /// Connections kept open for later requests.
    package var maxIdleConnections = 256
    /// The most bytes of one response buffered for its reader. When the buffer is full, the transfer pauses.
    package var bufferSize = 262_144
    /// The largest header section of a response in bytes, including interim responses.
    package var maxHeaderBytes = 65_536
    /// Finds the addresses of names.
    package var resolver: any NameResolver = SystemResolver()
    /// The most names looked up at once, each on its own thread. Threads of abandoned lookups come in
    /// addition, up to four times this number of threads in total.
    package var maxLookups = 64
    /// How long the addresses of a name are cached. It is short, because the cache only serves bursts of
    /// requests.
    package var lookupCacheTime: Duration = .seconds(5)

    /// Whether the metric `imagefetch_fetch_open_transfers` counts this fetcher's transfers.
    package var isCounted = true

    package init() {}
  }
}

extension CurlFetcher.Configuration {
  /// The configuration keys of these settings.
  package static let settings: [Setting<CurlFetcher.Configuration>] =
    [
      Setting(
        "fetch.connect_timeout", \.connectTimeout, .duration(.milliseconds(1) ... .minutes(10)),
        "Maximum time to connect, including TLS."),
      Setting(
        "fetch.stall_timeout", \.stallTimeout, .duration(.milliseconds(1) ... .minutes(10)),
        "Maximum time without receiving a byte."),
      Setting(
        "fetch.max_redirects", \.maxRedirects, .integer(0...50),
        "Maximum redirects."),
      Setting(
        "fetch.proxy", \.proxy, .optional(.proxy),
        "An egress proxy; the address rules then apply to the URLs that it is asked for."),
    ] + AddressPolicy.settings.map { Setting($0, of: \.policy) }
}
