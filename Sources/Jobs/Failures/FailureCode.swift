// The table of failures: the texts of each code, whose fault it is, and whether the job is tried again.
//
// Each error of a job is explained once, next to its declaration (`ExplainedError`): its code, and what happened in
// this case. `FailureCode.row` has what all errors of a code share. The API, the pages at /problems, the dashboard, the
// retry policy, the log and the metrics read both. A test compares openapi.yaml and docs/operating.md with the table.

/// The failure code: in a job's `error`, in logs and in metrics.
package enum FailureCode: String, Sendable, CaseIterable {
  case blockedAddress = "blocked_address"
  case dnsFailure = "dns_failure"
  case connectFailure = "connect_failure"
  case tlsFailure = "tls_failure"
  case timeout
  case stalled
  case tooManyRedirects = "too_many_redirects"
  case originStatus = "origin_status"
  case noData = "no_data"
  case tooLarge = "too_large"
  case tooManyPixels = "too_many_pixels"
  case unsupportedFormat = "unsupported_format"
  case truncated
  case decodeFailed = "decode_failed"
  case decoderCrashed = "decoder_crashed"
  case integrityMismatch = "integrity_mismatch"
  case notCached = "not_cached"
  case localNotFound = "local_not_found"
  case deliveryFailure = "delivery_failure"
  case storageFull = "storage_full"
  case `internal`

  /// The party at fault. The API derives the status of a response from it.
  package enum Fault: Sendable {
    /// The request asks for something that does not exist or is not allowed.
    case client
    /// The origin, its image, or the receiver of a delivery.
    case origin
    /// The origin, which is too slow.
    case slowOrigin
    /// This service.
    case service
    /// This service, which has no capacity at the moment.
    case fullService
  }

  private static let rows = Dictionary(uniqueKeysWithValues: allCases.map { ($0, $0.definition) })

  package var row: Row { Self.rows[self]! }  // has all cases

  /// The properties that all errors with a code share.
  package struct Row: Sendable {
    package let fault: Fault
    /// Whether the same job may succeed later without a change by the client. An ``Explanation`` may differ.
    let isRetryable: Bool
    /// For clients: a few words without a full stop.
    package let title: String
    /// For operators: what happened. Names are in backticks.
    package let meaning: String
    /// Advice for the client or the operator. Plain text without `&` and `<`.
    package let advice: String

    fileprivate init(
      _ fault: Fault, retry isRetryable: Bool, _ title: String, _ meaning: String, _ advice: String
    ) {
      (self.fault, self.isRetryable) = (fault, isRetryable)
      (self.title, self.meaning, self.advice) = (title, meaning, advice)
    }
  }

  private var definition: Row {
    switch self {
    case .blockedAddress:
      Row(
        .client, retry: false, "The URL is blocked by the configuration",
        "The configuration forbids the address, host, port or scheme of the URL or of a redirect.",
        """
        The operator can allow it with fetch.allow_networks, fetch.allow_hosts, fetch.allow_ports or \
        fetch.allow_schemes; reason says which. Private networks are blocked on purpose: attackers use such URLs to \
        reach services inside a network.
        """)
    case .dnsFailure:
      Row(
        .origin, retry: true, "The origin's name could not be resolved",
        """
        The name has no address, or the resolver did not answer. Invalid names (`a..b`) are not retried.
        """,
        """
        Check the host name in the URL. If it is right, the origin's name servers or the resolver of this service \
        did not answer.
        """)
    case .connectFailure:
      Row(
        .origin, retry: true, "The origin could not be reached",
        """
        No connection, no HTTP response, a `Transfer-Encoding` other than `chunked`, or the origin is paused.
        """,
        """
        Check the host and the port. If they are right, only the origin's operator can fix it. After several such \
        failures the service pauses requests to the origin for up to a minute.
        """)
    case .tlsFailure:
      Row(
        .origin, retry: false, "The TLS connection to the origin failed",
        "The origin's certificate has expired, is for another name, or is not trusted.",
        "Only the origin's operator can fix its certificate.")
    case .timeout:
      Row(
        .slowOrigin, retry: true, "The transfer took too long",
        "The transfer took longer than `fetch.timeout` or the job's own timeout.",
        "Set a longer timeout, or request a smaller image.")
    case .stalled:
      Row(
        .slowOrigin, retry: true, "The origin stopped sending",
        "The origin sent no byte for `fetch.stall_timeout`.",
        """
        The origin, or the network to it, is too slow. The next attempt resumes the transfer where it stopped, if the \
        origin allows that.
        """)
    case .tooManyRedirects:
      Row(
        .origin, retry: false, "Too many redirects",
        "The origin redirects more often than `fetch.max_redirects` allows.",
        "Check the URL for a redirect loop, or submit the URL that the redirects should lead to.")
    case .originStatus:
      Row(
        .origin, retry: false, "The origin did not respond with status 200",
        "The origin responded with an error, or with a redirect without a target.",
        """
        Check the URL, or ask the origin's operator. origin_status has the status. 404 and 410: the URL is wrong or \
        outdated. 401 and 403: the origin requires credentials, which the job can send in headers, or rejects \
        programs. 429 and most 5xx are temporary, and the service tries again.
        """)
    case .noData:
      Row(
        .origin, retry: false, "The image has no data",
        "The response or the upload has no content.",
        "Only the origin's operator can fix an empty response. If an upload was empty, send the file again."
      )
    case .tooLarge:
      Row(
        .origin, retry: false, "The response is too large",
        """
        The content, compressed or not, exceeds `fetch.max_bytes` or the job's own limit, or the header exceeds 264 \
        lines or 65536 bytes.
        """,
        "The operator can raise fetch.max_bytes. The limits of the header section are fixed.")
    case .tooManyPixels:
      Row(
        .origin, retry: false, "The image is too large to decode",
        "The image exceeds a limit of `decode`; `reason` says which.",
        """
        The operator can raise the limit of the reason: pixels (decode.max_pixels), dimensions \
        (decode.max_dimension), frames (decode.max_frames), scans (decode.max_scans) or memory (decode.max_memory). \
        The limits protect the service from images that are made to exhaust it.
        """)
    case .unsupportedFormat:
      Row(
        .origin, retry: false, "The image format is not supported",
        "The bytes are not an image, or of a format that `decode.formats` lacks.",
        """
        Supported are \(ImageFormat.allCases.phrase), as far as decode.formats lists them. \
        \(ImageFormat.needingIsolation.phrase) also need decoder processes (decode.isolation). The usual cause is a \
        web page in place of the image: some origins send one to programs.
        """)
    case .truncated:
      Row(
        .origin, retry: true, "The transfer ended early",
        "The connection ended early.",
        "The next attempt resumes the transfer where it stopped, if the origin allows that.")
    case .decodeFailed:
      Row(
        .origin, retry: false, "The image is corrupt",
        "The image or its content coding is corrupt.",
        "Only an intact copy of the file helps. Other programs may show a part of it.")
    case .decoderCrashed:
      Row(
        .origin, retry: false, "The image crashed its decoder",
        """
        The decoder process crashed, took too long or violated its rules; the log has the digest of the bytes.
        """,
        """
        The file is corrupt, or it is an attack. Other jobs are not affected. The service does not try again \
        automatically.
        """)
    case .integrityMismatch:
      Row(
        .client, retry: false, "The image does not match integrity",
        "The SHA-256 of the bytes differs from the job's `integrity`.",
        "The file has changed, or the digest belongs to another file.")
    case .notCached:
      Row(
        .client, retry: false, "The image is not in the cache",
        "The job has the cache mode `only-if-cached`, and the cache has no response.",
        "Submit the job without the cache mode only-if-cached.")
    case .localNotFound:
      Row(
        .client, retry: false, "There is no such local image",
        "No such file below `sources.local_root`.",
        "Check the name, or ask the operator to put the file into the folder sources.local_root.")
    case .deliveryFailure:
      Row(
        .origin, retry: true, "The image could not be delivered",
        "A destination in the job's `deliver` could not be reached, or refused the upload.",
        """
        The image is stored. POST /jobs/{id}/fetch delivers it again, without fetching it if it is still stored. \
        detail names the destination and its response. A presigned URL may have expired, or be signed for other \
        header fields.
        """)
    case .storageFull:
      Row(
        .fullService, retry: true, "The service has no storage space left",
        "No space: unfinished jobs fill `storage.max_bytes`, or the disk is full.",
        """
        The operator can free disk space, or raise storage.max_bytes or storage.max_record_bytes; the service then \
        continues without a restart.
        """)
    case .internal:
      Row(
        .service, retry: true, "The service had an internal error",
        "The fault is in this service, not in the request.",
        """
        The operator finds the cause in the log, under the request_id of the response or the id of the job.
        """)
    }
  }
}

