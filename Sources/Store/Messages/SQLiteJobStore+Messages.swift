internal import Foundation
internal import GRDB
package import Jobs
internal import Synchronization

/// Webhook messages. The instance that is sending a message is recorded in memory only, as leases
/// are. After a start, all messages can be sent.
extension SQLiteJobStore: WebhookOutbox {
  /// Searches along the index of hosts, on the writing thread. Writes only if a message is
  /// unreadable.
  package func claimMessages(_ request: MessageRequest) async throws(StoreError) -> ClaimedMessages
  {
    let moment = now()
    return try await writer.perform(isSynced: false) { [leases, heldMessages] transaction in
      try leases.check(request.instance)
      let held = heldMessages.releaseOthers(request.sending, of: request.instance, leases.active)
      let taken = try transaction.dueMessages(request, at: moment, held)
      heldMessages.hold(taken.messages, by: request.instance)
      return taken
    }
  }

  /// Stores the result of a try. If a power failure undoes this, the message is sent again.
  package func saveResult(_ message: WebhookMessage, by instance: Instance) async throws(StoreError)
  {
    let moment = now()
    let isLetGo = Atomic(false)
    do throws(StoreError) {
      try await writer.perform(isSynced: false) { [heldMessages] transaction in
        guard heldMessages.release(message.id, by: instance) else { return }
        isLetGo.store(true, ordering: .relaxed)
        try transaction.saveResult(message, at: moment)
      }
    } catch {
      // Hold the message again, so that the repeated call succeeds. Otherwise the message would be
      // sent again and again.
      if isLetGo.load(ordering: .relaxed) { heldMessages.restore(message, by: instance) }
      throw error
    }
  }

  /// Searches by the job or batch.
  package func messages(of subject: JobID) async throws(StoreError) -> [WebhookMessage] {
    try await read { db in
      let statement = try db.cachedStatement(
        sql: "SELECT record FROM messages WHERE subject = ? ORDER BY number DESC LIMIT ?")
      return try Row.fetchAll(statement, arguments: [subject.data, WebhookMessage.mostOfSubject])
        .reversed().map(MessageRecord.message)
    }
  }

  /// Makes the newest message due. If it is being sent, it is sent again afterwards.
  package func sendAgain(of subject: JobID) async throws(StoreError) -> WebhookMessage? {
    let moment = now()
    return try await writer.perform { [heldMessages] transaction in
      let row = try transaction.one(
        "SELECT record FROM messages WHERE subject = ? ORDER BY number DESC LIMIT 1",
        [subject.data])
      guard var message = try row.map(MessageRecord.message) else { return nil }
      if heldMessages.isHeld(message.id) {
        message.requestAgain()
      } else {
        message.sendAgain(at: moment)
      }
      try transaction.write(message)
      return message
    }
  }

  /// Counts by the index of waiting messages; 100,000 at most.
  package func waitingMessages() async throws(StoreError) -> Int {
    try await read { db in
      let sql = """
        SELECT count(*) FROM (SELECT 1 FROM messages WHERE next_at IS NOT NULL LIMIT 100000)
        """
      return try Int.fetchOne(db.cachedStatement(sql: sql)) ?? 0
    }
  }

  /// Counts by the index of owners.
  package func waitingMessages(
    of owner: Owner, upTo limit: Int
  ) async throws(StoreError) -> Int {
    try await read { db in
      let sql = """
        SELECT count(*) FROM (SELECT 1 FROM messages WHERE owner = ? AND next_at IS NOT NULL LIMIT ?)
        """
      let statement = try db.cachedStatement(sql: sql)
      return try Int.fetchOne(statement, arguments: [owner.data, limit]) ?? 0
    }
  }
}

/// The messages that instances are sending, in memory.
final class HeldMessages: Sendable {
  private let held = Mutex<[WebhookMessage.ID: (by: Instance, host: String)]>([:])

  /// Releases messages that the instance is not sending, and messages of instances without a lease.
  /// - Returns: the messages still held, with their hosts.
  func releaseOthers(
    _ sending: Set<WebhookMessage.ID>, of instance: Instance, _ living: Set<Instance>
  ) -> [WebhookMessage.ID: String] {
    held.withLock { held in
      held = held.filter { id, holder in
        holder.by == instance ? sending.contains(id) : living.contains(holder.by)
      }
      return held.mapValues(\.host)
    }
  }

  func hold(_ messages: [WebhookMessage], by instance: Instance) {
    held.withLock { held in
      for message in messages { held[message.id] = (instance, message.host) }
    }
  }

  /// - Returns: whether the instance held the message.
  func release(_ message: WebhookMessage.ID, by instance: Instance) -> Bool {
    held.withLock { held in
      guard held[message]?.by == instance else { return false }
      held[message] = nil
      return true
    }
  }

  /// Holds a message again, because the transaction that released it failed.
  func restore(_ message: WebhookMessage, by instance: Instance) {
    held.withLock { held in
      if held[message.id] == nil { held[message.id] = (instance, message.host) }
    }
  }

  func isHeld(_ message: WebhookMessage.ID) -> Bool { held.withLock { $0[message] != nil } }
}
