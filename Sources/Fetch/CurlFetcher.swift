internal import Glibc
package import Jobs
internal import Logging
internal import Metrics
package import Settings
internal import Synchronization

// Fetch: downloads images, and sends the service's own requests, with libcurl.
//
// Input: a `FetchRequest` or an `OutgoingRequest`. Output: the response's head and its body as pieces of
// bytes, or a `FetchError`. Read the files in this order:
//
// 1. `CurlFetcher` (this file): one fetch, from its URL through its redirects to the response;
//    `CurlFetcher+Sending` sends requests that do not fetch an image.
// 2. `Router`, `Names/`, `Addresses/`: resolve the host and check every address against the `AddressPolicy`.
// 3. `Transfer/EventLoop`: the thread `fetch-loop`, which drives all transfers with epoll and libcurl's multi
//    handle.
// 4. `Transfer/Transfer`: one libcurl transfer. `Transfer/TransferExchange` passes its bytes from that thread to the
//    reading task.
// 5. `Content/`: decodes content codings on the reader's thread.
//
// Names are looked up on the threads `fetch-names`. No code here blocks Swift's shared threads.

/// Fetches images over HTTP/1.1 and, where a TLS origin supports it, HTTP/2. Connections are reused.
///
/// The fetcher resolves names itself and checks every address against the policy before it opens a socket. It
/// also follows redirects itself and checks each of them like the first URL. It never blocks Swift's shared
/// threads.
package final class CurlFetcher: ImageFetcher {
  private let configuration: Configuration
  let router: Router
  let running: RunningLoop
  private let metrics = FetchMetrics()
  private let log = Logger(label: "imagefetch.fetch")
  private let lastID = Atomic<UInt64>(0)

  /// Starts the thread that drives the transfers.
  /// - Throws: ``FetcherSetupError``.
  package init(_ configuration: Configuration = Configuration()) throws(FetcherSetupError) {
    if let path = configuration.certificateAuthorities, access(path, R_OK) != 0 {
      throw .unreadableCertificates(path: path)
    }
    self.configuration = configuration
    router = try Router(configuration)
    let gauge = metrics.openTransfers
    let settings = TransferSettings(configuration)
    let isCounted = configuration.isCounted
    running = RunningLoop(
      try EventLoop(settings: settings) { if isCounted { gauge.record($0) } })
  }

  /// Cancels every transfer and stops the thread. Returns when both are done. Later fetches throw
  /// `.cancelled`. Blocks for some milliseconds.
  package func shutdown() {
    running.loop.post(.stop)
    running.loop.waitForEnd()
  }

  /// Fetches one image; see ``ImageFetcher``.
  ///
  /// If the request has `conditions`, the response may also have the status 206 or 304. Without conditions
  /// these statuses throw `.originStatus`. `maxBytes` limits the received body; for a 206 that is the part.
  package func fetch(_ request: FetchRequest) async throws(FetchError) -> FetchedResponse {
    do throws(FetchError) {
      return try await followRedirects(request)
    } catch {
      metrics.count(error)
      log.debug(
        "fetch failed",
        metadata: ["host": "\(request.url.host)", "outcome": "\(FetchMetrics.name(error))"])
      throw error
    }
  }

  /// The one spelling of a host by which origins are compared; see ``HostName``.
  package func canonicalSpelling(of host: String) -> String {
    HostName(host)?.originSpelling ?? host
  }

  private func followRedirects(_ request: FetchRequest) async throws(FetchError) -> FetchedResponse
  {
    let start = ContinuousClock.now
    let deadline = start + request.timeout
    var url = request.url
    var fields = RequestFields.permitted(request.headers)
    var hasFields = true
    var at = origin(of: url)
    var redirects: [FetchedRedirect] = []
    var conditions = RequestFields.conditions(request.conditions, for: url)
    while true {
      if Task.isCancelled { throw .cancelled }
      let asked = start.duration(to: .now)
      let (exchange, route, head) = try await sendHop(
        to: url, of: request.owner, by: router, fields: fields + conditions,
        maxBytes: request.maxBytes, timeout: request.timeout, by: deadline)
      guard Redirect.isRedirect(head.status) else {
        var response = try accept(
          head, exchange, url: url, conditions: conditions, maxBytes: request.maxBytes)
        response.redirects = redirects
        response.hadFields = hasFields
        return response
      }
      exchange.discard()
      guard redirects.count < configuration.maxRedirects else {
        throw .tooManyRedirects(limit: configuration.maxRedirects)
      }
      redirects.append(
        FetchedRedirect(
          url: url, status: head.status, headers: head.fields, hadFields: hasFields, asked: asked,
          answered: start.duration(to: .now)))
      let target = try Redirect.target(of: head, from: route.url)
      let next = origin(of: target)
      if next != at { (fields, hasFields) = ([], false) }
      conditions = RequestFields.conditions(request.conditions, for: target)
      switch await request.lookUp?(target, hasFields) {
      case .answers:
        metrics.count(nil)
        return .stored(at: target, over: redirects, hadFields: hasFields, timings: head.timings)
      case .conditions(let known):
        if conditions.isEmpty { conditions = RequestFields.sound(known) }
      case nil: break
      }
      if next != at { try await request.awaitAdmission(to: next, by: deadline) }
      (url, at) = (target, next)
    }
  }

  /// Sends the request for one hop and waits for the response's header section.
  func sendHop(
    to url: SourceURL, of owner: Owner?, by router: Router, fields: [HeaderField],
    method: OutgoingRequest.Method = .get,
    content: OutgoingContent? = nil, maxBytes: Int, timeout: Duration,
    by deadline: ContinuousClock.Instant
  ) async throws(FetchError) -> (TransferExchange, TransferRoute, ResponseHead) {
    let started = ContinuousClock.now
    let route: TransferRoute
    do throws(FetchError) {
      route = try await router.route(to: url, for: owner, by: deadline)
    } catch {
      switch error {
      case .dnsFailure where deadline <= .now, .connectFailure where deadline <= .now:
        throw .timeout(seconds: timeout.roundedSeconds)
      default: throw error
      }
    }
    let exchange = TransferExchange(
      id: lastID.add(1, ordering: .relaxed).newValue, loop: running.loop,
      capacity: configuration.bufferSize, maxBytes: maxBytes)
    running.loop.post(
      .start(
        TransferPlan(
          exchange: exchange, route: route, method: method, headers: fields, content: content,
          deadline: deadline, timeout: timeout, started: started)))
    let head = try await exchange.head()
    return (exchange, route, head)
  }

  private func accept(
    _ head: ResponseHead, _ exchange: TransferExchange, url: SourceURL, conditions: [HeaderField],
    maxBytes: Int
  ) throws(FetchError) -> FetchedResponse {
    let head = head.whole(if: !RequestFields.contain("range", in: conditions))
    if let error = Self.objection(to: head, conditions: conditions, maxBytes: maxBytes) {
      if case .tooLarge = error { exchange.cancel() } else { exchange.discard() }
      throw error
    }
    let (codings, unsupported): ([ContentCoding], String?) =
      switch ContentCoding.applied(to: head) {
      case .known(let codings): (codings, nil)
      case .unsupported(let name): ([], name)
      }
    let body = FetchedBody(
      exchange, codings: codings, maxBytes: maxBytes, mayBeEmpty: head.status == 304,
      metrics: metrics, running: running)
    var response = FetchedResponse(
      url: url, status: head.status, headers: head.fields,
      contentLength: codings.isEmpty ? head.contentLength : nil, body: body,
      timings: head.timings)
    response.unsupportedCoding = unsupported
    return response
  }

  private static func objection(
    to head: ResponseHead, conditions: [HeaderField], maxBytes: Int
  ) -> FetchError? {
    switch head.status {
    case 200, 203: break
    case 206 where RequestFields.contain("range", in: conditions): break
    case 304
    where RequestFields.contain("if-none-match", in: conditions)
      || RequestFields.contain("if-modified-since", in: conditions):
      return nil
    case 204: return .noData
    default:
      let value = head.fields.first { $0.name.lowercased() == "retry-after" }?.value
      return .originStatus(head.status, retryAfter: value.flatMap { RetryAfter.seconds($0) })
    }
    if let length = head.contentLength, length > maxBytes { return .tooLarge(limit: maxBytes) }
    // An empty part does not mean that the whole image is empty.
    return head.contentLength == 0 && head.status != 206 ? .noData : nil
  }
}