/// An error that a job can fail with.
package protocol ExplainedError: Error, CustomStringConvertible {
  var explanation: Explanation { get }
}

extension ExplainedError {
  package var code: FailureCode { explanation.code }
  /// For the operator's log.
  package var description: String { explanation.log }
}

/// One error in words.
package struct Explanation: Sendable {
  package let code: FailureCode
  /// A sentence for clients. It reveals no address inside the network.
  package let detail: String
  /// A text for the operator's log, with all details of the error.
  let log: String
  /// The exceeded limit or violated rule in one word; nil if the code is enough.
  package let reason: String?
  /// The status of the origin's response.
  package let originStatus: Int?
  /// Whether the same job may succeed later without a change by the client.
  package let isRetryable: Bool

  /// - Parameters:
  ///   - log: nil: the detail.
  ///   - isRetryable: nil: as for the code.
  init(
    _ code: FailureCode, _ detail: Sentence, log: String? = nil, reason: String? = nil,
    originStatus: Int? = nil, isRetryable: Bool? = nil
  ) {
    (self.code, self.detail, self.log) = (code, detail.short, log ?? Self.fragment(detail.full))
    (self.reason, self.originStatus) = (reason, originStatus)
    self.isRetryable = isRetryable ?? code.row.isRetryable
  }

  /// A fault of the service. Only the log says more.
  static func fault(_ code: FailureCode = .internal, log: String) -> Explanation {
    Explanation(code, "The service had an internal error. See its log.", log: log)
  }

  /// The sentence as a part of a log line: without its capital letter and its full stop.
  private static func fragment(_ sentence: String) -> String {
    let text = sentence.hasSuffix(".") ? sentence.dropLast() : sentence[...]
    return text.hasPrefix("The") ? "t" + text.dropFirst() : String(text)
  }
}

/// An explanation of this case. Clients get at most 256 bytes of each text that the sentence quotes.
struct Sentence: ExpressibleByStringInterpolation {
  let full: String
  let short: String

  init(stringLiteral text: String) { (full, short) = (text, text) }
  init(stringInterpolation parts: StringInterpolation) { (full, short) = (parts.full, parts.short) }

  struct StringInterpolation: StringInterpolationProtocol {
    fileprivate private(set) var full = ""
    fileprivate private(set) var short = ""

    init(literalCapacity: Int, interpolationCount: Int) {}

    mutating func appendLiteral(_ text: String) {
      full += text
      short += text
    }
    mutating func appendInterpolation(_ text: String) {
      full += text
      short += text.shortened
    }
    mutating func appendInterpolation(_ number: Int) { appendLiteral("\(number)") }
    mutating func appendInterpolation(_ error: FetchError) {
      full += error.explanation.log
      short += error.explanation.detail
    }
  }
}

extension String {
  /// At most 256 bytes of a text from outside.
  package var shortened: String { utf8.count <= 256 ? self : prefix(bytes: 256) + "…" }
}
