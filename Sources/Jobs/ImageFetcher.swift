/// Brings the bytes behind a source URL.
public protocol ImageFetcher: Sendable {
  /// Sends the request, follows redirects, and returns once the final response's header section is there.
  ///
  /// - Throws: what ``FetchError`` lists; `.cancelled` when the calling task is cancelled, in which case
  ///   the connection is closed and not used again.
  func fetch(_ request: FetchRequest) async throws(FetchError) -> FetchedResponse
}

/// A GET for one image.
public struct FetchRequest: Sendable {
  /// What to ask for.
  public var url: SourceURL
  /// Extra header fields. `Authorization`, `Cookie` and every other one that the client named go to the first
  /// origin only: a redirect to another origin drops them (Fetch standard, section 4.4).
  public var headers: [HeaderField]
  /// What makes the request conditional or one for a part (RFC 9110 sections 13 and 14.2): `Range`, `If-Range`,
  /// `If-None-Match`, `If-Modified-Since`. They go along to every origin that a redirect leads to.
  public var conditions: [HeaderField] = []
  /// Asked before a redirect is followed to another origin: it may wait there for its turn. Nil: none needed.
  public var admission: (@Sendable (_ origin: String) async throws(FetchError) -> Void)?
  /// From the start to the body's last byte, redirects included.
  public var timeout: Duration
  /// Of the body.
  public var maxBytes: Int

  /// A request within these limits.
  public init(
    url: SourceURL, headers: [HeaderField] = [], conditions: [HeaderField] = [], timeout: Duration,
    maxBytes: Int
  ) {
    self.url = url
    self.headers = headers
    self.conditions = conditions
    self.timeout = timeout
    self.maxBytes = maxBytes
  }
}

/// A final response whose body is on its way.
public struct FetchedResponse: Sendable {
  /// The URL that answered, after redirects.
  public var url: SourceURL
  /// The status (RFC 9110 section 15): 200 or 203; 206 to a range and 304 to a condition that was asked for.
  public var status: Int
  /// The response's header fields.
  public var headers: [HeaderField]
  /// What `Content-Length` said.
  public var contentLength: Int?
  /// The content, as it arrives.
  public var body: any ImageBytes
  /// How long each step of the transfer took.
  public var timings: TransferTimings

  /// A response.
  public init(
    url: SourceURL, status: Int, headers: [HeaderField], contentLength: Int?,
    body: any ImageBytes, timings: TransferTimings
  ) {
    self.url = url
    self.status = status
    self.headers = headers
    self.contentLength = contentLength
    self.body = body
    self.timings = timings
  }
}

/// Bytes of one image, taken in order by one task. Letting go of it ends what brings the bytes.
public protocol ImageBytes: AnyObject, Sendable {
  /// Waits for bytes and takes all that have arrived; nil after the last. While nobody takes any, the
  /// sender is held back once a bounded buffer (64 to 256 KiB) is full.
  ///
  /// - Throws: `.cancelled` when the calling task is cancelled.
  func next() async throws(FetchError) -> [UInt8]?
}

/// How long each step of a transfer took, the last hop's where there were redirects.
public struct TransferTimings: Sendable, Equatable {
  /// The name's resolution; zero on a reused connection.
  public var dns: Duration = .zero
  /// The TCP handshake.
  public var connect: Duration = .zero
  /// The TLS handshake.
  public var tls: Duration = .zero
  /// From the start to the response's first byte.
  public var firstByte: Duration = .zero

  /// All zero.
  public init() {}
}

/// Why a fetch brought no image's bytes.
public enum FetchError: Error, Sendable, Equatable, Codable {
  /// The address rule, or the configuration's, forbids to go there. No byte was sent.
  case blocked(target: String, BlockReason)
  /// The name has no address, or no answer came in time.
  case dnsFailure(host: String, detail: String)
  /// No connection, or one that spoke no HTTP.
  case connectFailure(host: String, detail: String)
  /// The origin could not be reached by so many requests in a row: nothing was sent, and the next one will try again
  /// after so many seconds.
  case unreachable(origin: String, failures: Int, seconds: Double)
  /// No trusted TLS session.
  case tlsFailure(host: String, detail: String)
  /// Not done in time.
  case timeout(seconds: Double)
  /// No byte came for so long.
  case stalled(seconds: Double)
  /// More redirects than allowed.
  case tooManyRedirects(limit: Int)
  /// A redirect without a usable `Location`.
  case badRedirect(status: Int, location: String?)
  /// A final status that brings no image; `retryAfter` is the `Retry-After` field (RFC 9110 section 10.2.3) in seconds.
  case originStatus(Int, retryAfter: Double?)
  /// A body without a byte.
  case noData
  /// More bytes than `limit`, said or sent.
  case tooLarge(limit: Int)
  /// The body ended before its end.
  case truncated(received: Int, expected: Int?)
  /// The calling task was cancelled.
  case cancelled
}

/// Why the fetcher may not go somewhere.
public enum BlockReason: Sendable, Equatable, Codable {
  /// The address is in a network that is never fetched from; `name` is the registry's or the configuration's word
  /// for it ("Loopback", "Private-Use", "deny_networks").
  case address(String, name: String)
  /// The host's name is denied or not among those allowed.
  case host
  /// The port is not among those allowed.
  case port(Int)
  /// The scheme is not among those allowed.
  case scheme(String)
}
