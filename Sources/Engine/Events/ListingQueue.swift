internal import DequeModule
internal import Jobs

/// Subscriptions to many jobs that want a page of the jobs as they are: an owner's in the order in which they asked, and the
/// owners in turn, so that nobody waits for the many streams of another one.
struct ListingQueue {
  private var byOwner: [Owner: Deque<ManyJobsSubscription>] = [:]
  /// Each of those owners once.
  private var turns = Deque<Owner>()

  mutating func append(_ subscription: ManyJobsSubscription) {
    let owner = subscription.query.caller.owner
    if byOwner[owner] == nil { turns.append(owner) }
    byOwner[owner, default: []].append(subscription)
  }

  mutating func popFirst() -> ManyJobsSubscription? {
    guard let owner = turns.popFirst() else { return nil }
    let subscription = byOwner[owner]?.popFirst()
    if byOwner[owner]?.isEmpty == true { byOwner[owner] = nil } else { turns.append(owner) }
    return subscription
  }
}
