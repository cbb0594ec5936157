/// Stores webhook messages until they are sent. A message is created in the transaction that ends its job or
/// batch (``WebhookMessage/init(endOf:after:)``, ``WebhookMessage/init(endOf:wasOver:)``).
package protocol WebhookOutbox: Sendable {
  /// Claims messages that are due, host by host, so that an unreachable receiver delays no other host's
  /// messages. Skips owners that have used their share (``MessageShares``). The instance holds each message
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
  /// The number of messages in ``sending`` for each owner.
  package var byOwner: [Owner: Int]
  /// The number of free slots, which is the maximum of messages to claim.
  package var count: Int
  /// The limit of messages in transit to one host, over all instances.
  package var perHost: Int
  /// The host where the last claim stopped; nil to start with the first host.
  package var after: String?

  package init(
    by instance: Instance, sending: Set<WebhookMessage.ID>, byOwner: [Owner: Int] = [:],
    count: Int, perHost: Int, after: String? = nil
  ) {
    (self.instance, self.sending, self.byOwner) = (instance, sending, byOwner)
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

/// Divides an instance's slots for messages among owners. An owner may get a slot while it uses fewer slots
/// than are free. So a single owner gets half of the slots, and the next one half of the rest. An owner whose
/// receivers are all unreachable delays no other owner.
package struct MessageShares {
  private var free: Int
  private var byOwner: [Owner: Int]

  package init(_ request: MessageRequest) { (free, byOwner) = (request.count, request.byOwner) }

  /// Owners that may get no slot now. They are few, because they use most of the slots.
  package var full: [Owner] { byOwner.filter { $0.value >= free }.map(\.key) }

  package func hasSlot(for owner: Owner) -> Bool { byOwner[owner, default: 0] < free }

  /// - Returns: Whether a slot was free for the owner.
  package mutating func acquireSlot(for owner: Owner) -> Bool {
    guard hasSlot(for: owner) else { return false }
    byOwner[owner, default: 0] += 1
    free -= 1
    return true
  }
}