extension FetchedResponse {
  /// A response for a redirect whose target the caller already has in its cache.
  fileprivate static func stored(
    at url: SourceURL, over redirects: [FetchedRedirect], hadFields: Bool, timings: TransferTimings
  ) -> FetchedResponse {
    var response = FetchedResponse(
      url: url, status: 200, headers: [], contentLength: nil, body: NoBytes(), timings: timings)
    (response.redirects, response.hadFields, response.isStored) = (redirects, hadFields, true)
    return response
  }

  private final class NoBytes: ImageBytes {
    func next() async throws(FetchError) -> [UInt8]? { nil }
  }
}

extension ResponseHead {
  /// Returns the head with status 200 if it is a 206 whose part is the complete content (RFC 9110 section
  /// 15.3.7).
  fileprivate func whole(if isUnasked: Bool) -> ResponseHead {
    guard isUnasked, status == 206, let contentLength,
      let text = fields.last(where: { $0.name.lowercased() == "content-range" })?.value,
      let range = ContentRange(text), range.first == 0, range.last + 1 == contentLength,
      range.total == contentLength
    else { return self }
    var whole = self
    whole.status = 200
    return whole
  }
}

/// Stops the loop's thread once neither the fetcher nor any response body uses it.
final class RunningLoop: Sendable {
  let loop: EventLoop

  init(_ loop: EventLoop) { self.loop = loop }

  deinit { loop.post(.stop) }
}

