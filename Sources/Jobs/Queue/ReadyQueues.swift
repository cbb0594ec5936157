internal import HashTreeCollections

/// A queue of jobs served in submission order: an owner's single jobs, or the jobs of one batch.
package struct JobQueueName: Hashable, Sendable {
  package let owner: Owner
  /// The batch's number in the store; 0 for single jobs.
  package let batch: Int64

  package init(owner: Owner, batch: Int64) { (self.owner, self.batch) = (owner, batch) }

  /// An arbitrary order, for queues that are equal otherwise.
  func isBefore(_ other: Self) -> Bool {
    owner == other.owner ? batch < other.batch : owner.name < other.owner.name
  }
}

/// The jobs of one priority in a queue.
package struct QueuePosition: Hashable, Sendable {
  package let priority: Int
  package let queue: JobQueueName

  package init(priority: Int, queue: JobQueueName) {
    (self.priority, self.queue) = (priority, queue)
  }
}

/// When each queue and each owner was served last, counted in claimed jobs. Each instance knows only its own
/// claims. This is accurate enough, because the number of loading jobs is compared first.
package struct ServedQueues: Sendable {
  private(set) var queues: TreeDictionary<JobQueueName, Int> = [:]
  private(set) var owners: TreeDictionary<Owner, Int> = [:]
  /// The number of jobs claimed so far.
  private(set) var turns = 0
  /// The number of queues beyond which those served long ago are forgotten.
  private var most = 4_096

  package init() {}

  /// Returns the number of the last claim from this queue; 0 if there was none.
  package func lastTurn(of queue: JobQueueName) -> Int { queues[queue] ?? 0 }

  /// Counts a claimed job.
  fileprivate mutating func serve(_ queue: JobQueueName) {
    turns += 1
    queues[queue] = turns
    owners[queue.owner] = turns
  }

  /// Forgets queues not served in the last 2,048 claims, if there are many.
  /// - Parameters:
  ///   - isKept: Queues to remember nevertheless.
  ///   - isKeptOwner: Owners to remember nevertheless.
  fileprivate mutating func forget(
    except isKept: (JobQueueName) -> Bool, _ isKeptOwner: (Owner) -> Bool
  ) {
    guard queues.count > most else { return }
    let oldest = turns - 2_048
    queues = queues.filter { $0.value > oldest || isKept($0.key) }
    owners = owners.filter { $0.value > oldest || isKeptOwner($0.key) }
    most = max(4_096, 2 * queues.count)
  }
}

