internal import DequeModule
internal import Jobs

/// Subscriptions to many jobs that wait for their next page of jobs. Those of one owner are served in order, and the
/// owners in round robin, so that no owner waits for many streams of another one.
struct PageQueue {
  private var byOwner: [Owner: Deque<ManyJobsSubscription>] = [:]
  /// The owners in `byOwner`, each once.
  private var roundRobin = Deque<Owner>()

  mutating func append(_ subscription: ManyJobsSubscription) {
    let owner = subscription.query.caller.owner
    if byOwner[owner] == nil { roundRobin.append(owner) }
    byOwner[owner, default: []].append(subscription)
  }

  mutating func popFirst() -> ManyJobsSubscription? {
    guard let owner = roundRobin.popFirst() else { return nil }
    let subscription = byOwner[owner]?.popFirst()
    if byOwner[owner]?.isEmpty == true { byOwner[owner] = nil } else { roundRobin.append(owner) }
    return subscription
  }
}
