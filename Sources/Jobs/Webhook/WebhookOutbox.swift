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
