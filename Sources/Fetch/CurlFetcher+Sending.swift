package import Jobs

/// A request that does not fetch an image. It goes to a service that the operator configured, or to a URL
/// that a client named for a webhook or a delivery.
package struct OutgoingRequest: Sendable {
  /// The request method (RFC 9110 section 9).
  package enum Method: String, Sendable {
    /// Methods without content.
    case get = "GET"
    case delete = "DELETE"
    /// Methods with content.
    case put = "PUT"
    case post = "POST"
  }

  var method: Method
  package var url: SourceURL
  /// The owner of the job that the request is sent for. Nil: the service itself.
  var owner: Owner?
  /// Header fields, sent as they are.
  var fields: [HeaderField]
  /// The request's content, for `put` and `post` only.
  package var content: OutgoingContent?
  /// The time until the end of the response.
  package var timeout: Duration
  /// The limit for the response's content, in bytes.
  var maxBytes: Int

  package init(
    _ method: Method, _ url: SourceURL, for owner: Owner? = nil, fields: [HeaderField] = [],
    content: OutgoingContent? = nil, timeout: Duration, maxBytes: Int
  ) {
    self.method = method
    (self.url, self.owner) = (url, owner)
    self.fields = fields
    self.content = content
    self.timeout = timeout
    self.maxBytes = maxBytes
  }
}

/// The content of a request. The transfer thread reads it piece by piece, so `read` must not block for long.
/// A file should have been written or read just before, so that it is in the page cache.
package struct OutgoingContent: Sendable {
  /// The content's length in bytes.
  package let count: Int
  /// Returns up to `count` bytes from `offset` on. The transfer fails if it returns fewer.
  package let read: @Sendable (_ offset: Int, _ count: Int) -> [UInt8]

  /// Content that `read` supplies.
  package init(count: Int, read: @escaping @Sendable (_ offset: Int, _ count: Int) -> [UInt8]) {
    self.count = count
    self.read = read
  }

  /// Content in memory.
  package init(_ bytes: [UInt8]) {
    count = bytes.count
    read = { offset, count in Array(bytes.dropFirst(offset).prefix(count)) }
  }
}

extension CurlFetcher {
  /// Returns a sender with its own policy that uses this fetcher's thread and proxy.
  package func sender(under policy: AddressPolicy) -> CurlSender {
    CurlSender(self, router.under(policy))
  }

  /// Sends a request as it is and returns the response. It follows no redirect, treats no status as an error
  /// and decodes no content coding. The address policy applies.
  ///
  /// - Throws: The reason why there is no response.
  package func send(_ request: OutgoingRequest) async throws(FetchError) -> FetchedResponse {
    try await response(to: request, by: router)
  }

  fileprivate func response(
    to request: OutgoingRequest, by router: Router
  ) async throws(FetchError) -> FetchedResponse {
    let (exchange, head) = try await send(request, by: router)
    return FetchedResponse(
      url: request.url, status: head.status, headers: head.fields,
      contentLength: head.contentLength,
      body: SentBody(exchange, running), timings: head.timings)
  }

  fileprivate func send(
    _ request: OutgoingRequest, by router: Router
  ) async throws(FetchError) -> (TransferExchange, ResponseHead) {
    let (exchange, _, head) = try await sendHop(
      to: request.url, of: request.owner, by: router,
      fields: RequestFields.sendable(request.fields), method: request.method,
      content: request.content, maxBytes: request.maxBytes, timeout: request.timeout,
      by: .now + request.timeout)
    return (exchange, head)
  }
}

/// Sends requests to URLs that clients name, under its own address policy. It follows no redirect.
package struct CurlSender: Sendable {
  private let fetcher: CurlFetcher
  private let router: Router

  fileprivate init(_ fetcher: CurlFetcher, _ router: Router) {
    (self.fetcher, self.router) = (fetcher, router)
  }

  /// Sends a request as it is and returns the response; see ``CurlFetcher/send(_:)``.
  package func send(_ request: OutgoingRequest) async throws(FetchError) -> FetchedResponse {
    try await fetcher.response(to: request, by: router)
  }

  /// Sends a request and returns the head of the response. The response's content is discarded.
  func head(of request: OutgoingRequest) async throws(FetchError) -> ResponseHead {
    let (exchange, head) = try await fetcher.send(request, by: router)
    exchange.discard()
    return head
  }
}

extension CurlSender: WebhookClient {
  /// Posts the request's body as JSON.
  package func post(_ request: WebhookRequest) async throws(FetchError) -> WebhookResponse {
    let fields = [
      HeaderField(name: "Content-Type", value: "application/json"),
      HeaderField(name: "Accept", value: "*/*"),
    ]
    let head = try await head(
      of: OutgoingRequest(
        .post, request.url, for: request.owner, fields: fields + request.fields,
        content: OutgoingContent(request.body), timeout: request.timeout, maxBytes: 65_536))
    let wait = head.fields.first { $0.name.lowercased() == "retry-after" }
      .flatMap { RetryAfter.seconds($0.value) }
    return WebhookResponse(status: head.status, retryAfter: wait.map { .seconds($0) })
  }
}

/// A response's content for the one task that reads it. Releasing it closes the transfer.
private final class SentBody: ImageBytes {
  private let exchange: TransferExchange
  private let running: RunningLoop

  init(_ exchange: TransferExchange, _ running: RunningLoop) {
    self.exchange = exchange
    self.running = running
  }

  deinit { exchange.cancel() }

  func next() async throws(FetchError) -> [UInt8]? { try await exchange.next() }
}

extension AddressPolicy {
  /// Allows every address and port: services that the operator configured may be in a private network.
  package static var everywhere: AddressPolicy {
    var policy = AddressPolicy()
    policy.allowPorts = []
    policy.allowNetworks = ["0.0.0.0/0", "::/0"].compactMap(CIDR.init)
    return policy
  }
}
