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
  static func choosesByAge(after count: Int) -> Bool { count % agedEvery == agedEvery - 1 }

  /// Whether the next job is chosen by owner before priority.
  /// - Parameter count: The number of jobs claimed before.
  static func choosesByOwner(after count: Int) -> Bool { count % 2 == 0 }

  /// Whether a job is so old that its priority is ignored.
  static func isOld(_ id: JobID, at moment: Timestamp) -> Bool {
    moment - id.moment > oldAge
  }

  /// Whether a job's due time has passed.
  /// - Parameter longestWait: A due time further away than this can only come from a clock that was later set
  ///   back. Such a job is treated as due.
  package static func isDue(
    _ notBefore: Timestamp?, at moment: Timestamp, longestWait: Duration? = nil
  ) -> Bool {
    guard let notBefore, notBefore > moment else { return true }
    return longestWait.map { notBefore > moment + $0 } ?? false
  }

  /// Whether a job waits because another instance loads an equal request. A job without an origin never does.
  package static func isAwaited(
    origin: String?, request: Fingerprint?, among loading: Set<Fingerprint>
  ) -> Bool {
    origin != nil && (request.map(loading.contains) ?? false)
  }
}

/// The round-robin position of one queue: an owner's single jobs, or one of the owner's batches, at one
/// priority.
struct RoundRobinState: Sendable {
  let priority: Int
  let owner: RoundRobinOrder.Rank
  let queue: RoundRobinOrder.Rank

  /// Whether this queue comes before `other`; nil if they are equal.
  /// - Parameter owners: Whether owners are compared before priorities.
  func comesBefore(_ other: RoundRobinState, owners: Bool) -> Bool? {
    let byPriority = Self.order(other.priority, priority)
    let byOwner = Self.order(owner, other.owner)
    return (owners ? byOwner ?? byPriority : byPriority ?? byOwner)
      ?? Self.order(queue, other.queue)
  }

  /// Whether the first value is less; nil if they are equal.
  private static func order<Value: Comparable>(_ a: Value, _ b: Value) -> Bool? {
    a == b ? nil : a < b
  }
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
