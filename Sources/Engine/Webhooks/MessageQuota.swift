internal import Jobs
internal import Synchronization

/// Checks whether an owner may have more undelivered messages. The answer of the store is reused for five seconds, so
/// that the jobs of a large batch do not ask the store each.
final class MessageQuota: Sendable {
  private struct CachedAnswer {
    let hasRoom: Bool
    let moment: ContinuousClock.Instant
  }

  private let store: any WebhookOutbox
  private let limit: Int
  private let cachedAnswers = Mutex<[Owner: CachedAnswer]>([:])
  private static let cacheTime = Duration.seconds(5)

  /// - Parameter limit: maximum of undelivered messages of one owner.
  init(store: any WebhookOutbox, limit: Int) { (self.store, self.limit) = (store, limit) }

  func hasRoom(for owner: Owner) async throws(StoreError) -> Bool {
    let known = cachedAnswers.withLock { looks in
      looks = looks.filter { .now - $0.value.moment < Self.cacheTime }
      return looks[owner]
    }
    if let known { return known.hasRoom }
    let hasRoom = try await store.waitingMessages(of: owner, upTo: limit) < limit
    cachedAnswers.withLock { $0[owner] = CachedAnswer(hasRoom: hasRoom, moment: .now) }
    return hasRoom
  }
}