extension TransferSettings {
  init(_ configuration: CurlFetcher.Configuration) {
    self.init(
      connectTimeout: configuration.connectTimeout,
      stallTimeout: configuration.stallTimeout, userAgent: configuration.userAgent,
      certificateAuthorities: configuration.certificateAuthorities,
      maxConnections: configuration.maxConnections,
      maxIdleConnections: configuration.maxIdleConnections,
      maxHeaderBytes: configuration.maxHeaderBytes)
  }
}

/// A response's body for the one task that reads it. Releasing it closes the transfer.
final class FetchedBody: ImageBytes {
  private struct State {
    var received = 0
    var counted = 0
    var isOver = false
  }

  private let exchange: TransferExchange
  /// The exchange's bytes with the content codings decoded.
  private let content: any ImageBytes
  private let isCoded: Bool
  private let metrics: FetchMetrics
  private let running: RunningLoop
  private let mayBeEmpty: Bool
  private let state = Mutex(State())

  /// - Parameters:
  ///   - codings: The content codings, in the order they were applied.
  ///   - maxBytes: The limit for the output of each decoder.
  init(
    _ exchange: TransferExchange, codings: [ContentCoding], maxBytes: Int, mayBeEmpty: Bool,
    metrics: FetchMetrics, running: RunningLoop
  ) {
    self.exchange = exchange
    content = codings.reversed().reduce(exchange) { source, coding in
      DecodedContent(source, coding: coding, maxBytes: maxBytes)
    }
    isCoded = !codings.isEmpty
    self.mayBeEmpty = mayBeEmpty
    self.metrics = metrics
    self.running = running
    if mayBeEmpty { recordEnd(nil) }  // the body of a 304 is usually not read
  }

  deinit {
    exchange.cancel()
    recordEnd(.cancelled)
  }

  var codedCount: Int { isCoded ? exchange.received : 0 }

  func next() async throws(FetchError) -> [UInt8]? {
    do throws(FetchError) {
      guard let bytes = try await content.next() else {
        guard mayBeEmpty || state.withLock({ $0.received > 0 }) else { throw .noData }
        recordEnd(nil)
        return nil
      }
      count(bytes.count)
      return bytes
    } catch {
      recordEnd(error)
      throw error
    }
  }

  private func count(_ taken: Int) {
    let sent = isCoded ? exchange.received : nil
    let new = state.withLock { state in
      state.received += taken
      defer { state.counted = sent ?? state.received }
      return (sent ?? state.received) - state.counted
    }
    metrics.bytes.increment(by: new)
  }

  /// Counts the end of the fetch once; later calls do nothing.
  private func recordEnd(_ error: FetchError?) {
    let isFirst = state.withLock { state in
      defer { state.isOver = true }
      return !state.isOver
    }
    if isFirst { metrics.count(error) }
  }
}

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
    var maxIdleConnections = 256
    /// The most bytes of one response buffered for its reader. When the buffer is full, the transfer pauses.
    var bufferSize = 262_144
    /// The largest header section of a response in bytes, including interim responses.
    var maxHeaderBytes = 65_536
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

/// The fetcher's metrics. Create it after the metrics system is set up.
final class FetchMetrics: Sendable {
  let bytes = Counter(label: "imagefetch_fetch_bytes_total")
  let openTransfers = Gauge(label: "imagefetch_fetch_open_transfers")

  /// Every failure code has a counter from the start, so that a rate includes its first fetch. Some codes never result
  /// from a fetch.
  private let outcomes = Dictionary(
    uniqueKeysWithValues: (["success", "cancelled"] + FailureCode.allCases.map(\.rawValue)).map {
      ($0, Counter(label: "imagefetch_fetch_requests_total", dimensions: [("outcome", $0)]))
    })

  /// Counts a finished fetch.
  /// - Parameter error: Nil if the whole body was read.
  func count(_ error: FetchError?) { outcomes[Self.name(error)]?.increment() }

  /// The value of the label `outcome`: a failure code, `success` or `cancelled`.
  static func name(_ error: FetchError?) -> String {
    switch error {
    case nil: "success"
    case .cancelled: "cancelled"
    case .some(let error): error.code.rawValue
    }
  }
}

/// The reason why a fetcher could not be created.
package enum FetcherSetupError: Error, Sendable, Equatable {
  /// libcurl could not be initialized.
  case curlUnavailable
  /// The process has no free file descriptor.
  case noDescriptor(errno: Int32)
  /// The proxy is not `http://` or `https://` with a host.
  case unusableProxy
  /// The file of certificate authorities cannot be read.
  case unreadableCertificates(path: String)
}

extension FetcherSetupError: CustomStringConvertible {
  /// The reason, for the operator.
  package var description: String {
    switch self {
    case .curlUnavailable: "initialization failed"
    case .noDescriptor(let code): "no free file descriptor: \(String(cString: strerror(code)))"
    case .unusableProxy: "the proxy must be http:// or https:// with a host"
    case .unreadableCertificates(let path): "the certificate authorities in \(path) cannot be read"
    }
  }
}
