internal import Jobs
internal import Synchronization

/// Checks whether an owner may have more undelivered messages. The answer of the store is reused for five seconds, so
/// that the jobs of a large batch do not ask the store each.
final class WaitingMessages: Sendable {
  private struct Look {
    let hasRoom: Bool
    let moment: ContinuousClock.Instant
  }

  private let store: any WebhookOutbox
  private let limit: Int
  private let looks = Mutex<[Owner: Look]>([:])
  private static let patience = Duration.seconds(5)

  /// - Parameter limit: maximum of undelivered messages of one owner.
  init(store: any WebhookOutbox, limit: Int) { (self.store, self.limit) = (store, limit) }

  func hasRoom(for owner: Owner) async throws(StoreError) -> Bool {
    let known = looks.withLock { looks in
      looks = looks.filter { .now - $0.value.moment < Self.patience }
      return looks[owner]
    }
    if let known { return known.hasRoom }
    let hasRoom = try await store.waitingMessages(of: owner, upTo: limit) < limit
    looks.withLock { $0[owner] = Look(hasRoom: hasRoom, moment: .now) }
    return hasRoom
  }
}
