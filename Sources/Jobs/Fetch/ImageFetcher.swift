/// Fetches the bytes behind a source URL.
package protocol ImageFetcher: Sendable {
  /// Sends the request, follows redirects, and returns once the header section of the final response has
  /// arrived. The body has not been read.
  ///
  /// - Throws: A ``FetchError``. It is `.cancelled` if the calling task is cancelled; the connection is then
  ///   closed and not reused.
  func fetch(_ request: FetchRequest) async throws(FetchError) -> FetchedResponse

  /// Returns the canonical spelling of a host: one spelling for all names and addresses that the fetcher
  /// treats as the same host. Returns any other host unchanged. Called once for each URL of a job.
  /// - Parameter host: The ``SourceURL/host`` of a URL whose ``SourceURL/hasPlainHost`` is false.
  func canonicalSpelling(of host: String) -> String
}

extension ImageFetcher {
  /// Returns the host unchanged.
  package func canonicalSpelling(of host: String) -> String { host }

  /// Returns the origin of the URL as the per-origin limits identify it.
  package func origin(of url: SourceURL) -> String {
    url.hasPlainHost ? url.origin : url.origin(spelling: canonicalSpelling(of: url.host))
  }
}

/// A GET request for one image.
package struct FetchRequest: Sendable {
  /// The default of `fetch.timeout`.
  package static let usualTimeout: Duration = .seconds(60)
  /// The default of `fetch.max_bytes`.
  package static let usualMaxBytes = 32 << 20

  package var url: SourceURL
  /// The owner of the request, for limits that owners share; nil for the service itself.
  package var owner: Owner?
  /// Additional header fields. `Authorization`, `Cookie` and every other field that the client set go to the
  /// first origin only: a redirect to another origin drops them (Fetch standard, section 4.4).
  package var headers: [HeaderField]
  /// Conditional or range fields, for each URL with a stored response or a partial transfer.
  package var conditions: [FetchConditions] = []
  /// Called before a redirect is followed, to look up what is stored for the new URL. `hasFields` is true if
  /// ``headers`` would be sent there. Nil means that nothing is stored.
  package var lookUp: (@Sendable (_ url: SourceURL, _ hasFields: Bool) async -> KnownResponse)?
  /// Called before a redirect to another origin is followed (``ImageFetcher/origin(of:)``). It may wait until
  /// that origin has capacity. Nil means that no permit is needed.
  package var admission: (@Sendable (_ origin: String) async throws(FetchError) -> Void)?
  /// The time limit from the start to the last byte of the body, including redirects.
  package var timeout: Duration
  /// The limit of the body in bytes. It applies to the bytes sent and to the bytes after content decoding.
  package var maxBytes: Int

  package init(
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

/// What the caller has stored for the URL of a redirect.
package enum KnownResponse: Sendable, Equatable {
  /// A stored response answers the request. Nothing is sent, and the fetch ends with
  /// ``FetchedResponse/isStored``.
  case answers
  /// The request gets these conditional fields, unless ``FetchRequest/conditions`` has some for the URL.
  case conditions([HeaderField])
}

/// Header fields that make the request for one URL conditional or a range request (RFC 9110 sections 13 and
/// 14.2).
///
/// They are bound to the URL because validators of two URLs can be equal by chance or by intent. Requests for
/// other URLs of a redirect chain ask for the complete representation.
package struct FetchConditions: Sendable, Equatable {
  /// The only URL that is requested with these fields.
  package var url: SourceURL
  /// `Range`, `If-Range`, `If-None-Match`, `If-Modified-Since`.
  package var fields: [HeaderField]

  package init(url: SourceURL, fields: [HeaderField]) {
    self.url = url
    self.fields = fields
  }
}

/// A redirect response.
package struct FetchedRedirect: Sendable, Equatable {
  /// The URL that answered.
  var url: SourceURL
  /// 301, 302, 303, 307 or 308.
  package var status: Int
  /// The response's header fields.
  package var headers: [HeaderField]
  /// Whether the request contained the client's own header fields.
  package var hadFields: Bool
  /// Time from the start of the fetch to this request.
  package var asked: Duration
  /// Time from the start of the fetch to this response.
  package var answered: Duration

  package init(
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

/// A final response whose body is still arriving.
package struct FetchedResponse: Sendable {
  /// The URL that answered, after redirects.
  package var url: SourceURL
  /// The redirects before it, in order.
  package var redirects: [FetchedRedirect] = []
  /// Whether the last request contained the client's own header fields.
  package var hadFields = true
  /// Whether the caller's stored response answers (``KnownResponse/answers``). Nothing was sent to `url`
  /// then: `headers` is empty, there is no content, and the status is 200.
  package var isStored = false
  /// The status (RFC 9110 section 15): 200 or 203, 206 for a range request, 304 for a conditional request.
  package var status: Int
  /// The response's header fields.
  package var headers: [HeaderField]
  /// The value of `Content-Length` in bytes; nil if the field is absent or the body is content-coded.
  package var contentLength: Int?
  /// The content as it arrives. The content codings of a 200 or 203 (RFC 9110 section 8.4) are already
  /// decoded.
  package var body: any ImageBytes
  /// The name of a content coding that the fetcher does not support. `body` is then still coded, unless the
  /// origin declared the coding by mistake.
  package var unsupportedCoding: String?
  /// Duration of each step of the transfer.
  package var timings: TransferTimings

  package init(
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

/// The body of one response, read in order by one task. Releasing it stops the transfer.
package protocol ImageBytes: AnyObject, Sendable {
  /// Waits for bytes and returns all that have arrived; nil after the last. While the caller does not read, a
  /// bounded buffer of 64 to 256 KiB fills up, and then the sender has to wait.
  ///
  /// - Throws: `.cancelled` if the calling task is cancelled.
  func next() async throws(FetchError) -> [UInt8]?

  /// Bytes received, before content decoding, for the data that ``next()`` has returned; 0 if the body is not
  /// coded.
  var codedCount: Int { get }
}

extension ImageBytes {
  /// The body is not coded.
  package var codedCount: Int { 0 }
}

/// Duration of each step of a transfer; of the last request if there were redirects.
package struct TransferTimings: Sendable, Equatable {
  /// Name resolution; zero on a reused connection.
  package var dns: Duration = .zero
  /// The TCP handshake.
  package var connect: Duration = .zero
  /// The TLS handshake.
  package var tls: Duration = .zero
  /// From the start to the first byte of the response.
  package var firstByte: Duration = .zero

  package init() {}
}

extension [HeaderField] {
  /// The content codings of the body except `identity` (RFC 9110 section 8.4), in lower case, in the order in
  /// which they were applied.
  package var contentCodings: [String] {
    filter { $0.name.lowercased() == "content-encoding" }
      .flatMap { $0.value.lowercased().split(separator: ",") }
      .map { coding in
        let blanks: Set<Character> = [" ", "\t"]
        let end = coding.lastIndex { !blanks.contains($0) }.map { coding.index(after: $0) }
        return String(coding[..<(end ?? coding.startIndex)].drop { blanks.contains($0) })
      }
      .filter { !["", "identity"].contains($0) }
  }
}

/// A `Content-Range` field in bytes (RFC 9110 section 14.4), for example `bytes 5-9/10`.
package struct ContentRange: Equatable, Sendable {
  package let first: Int
  package let last: Int
  /// The size of the complete representation; nil if the field does not state it (`bytes 5-9/*`).
  package let total: Int?

  /// Returns nil for other units, for unsatisfied ranges (`bytes */10`) and for malformed fields.
  package init?(_ text: String) {
    let words = text.split(separator: " ")
    guard words.count == 2, words[0].lowercased() == "bytes" else { return nil }
    let parts = words[1].split(separator: "/", omittingEmptySubsequences: false)
    guard parts.count == 2 else { return nil }
    let total = Self.number(parts[1])
    guard total != nil || parts[1] == "*" else { return nil }
    let ends = parts[0].split(separator: "-", omittingEmptySubsequences: false)
    guard ends.count == 2, let first = Self.number(ends[0]), let last = Self.number(ends[1]),
      first <= last, last < total ?? .max
    else { return nil }
    (self.first, self.last, self.total) = (first, last, total)
  }

  private static func number(_ text: Substring) -> Int? {
    guard !text.isEmpty, text.utf8.allSatisfy({ 0x30...0x39 ~= $0 }) else { return nil }
    return Int(text)
  }
}

/// Response statuses of temporary errors.
package enum TransientStatus {
  /// Whether the same request may succeed later.
  package static func contains(_ status: Int) -> Bool {
    [408, 425, 429, 500, 502, 503, 504].contains(status) || isOfGateway(status)
  }

  /// Cloudflare's statuses for an origin that is unreachable or overloaded. Excludes 526, an invalid
  /// certificate, because that error is not temporary.
  package static func isOfGateway(_ status: Int) -> Bool { 520...530 ~= status && status != 526 }
}
