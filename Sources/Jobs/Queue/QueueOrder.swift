/// The order in which queued jobs are claimed.
///
/// The highest priority comes first. Within a priority, the owner with the fewest loading jobs comes first.
/// An owner's batches take turns with the owner's single jobs. Within a batch, and among single jobs, the
/// order is that of submission. For every second job, the owner is compared before the priority, so that high
/// priorities of one owner do not block other owners.
///
/// About every eighth job is chosen by age instead: the oldest among the first jobs of all levels, if it is
/// older than ``oldAge``. So no job waits forever. Instances that share a store count these turns
/// separately, which is accurate enough.
package enum QueueOrder {
  /// One out of this many claimed jobs is chosen by its age.
  package static let agedEvery = 8
  /// A job that was submitted longer ago than this is old.
  package static let oldAge = Duration.seconds(30)

  /// Whether the next job is chosen by its age.
  /// - Parameter count: The number of jobs claimed before.
  package static func choosesByAge(after count: Int) -> Bool { count % agedEvery == agedEvery - 1 }

  /// Whether the next job is chosen by owner before priority.
  /// - Parameter count: The number of jobs claimed before.
  package static func choosesByOwner(after count: Int) -> Bool { count % 2 == 0 }

  /// Whether a job is so old that its priority is ignored.
  package static func isOld(_ id: JobID, at moment: Timestamp) -> Bool {
    moment - id.moment > oldAge
  }
}

/// The round-robin position of one queue: an owner's single jobs, or one of the owner's batches, at one
/// priority.
package struct RoundRobinState: Sendable {
  let priority: Int
  /// For the owner and for this queue: the number of loading jobs, and the turn in which it was last served.
  let owner: (loading: Int, served: Int)
  let queue: (loading: Int, served: Int)

  package init(
    priority: Int, owner: (loading: Int, served: Int), lane: (loading: Int, served: Int)
  ) {
    (self.priority, self.owner, self.queue) = (priority, owner, lane)
  }

  /// Whether this queue comes before `other`; nil if they are equal.
  /// - Parameter owners: Whether owners are compared before priorities.
  package func comesBefore(_ other: RoundRobinState, owners: Bool) -> Bool? {
    let byPriority = Self.order(other.priority, priority)
    let byOwner =
      Self.order(owner.loading, other.owner.loading)
      ?? Self.order(owner.served, other.owner.served)
    return (owners ? byOwner ?? byPriority : byPriority ?? byOwner)
      ?? Self.order(queue.loading, other.queue.loading)
      ?? Self.order(queue.served, other.queue.served)
  }

  /// Whether the first number is less; nil if they are equal.
  private static func order(_ a: Int, _ b: Int) -> Bool? { a == b ? nil : a < b }
}

/// How a change of a job moves it in the queue.
package enum QueueMove: Sendable, Equatable {
  /// The job keeps its position.
  case none
  /// The job goes behind all others at its level, because it has just come to this level or into the queue.
  case toTheEnd
  /// The job goes ahead of all others at its level, because its priority was lowered to this level.
  case ahead

  /// The move for a change from `old` to `new`.
  package init(from old: Job, to new: Job) {
    if new.priority > old.priority || (old.phase.isFinished && new.phase == .queued) {
      self = .toTheEnd
    } else {
      self = new.priority < old.priority ? .ahead : .none
    }
  }
}
