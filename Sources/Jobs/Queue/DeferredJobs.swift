internal import HashTreeCollections

/// The first deferred job of each origin and position. Jobs are deferred when their origin has no capacity.
///
/// The value is a cache of a store's index: when the first job was claimed or removed, the next one is
/// ``First/unknown`` until the store reads it. Other positions cost nothing, whatever the number of deferred jobs.
package struct DeferredJobs: Sendable {
  /// The first deferred job of one origin at one position.
  package enum First: Sendable, Equatable {
    /// There are none.
    case none
    /// There may be some. The store has to read the first one: ``setFirst(_:of:at:served:)``.
    case unknown
    case job(QueuedCandidate)
  }

  /// The members of the first job that differ from those of its position.
  private struct Head: Sendable {
    var number: Int64
    var id: JobID?
    var rank: Int64
    var notBefore: Timestamp?
  }

  /// The order of an owner's positions at one origin: higher priorities first, then the longest time since the
  /// last claim.
  private struct Turn: Comparable, Sendable {
    let priority: Int
    let served: Int
    let batch: Int64

    static func < (a: Self, b: Self) -> Bool {
      (-a.priority, a.served, a.batch) < (-b.priority, b.served, b.batch)
    }
  }

  private struct Origin: Sendable {
    /// The first job of each position, nil if it is unknown.
    var heads: TreeDictionary<QueuePosition, (head: Head?, served: Int)> = [:]
    var turns: TreeDictionary<Owner, SortedElements<Turn>> = [:]

    /// - Parameter served: When a job of this position was last claimed.
    mutating func set(_ position: QueuePosition, to head: Head?, served: Int) {
      if let old = heads[position] {
        guard old.served != served else { return heads[position] = (head, served) }
        remove(position)
      }
      heads[position] = (head, served)
      turns[position.queue.owner, default: SortedElements()].insert(Self.turn(of: position, served))
    }

    mutating func remove(_ position: QueuePosition) {
      guard let old = heads.removeValue(forKey: position) else { return }
      let owner = position.queue.owner
      turns[owner]?.remove(Self.turn(of: position, old.served))
      if turns[owner]?.isEmpty == true { turns[owner] = nil }
    }

    private static func turn(of position: QueuePosition, _ served: Int) -> Turn {
      Turn(priority: position.priority, served: served, batch: position.queue.batch)
    }
  }

  /// The maximum number of an owner's positions at one origin to compare. If there are more, they take turns.
  private static let mostCompared = 16

  private var known: TreeDictionary<String, Origin> = [:]

  package init() {}

  /// The origins with deferred jobs, possibly including some whose last deferred job is gone.
  package var origins: some Sequence<String> { known.keys }

  /// Returns an origin's positions with deferred jobs: for each owner, those that may be first, or last, in
  /// round-robin order.
  /// - Parameter isMeant: Whether to consider an owner's positions.
  package func positions(
    of origin: String, ownedBy isMeant: (Owner) -> Bool, last: Bool,
    where condition: (QueuePosition) -> Bool
  ) -> [QueuePosition] {
    (known[origin]?.turns ?? [:]).flatMap { owner, turns in
      var positions: [QueuePosition] = []
      guard isMeant(owner) else { return positions }
      func add(_ turn: Turn) -> Bool {
        let queue = JobQueueName(owner: owner, batch: turn.batch)
        let position = QueuePosition(priority: turn.priority, queue: queue)
        if condition(position) { positions.append(position) }
        return positions.count < Self.mostCompared
      }
      if last {
        for turn in turns.descending where !add(turn) { break }
      } else {
        for turn in turns.ascending where !add(turn) { break }
      }
      return positions
    }
  }

  /// The first deferred job of an origin at a position.
  package func first(of origin: String, at position: QueuePosition) -> First {
    guard let entry = known[origin]?.heads[position] else { return .none }
    guard let head = entry.head else { return .unknown }
    return .job(
      QueuedCandidate(
        number: head.number, id: head.id, position: position, rank: head.rank,
        notBefore: head.notBefore, origin: origin))
  }

  /// Sets the first deferred job, as the store has read it; nil if there is none.
  /// - Parameter served: The last claim from the position's queue (``ServedQueues/lastTurn(of:)``). Nil keeps the
  ///   recorded value; a store that builds this value for each claim has none.
  package mutating func setFirst(
    _ job: QueuedCandidate?, of origin: String, at position: QueuePosition, served: Int? = nil
  ) {
    let served = served ?? known[origin]?.heads[position]?.served ?? 0
    guard let job else {
      known[origin]?.remove(position)
      if known[origin]?.heads.isEmpty == true { known[origin] = nil }
      return
    }
    let head = Head(number: job.number, id: job.id, rank: job.rank, notBefore: job.notBefore)
    known[origin, default: Origin()].set(position, to: head, served: served)
  }

  /// Adds a job that was deferred.
  package mutating func add(_ job: QueuedCandidate) {
    guard let origin = job.origin else { return }
    switch first(of: origin, at: job.position) {
    case .unknown: break
    case .job(let known) where known.rank < job.rank: break
    case .none, .job: setFirst(job, of: origin, at: job.position)
    }
  }

  /// Removes a job that is no longer deferred. If it was the first one, the next one is unknown.
  /// - Parameter served: The last claim from the job's queue.
  package mutating func remove(_ job: QueuedCandidate, served: Int) {
    guard let origin = job.origin, case .job(let first) = first(of: origin, at: job.position),
      first.number == job.number
    else { return }
    known[origin]?.set(job.position, to: nil, served: served)
  }
}
