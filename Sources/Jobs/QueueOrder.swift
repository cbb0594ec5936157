/// The order in which queued jobs are handed over: the highest priority first. Within one it goes between owners, the one
/// with fewer jobs loading first, within an owner between batches and single jobs alike, and within those as they came.
/// So that nobody's priorities keep another one's jobs waiting, owners come before priorities in every other turn.
///
/// So that nobody waits for ever, about every eighth job handed over is the one that was submitted first among the heads
/// of the levels, if that was long ago, whatever its priority. A store that many share counts as it can: each instance
/// for itself is near enough.
public enum QueueOrder {
  /// Out of so many jobs handed over one is chosen by its age.
  public static let agedEvery = 8
  /// A job that was submitted longer ago than this is old.
  public static let patience = Duration.seconds(30)

  /// Whether the next job is chosen by its age.
  /// - Parameter count: jobs handed over before.
  public static func isAgedTurn(after count: Int) -> Bool { count % agedEvery == agedEvery - 1 }

  /// Whether the next job is chosen by whose it is before its priority.
  /// - Parameter count: jobs handed over before.
  public static func isOwnersTurn(after count: Int) -> Bool { count % 2 == 0 }

  /// Whether a job has waited so long that its priority matters no more.
  public static func isOld(_ id: JobID, at moment: Timestamp) -> Bool {
    moment - id.moment > patience
  }
}

/// What is known of those whose jobs wait, where it is asked whose turn it is: an owner, and what of the owner's is served
/// in the order in which it came, single jobs or a batch, at one priority.
package struct QueueTurn: Sendable {
  let priority: Int
  /// How many jobs are loading, and the last turn there was, counted in turns.
  let owner: (loading: Int, served: Int)
  let lane: (loading: Int, served: Int)

  package init(
    priority: Int, owner: (loading: Int, served: Int), lane: (loading: Int, served: Int)
  ) {
    (self.priority, self.owner, self.lane) = (priority, owner, lane)
  }

  /// Whether it comes before the other one; nil: neither does.
  /// - Parameter owners: whether owners come before priorities.
  package func comesBefore(_ other: QueueTurn, owners: Bool) -> Bool? {
    let byPriority = Self.order(other.priority, priority)
    let byOwner =
      Self.order(owner.loading, other.owner.loading)
      ?? Self.order(owner.served, other.owner.served)
    return (owners ? byOwner ?? byPriority : byPriority ?? byOwner)
      ?? Self.order(lane.loading, other.lane.loading)
      ?? Self.order(lane.served, other.lane.served)
  }

  /// Whether the first number is less; nil where they are equal.
  private static func order(_ a: Int, _ b: Int) -> Bool? { a == b ? nil : a < b }
}

/// What a change of a job means for its place in the queue.
public enum QueueMove: Sendable, Equatable {
  /// It keeps its place.
  case none
  /// Behind all others at its level: it has come to that level, or into the queue, only now.
  case toTheEnd
  /// Ahead of all others at its level, to which it was lowered.
  case ahead

  /// The move of a job that was changed.
  public init(from old: Job, to new: Job) {
    if new.priority > old.priority || (old.phase.isFinished && new.phase == .queued) {
      self = .toTheEnd
    } else {
      self = new.priority < old.priority ? .ahead : .none
    }
  }
}
