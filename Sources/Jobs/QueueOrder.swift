/// The order in which queued jobs are handed over: the highest priority first, and within one as they came.
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

  /// Whether a job has waited so long that its priority matters no more.
  public static func isOld(_ id: JobID, at moment: Timestamp) -> Bool {
    moment - id.moment > patience
  }
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
