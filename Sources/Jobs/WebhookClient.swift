/// Sends messages to receivers.
public protocol WebhookClient: Sendable {
  /// Posts a message once; a redirect is an answer like any other, and is not followed.
  ///
  /// - Throws: why there is no answer; `.blocked` where the address rule forbids to ask.
  func post(_ request: WebhookRequest) async throws(FetchError) -> WebhookResponse
}

/// One try to be made.
public struct WebhookRequest: Sendable {
  /// Where to.
  public var url: SourceURL
  /// Whose message it is; nil: the service's own.
  public var owner: Owner?
  /// JSON.
  public var body: [UInt8]
  /// Beside those that say what the body is.
  public var fields: [HeaderField]
  /// From the name's lookup to the answer's header section.
  public var timeout: Duration

  /// A try.
  public init(
    _ url: SourceURL, for owner: Owner? = nil, body: [UInt8], fields: [HeaderField],
    timeout: Duration
  ) {
    (self.url, self.owner, self.body) = (url, owner, body)
    (self.fields, self.timeout) = (fields, timeout)
  }
}

/// What a receiver answered.
public struct WebhookResponse: Sendable, Equatable {
  /// The status (RFC 9110 section 15).
  public var status: Int
  /// `Retry-After`, where it was sent.
  public var retryAfter: Duration?

  /// An answer.
  public init(status: Int, retryAfter: Duration? = nil) {
    (self.status, self.retryAfter) = (status, retryAfter)
  }
}
