/// Posts messages to receivers.
package protocol WebhookClient: Sendable {
  /// Posts a message once. Redirects are not followed but returned like any other response.
  ///
  /// - Throws: The reason why there is no response; `.blocked` if the network rules forbid the request.
  func post(_ request: WebhookRequest) async throws(FetchError) -> WebhookResponse
}

/// One attempt to send a message.
package struct WebhookRequest: Sendable {
  package var url: SourceURL
  /// The owner of the message; nil for the service itself.
  package var owner: Owner?
  /// JSON.
  package var body: [UInt8]
  /// Header fields in addition to those that describe the body.
  package var fields: [HeaderField]
  /// The time limit from name resolution to the end of the response's header section.
  package var timeout: Duration

  package init(
    _ url: SourceURL, for owner: Owner? = nil, body: [UInt8], fields: [HeaderField],
    timeout: Duration
  ) {
    (self.url, self.owner, self.body) = (url, owner, body)
    (self.fields, self.timeout) = (fields, timeout)
  }
}

/// A receiver's response.
package struct WebhookResponse: Sendable, Equatable {
  /// The status (RFC 9110 section 15).
  package var status: Int
  /// The value of `Retry-After`, if present.
  package var retryAfter: Duration?

  package init(status: Int, retryAfter: Duration? = nil) {
    (self.status, self.retryAfter) = (status, retryAfter)
  }
}