/// The positions with ready jobs and the numbers of loading jobs, in round-robin order between owners and batches.
///
/// A prediction copies this value (``ClaimChooser/prediction(of:from:available:)``). Persistent trees make the copy cheap,
/// whatever the number of queues.
package struct ReadyQueues: Sendable {
  /// The number of ready jobs at each position. Positions without any have no entry.
  private var ready: TreeDictionary<QueuePosition, Int> = [:]
  private var loadingOfOwner: TreeDictionary<Owner, Int> = [:]
  private var loading: TreeDictionary<JobQueueName, Int> = [:]
  package private(set) var served: ServedQueues
  /// The positions with ready jobs in round-robin order.
  private var order = RoundRobinOrder()

  /// - Parameter served: The earlier claims.
  init(after served: ServedQueues = ServedQueues()) { self.served = served }

  /// Adds ready jobs; removes some if `count` is negative.
  package mutating func addReady(_ count: Int, at position: QueuePosition) {
    let wasReady = isReady(position)
    Self.add(count, at: position, in: &ready)
    if isReady(position) == wasReady { return }
    if wasReady { removeFromOrder(position) } else { addToOrder(position) }
  }

  /// Adds loading jobs; removes some if `count` is negative.
  package mutating func addLoading(_ count: Int, of queue: JobQueueName) {
    changeRank(of: queue) { queues in
      Self.add(count, at: queue.owner, in: &queues.loadingOfOwner)
      Self.add(count, at: queue, in: &queues.loading)
    }
  }

  private static func add<Key>(
    _ change: Int, at key: Key, in counts: inout TreeDictionary<Key, Int>
  ) {
    let count = (counts[key] ?? 0) + change
    counts[key] = count > 0 ? count : nil
  }

  /// Records that a job of this queue was claimed.
  mutating func recordClaim(of queue: JobQueueName) {
    // The order is computed from the turns of the queues in it, so these are kept.
    served.forget(except: hasReadyJobs, order.contains)
    changeRank(of: queue) { $0.served.serve(queue) }
  }

  /// Whether a position has ready jobs.
  func isReady(_ position: QueuePosition) -> Bool { ready[position] != nil }

  private func hasReadyJobs(_ queue: JobQueueName) -> Bool {
    Priority.allCases.indices.contains { isReady(QueuePosition(priority: $0, queue: queue)) }
  }

  private func readyPositions(of queue: JobQueueName) -> [QueuePosition] {
    Priority.allCases.indices.map { QueuePosition(priority: $0, queue: queue) }.filter(isReady)
  }

  // MARK: The order

  private func rank(of owner: Owner) -> RoundRobinOrder.Rank {
    RoundRobinOrder.Rank(loading: loadingOfOwner[owner] ?? 0, served: served.owners[owner] ?? 0)
  }

  private func rank(of queue: JobQueueName) -> RoundRobinOrder.Rank {
    RoundRobinOrder.Rank(loading: loading[queue] ?? 0, served: served.queues[queue] ?? 0)
  }

  private mutating func addToOrder(_ position: QueuePosition) {
    order.insert(position, of: rank(of: position.queue.owner), rank(of: position.queue))
  }

  private mutating func removeFromOrder(_ position: QueuePosition) {
    order.remove(position, of: rank(of: position.queue.owner), rank(of: position.queue))
  }

  /// Applies a change that affects the ranks of a queue and its owner, and updates the order.
  private mutating func changeRank(of queue: JobQueueName, _ change: (inout ReadyQueues) -> Void) {
    let positions = readyPositions(of: queue)
    for position in positions { removeFromOrder(position) }
    let before = rank(of: queue.owner)
    change(&self)
    order.updateRank(of: queue.owner, from: before, to: rank(of: queue.owner))
    for position in positions { addToOrder(position) }
  }

  /// Candidates for the next position: see ``RoundRobinOrder/first(ownersFirst:of:except:_:)``.
  func next(
    ownersFirst: Bool, of isMeant: (Owner) -> Bool, except skipped: Set<QueuePosition>,
    _ inspected: inout Int
  ) -> [QueuePosition] {
    order.first(ownersFirst: ownersFirst, of: isMeant, except: skipped, &inspected)
  }

  /// Returns the last `count` positions in round-robin order.
  /// - Parameter isMeant: Whether to consider an owner's positions.
  func last(
    _ count: Int, of isMeant: (Owner) -> Bool, except skipped: Set<QueuePosition>,
    _ inspected: inout Int
  ) -> [QueuePosition] {
    order.last(count, of: isMeant, except: skipped, &inspected)
  }

  /// Returns the position that is next.
  /// - Parameter owners: Whether to compare owners before priorities.
  func first(of positions: [QueuePosition], owners: Bool) -> QueuePosition? {
    guard positions.count > 1 else { return positions.first }
    return positions.lazy.map { (position: $0, state: state(of: $0)) }
      .min { Self.isBefore($0, $1, owners: owners) }?.position
  }

  /// Sorts positions in round-robin order.
  func sorted(_ positions: [QueuePosition], owners: Bool) -> [QueuePosition] {
    guard positions.count > 1 else { return positions }
    return positions.map { (position: $0, state: state(of: $0)) }
      .sorted { Self.isBefore($0, $1, owners: owners) }.map(\.position)
  }

  private func state(of position: QueuePosition) -> RoundRobinState {
    RoundRobinState(
      priority: position.priority, owner: rank(of: position.queue.owner),
      queue: rank(of: position.queue))
  }

  private static func isBefore(
    _ a: (position: QueuePosition, state: RoundRobinState),
    _ b: (position: QueuePosition, state: RoundRobinState), owners: Bool
  ) -> Bool {
    a.state.comesBefore(b.state, owners: owners)
      ?? a.position.queue.isBefore(b.position.queue)
  }
}

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

  init() {}

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
