/// Brings the bytes behind a source URL.
public protocol ImageFetcher: Sendable {
  /// Sends the request, follows redirects, and returns once the final response's header section is there.
  ///
  /// - Throws: what ``FetchError`` lists; `.cancelled` when the calling task is cancelled, in which case
  ///   the connection is closed and not used again.
  func fetch(_ request: FetchRequest) async throws(FetchError) -> FetchedResponse

  /// The one spelling for all that it takes for the same name or the same address; a host that is neither stays as it
  /// is. Asked once for each URL of a job.
  /// - Parameter host: ``SourceURL/host``, of one whose ``SourceURL/hasPlainHost`` is false.
  func spelling(of host: String) -> String
}

extension ImageFetcher {
  /// As it is: no two are the same.
  public func spelling(of host: String) -> String { host }

  /// By what the limits of origins know the URL's.
  public func origin(of url: SourceURL) -> String {
    url.hasPlainHost ? url.origin : url.origin(spelling: spelling(of: url.host))
  }
}

/// A GET for one image.
public struct FetchRequest: Sendable {
  /// What to ask for.
  public var url: SourceURL
  /// For whom, where several clients share what the fetcher has; nil: for the service itself.
  public var owner: Owner?
  /// Extra header fields. `Authorization`, `Cookie` and every other one that the client named go to the first
  /// origin only: a redirect to another origin drops them (Fetch standard, section 4.4).
  public var headers: [HeaderField]
  /// What makes it conditional or a request for a part, for each URL that something is known of.
  public var conditions: [FetchConditions] = []
  /// Asked what is known of a URL that a redirect leads to, before anything is sent there. `hasFields` says whether
  /// ``headers`` would be sent. Nil: nothing is known.
  public var lookUp: (@Sendable (_ url: SourceURL, _ hasFields: Bool) async -> KnownResponse)?
  /// Asked before a redirect is followed to another origin, as ``ImageFetcher/origin(of:)`` has it: it may wait there
  /// for its turn. Nil: none needed.
  public var admission: (@Sendable (_ origin: String) async throws(FetchError) -> Void)?
  /// From the start to the body's last byte, redirects included.
  public var timeout: Duration
  /// Of the body, as it is sent and, where it is coded, as it is without that.
  public var maxBytes: Int

  /// A request within these limits.
  public init(
    url: SourceURL, for owner: Owner? = nil, headers: [HeaderField] = [],
    conditions: [FetchConditions] = [], timeout: Duration, maxBytes: Int
  ) {
    (self.url, self.owner) = (url, owner)
    self.headers = headers
    self.conditions = conditions
    self.timeout = timeout
    self.maxBytes = maxBytes
  }
}

/// Knowledge that the caller of a fetch has of a URL that a redirect leads to.
public enum KnownResponse: Sendable, Equatable {
  /// A stored response answers, so nothing is sent: the fetch ends with ``FetchedResponse/isStored``.
  case answers
  /// The request gets these conditions, unless ``FetchRequest/conditions`` has some for that URL.
  case conditions([HeaderField])
}

/// What makes the request for one URL conditional or one for a part (RFC 9110 sections 13 and 14.2).
///
/// A validator says something of the URL that gave it out: two URLs' may be equal by chance or by intent. Wherever else
/// redirects lead is asked for the whole.
public struct FetchConditions: Sendable, Equatable {
  /// The only URL whose request has these fields.
  public var url: SourceURL
  /// `Range`, `If-Range`, `If-None-Match`, `If-Modified-Since`.
  public var fields: [HeaderField]

  /// Conditions of a request for that URL.
  public init(url: SourceURL, fields: [HeaderField]) {
    self.url = url
    self.fields = fields
  }
}

/// A response that sent a fetch elsewhere.
public struct FetchedRedirect: Sendable, Equatable {
  /// The URL that answered.
  public var url: SourceURL
  /// 301, 302, 303, 307 or 308.
  public var status: Int
  /// The response's header fields.
  public var headers: [HeaderField]
  /// Whether the request had the client's own header fields.
  public var hadFields: Bool
  /// From the fetch's start to this request.
  public var asked: Duration
  /// From the fetch's start to this response.
  public var answered: Duration

  /// A redirect.
  public init(
    url: SourceURL, status: Int, headers: [HeaderField], hadFields: Bool, asked: Duration,
    answered: Duration
  ) {
    self.url = url
    self.status = status
    self.headers = headers
    self.hadFields = hadFields
    self.asked = asked
    self.answered = answered
  }
}

/// A final response whose body is on its way.
public struct FetchedResponse: Sendable {
  /// The URL that answered, after redirects.
  public var url: SourceURL
  /// The responses that led there, in their order.
  public var redirects: [FetchedRedirect] = []
  /// Whether the last request had the client's own header fields.
  public var hadFields = true
  /// Whether nothing was sent to `url`, as the caller's stored response answers (``KnownResponse/answers``). There are no
  /// header fields and no content then, and the status is 200.
  public var isStored = false
  /// The status (RFC 9110 section 15): 200 or 203; 206 to a range and 304 to a condition that was asked for.
  public var status: Int
  /// The response's header fields.
  public var headers: [HeaderField]
  /// How many bytes come, where `Content-Length` said so; nil where content codings are undone on the way.
  public var contentLength: Int?
  /// The content, as it arrives, without the content codings that a 200 or 203 had (RFC 9110 section 8.4).
  public var body: any ImageBytes
  /// The name of a content coding that can't be undone. `body` is still coded then, unless the name is wrong.
  public var unsupportedCoding: String?
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

  /// Bytes received so far for what ``next()`` gave with content codings undone; 0 where there were none.
  var codedCount: Int { get }
}

extension ImageBytes {
  /// Not coded.
  public var codedCount: Int { 0 }
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
  /// The host is no address, and no name that could ever have one: an empty or too long label, or characters that no
  /// name has.
  case badHost(String)
  /// No connection.
  case connectFailure(host: String, detail: String)
  /// A connection, and on it no response or none that HTTP allows: the host is there.
  case noResponse(host: String, detail: String)
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
  /// A header section, interim responses included, beyond a limit.
  case headerTooLarge(HeaderLimit)
  /// The body ended before its end.
  case truncated(received: Int, expected: Int?)
  /// The body is no image, but has a content coding that can't be undone. For the caller to throw: see
  /// ``FetchedResponse/unsupportedCoding``.
  case unsupportedCoding(String)
  /// The body came whole, but breaks the rules of the content coding that it is said to have, or ends before its end.
  case brokenCoding(String)
  /// The calling task was cancelled.
  case cancelled
}

/// A limit of a response's header section.
public enum HeaderLimit: Sendable, Equatable, Codable {
  /// Lines: the status line and one for each field.
  case lines(Int)
  /// Bytes of all lines.
  case bytes(Int)
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
