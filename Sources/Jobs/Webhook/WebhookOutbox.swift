internal import Digests
internal import FoundationEssentials

/// Stores webhook messages until they are sent. A message is created in the transaction that ends its job or
/// batch (``WebhookMessage/init(endOf:after:)``, ``WebhookMessage/init(endOf:wasOver:)``).
package protocol WebhookOutbox: Sendable {
  /// Claims messages that are due, host by host, so that an unreachable receiver delays no other host's
  /// messages. Skips owners that have used their share (``MessageRequest/owners``). The instance holds each message
  /// until ``saveResult(_:by:)`` or the end of its lease.
  ///
  /// - Throws: `.leaseLost` if the instance's lease has ended.
  func claimMessages(_ request: MessageRequest) async throws(StoreError) -> ClaimedMessages

  /// Saves the result of sending a message and releases it. A message that was requested again meanwhile is
  /// due at once. A message that will not be sent again is deleted if its job or batch was deleted. Does
  /// nothing if the instance no longer holds the message or the message was deleted.
  func saveResult(_ message: WebhookMessage, by instance: Instance) async throws(StoreError)

  /// Returns the newest ``WebhookMessage/mostOfSubject`` messages of a job or batch, oldest first.
  func messages(of subject: JobID) async throws(StoreError) -> [WebhookMessage]

  /// Sends the newest message of a job or batch again: now, or after the attempt in progress.
  /// - Returns: The message; nil if there is none.
  func sendAgain(of subject: JobID) async throws(StoreError) -> WebhookMessage?

  /// Returns the number of waiting messages, counted up to a limit.
  func waitingMessages() async throws(StoreError) -> Int

  /// Returns the number of an owner's waiting messages, counted up to `limit`.
  func waitingMessages(of owner: Owner, upTo limit: Int) async throws(StoreError) -> Int
}

/// Which messages an instance claims.
package struct MessageRequest: Sendable {
  /// The claiming instance.
  package var instance: Instance
  /// The messages that the instance is sending. It may hold others, if the answer of an earlier claim was
  /// lost.
  package var sending: Set<WebhookMessage.ID>
  /// The owners that may use one more slot.
  package var owners: OwnerCapacity
  /// The number of free slots, which is the maximum of messages to claim.
  package var count: Int
  /// The limit of messages in transit to one host, over all instances.
  package var perHost: Int
  /// The host where the last claim stopped; nil to start with the first host.
  package var after: String?

  package init(
    by instance: Instance, sending: Set<WebhookMessage.ID>,
    owners: OwnerCapacity = .unlimited, count: Int, perHost: Int, after: String? = nil
  ) {
    (self.instance, self.sending, self.owners) = (instance, sending, owners)
    (self.count, self.perHost, self.after) = (count, perHost, after)
  }

  /// The maximum number of hosts that one claim scans.
  package static let mostHosts = 256
}

/// The result of claiming messages.
package struct ClaimedMessages: Sendable, Equatable {
  package var messages: [WebhookMessage] = []
  /// The host to continue after; nil if all hosts were scanned. Unchanged from the request if all owners with
  /// waiting messages have used their share.
  package var after: String?
  /// When the next message is due that no instance is sending, if all hosts were scanned.
  package var nextDue: Timestamp?
  /// The number of due messages that could not be decoded. They will not be sent.
  package var unreadable = 0

  package init() {}
}

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

/// A secret for signing messages, in the format of Standard Webhooks 1.0.
package struct WebhookSecret: Sendable, Equatable {
  private let key: [UInt8]

  /// Parses `whsec_` followed by 24 to 64 bytes in base64; nil for anything else.
  package init?(_ text: String) {
    let prefix = "whsec_"
    guard text.hasPrefix(prefix),
      let bytes = Data(base64Encoded: String(text.dropFirst(prefix.count))),
      24...64 ~= bytes.count
    else { return nil }
    key = Array(bytes)
  }

  /// Returns the signature of a message.
  /// - Parameter moment: The value of `webhook-timestamp`, in seconds.
  package func signature(of body: [UInt8], id: String, moment: Int64) -> String {
    let code = HMACSHA256.authenticationCode(for: Array("\(id).\(moment).".utf8) + body, key: key)
    return "v1,\(Data(code).base64EncodedString())"
  }
}

extension WebhookMessage {
  /// Returns the header fields for one attempt.
  ///
  /// - Parameters:
  ///   - moment: When the message is sent.
  ///   - secrets: One signature is made with each; without secrets the message is not signed.
  package func fields(
    for body: [UInt8], at moment: Timestamp, signedWith secrets: [WebhookSecret]
  ) -> [HeaderField] {
    let (id, seconds) = (id.description, moment.milliseconds / 1_000)
    var fields = [
      HeaderField(name: "webhook-id", value: id),
      HeaderField(name: "webhook-timestamp", value: "\(seconds)"),
    ]
    if !secrets.isEmpty {
      let signatures = secrets.map { $0.signature(of: body, id: id, moment: seconds) }
      fields.append(
        HeaderField(name: "webhook-signature", value: signatures.joined(separator: " ")))
    }
    return fields
  }
}
