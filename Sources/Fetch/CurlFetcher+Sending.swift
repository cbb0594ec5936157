public import Jobs

/// A request of ours that is no fetch of an image: to a service that the operator named, or to where a client wants
/// something sent.
public struct OutgoingRequest: Sendable {
  /// What it does (RFC 9110 section 9).
  public enum Method: String, Sendable {
    /// These have no content.
    case get = "GET"
    case delete = "DELETE"
    /// These have.
    case put = "PUT"
    case post = "POST"
  }

  /// What is asked.
  public var method: Method
  /// Whom.
  public var url: SourceURL
  /// For whom it is sent; nil: for the service itself.
  public var owner: Owner?
  /// Fields, sent as they are.
  public var fields: [HeaderField]
  /// What is sent; of a method that has content only.
  public var content: OutgoingContent?
  /// Until the response's end.
  public var timeout: Duration
  /// Of the response's content.
  public var maxBytes: Int

  /// A request.
  public init(
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

/// Bytes to be sent: read a piece at a time on the thread of the transfers, which all of them share. A file that is read
/// so should be one that was just written or read, and lies in memory still.
public struct OutgoingContent: Sendable {
  /// How many.
  public let count: Int
  /// Up to so many from an offset on; fewer end the transfer as broken.
  public let read: @Sendable (_ offset: Int, _ count: Int) -> [UInt8]

  /// Bytes from somewhere.
  public init(count: Int, read: @escaping @Sendable (_ offset: Int, _ count: Int) -> [UInt8]) {
    self.count = count
    self.read = read
  }

  /// Bytes in memory.
  public init(_ bytes: [UInt8]) {
    count = bytes.count
    read = { offset, count in Array(bytes.dropFirst(offset).prefix(count)) }
  }
}

extension CurlFetcher {
  /// One that sends under a policy of its own, on the same loop, with the same proxy.
  public func sender(under policy: AddressPolicy) -> CurlSender {
    CurlSender(self, router.under(policy))
  }

  /// Sends a request as it is, and gives whatever is answered: no redirect is followed, no status is an error, and
  /// no content coding is undone. The policy holds here too.
  ///
  /// - Throws: why there is no response.
  public func send(_ request: OutgoingRequest) async throws(FetchError) -> FetchedResponse {
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
  ) async throws(FetchError) -> (Exchange, ResponseHead) {
    let (exchange, _, head) = try await ask(
      for: request.url, of: request.owner, by: router,
      fields: RequestFields.sendable(request.fields), method: request.method,
      content: request.content, maxBytes: request.maxBytes, timeout: request.timeout,
      by: .now + request.timeout)
    return (exchange, head)
  }
}

/// Sends where a client wants something sent, under a policy of its own. No redirect is followed.
public struct CurlSender: Sendable {
  private let fetcher: CurlFetcher
  private let router: Router

  fileprivate init(_ fetcher: CurlFetcher, _ router: Router) {
    (self.fetcher, self.router) = (fetcher, router)
  }

  /// Sends a request as it is, and gives whatever is answered: see ``CurlFetcher/send(_:)``.
  public func send(_ request: OutgoingRequest) async throws(FetchError) -> FetchedResponse {
    try await fetcher.response(to: request, by: router)
  }

  /// The same, and gives the answer's head; its content is nobody's.
  func head(of request: OutgoingRequest) async throws(FetchError) -> ResponseHead {
    let (exchange, head) = try await fetcher.send(request, by: router)
    exchange.discard()
    return head
  }
}

extension CurlSender: WebhookClient {
  /// Posts it as JSON.
  public func post(_ request: WebhookRequest) async throws(FetchError) -> WebhookResponse {
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

/// A response's content for the one task that reads it. Letting go of it closes the transfer.
private final class SentBody: ImageBytes {
  private let exchange: Exchange
  private let running: RunningLoop

  init(_ exchange: Exchange, _ running: RunningLoop) {
    self.exchange = exchange
    self.running = running
  }

  deinit { exchange.cancel() }

  func next() async throws(FetchError) -> [UInt8]? { try await exchange.next() }
}

extension AddressPolicy {
  /// Everything: for services that the operator named, which may well be in a network of their own.
  public static var everywhere: AddressPolicy {
    var policy = AddressPolicy()
    policy.allowPorts = []
    policy.allowNetworks = ["0.0.0.0/0", "::/0"].compactMap(CIDR.init)
    return policy
  }
}
