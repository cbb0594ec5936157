internal import Jobs

/// A queue of jobs served in submission order: an owner's single jobs, or the jobs of one batch.
struct JobQueueName: Hashable, Sendable {
  let owner: [UInt8]
  /// The batch's number; 0 for single jobs.
  let batch: Int64

  /// An arbitrary order, for queues that are equal otherwise.
  func isBefore(_ other: JobQueueName) -> Bool {
    owner == other.owner ? batch < other.batch : owner.lexicographicallyPrecedes(other.owner)
  }
}

/// The jobs of one priority in a queue.
struct QueuePosition: Hashable, Sendable {
  let priority: Int
  let queue: JobQueueName
}

/// When each queue was served last, counted in claims. Each instance knows only its own claims.
/// This is accurate enough, because the number of loading jobs is compared first and is known for
/// all instances.
struct ServedQueues: Sendable {
  private(set) var last: [JobQueueName: Int] = [:]
  private var turns = 0

  mutating func serve(_ lane: JobQueueName) {
    turns += 1
    // Forget queues not served in the last 2,048 claims.
    if last.count > 4_096 { last = last.filter { $0.value > turns - 2_048 } }
    last[lane] = turns
  }
}

/// The round-robin order (``RoundRobinState``), updated with each claimed job.
struct RoundRobin: Sendable {
  private var served: ServedQueues
  private var lastOfOwner: [[UInt8]: Int] = [:]
  private var loading: [JobQueueName: Int]
  private var loadingOfOwner: [[UInt8]: Int] = [:]

  /// - Parameter loading: the number of loading jobs of each queue.
  init(loading: [JobQueueName: Int], served: ServedQueues) {
    (self.loading, self.served) = (loading, served)
    for (lane, count) in loading { loadingOfOwner[lane.owner, default: 0] += count }
    for (lane, turn) in served.last {
      lastOfOwner[lane.owner] = max(turn, lastOfOwner[lane.owner] ?? 0)
    }
  }

  /// Records that a job of this queue was claimed.
  mutating func recordClaim(of lane: JobQueueName) {
    loading[lane, default: 0] += 1
    loadingOfOwner[lane.owner, default: 0] += 1
    served.serve(lane)
    lastOfOwner[lane.owner] = served.last[lane]
  }

  /// Returns the position that is next among `some`.
  /// - Parameter owners: whether to compare owners before priorities.
  func first(of some: [Int], among places: [QueuePosition], owners: Bool) -> Int? {
    guard var first = some.first, some.count > 1 else { return some.first }
    var best = turn(of: places[first])
    for index in some.dropFirst() {
      let turn = turn(of: places[index])
      let isBefore =
        turn.comesBefore(best, owners: owners)
        ?? places[index].queue.isBefore(places[first].queue)
      if isBefore { (first, best) = (index, turn) }
    }
    return first
  }

  private func turn(of place: QueuePosition) -> RoundRobinState {
    let lane = place.queue
    return RoundRobinState(
      priority: place.priority,
      owner: (loadingOfOwner[lane.owner] ?? 0, lastOfOwner[lane.owner] ?? 0),
      lane: (loading[lane] ?? 0, served.last[lane] ?? 0))
  }
}

/// The ready jobs of one position that were read.
struct QueuePage: Sendable {
  let place: QueuePosition
  /// The first job, which may not be read yet.
  let head: (id: JobID, rank: Int64)
  /// The jobs in order.
  var jobs: [QueuedJob] = []
  /// Whether more jobs may follow.
  var isCut = true
}

/// Predicts how many jobs of each position will be claimed, so that few rows are read in vain.
struct ClaimPlan: Sendable {
  let turns: RoundRobin
  let owners: OwnerCapacity<[UInt8]>
  /// The number of jobs claimed before.
  let before: Int
  let moment: Timestamp
  /// The maximum number of claims that are simulated; the rest is extrapolated.
  private static let most = 128

  init(
    _ turns: RoundRobin, owners: OwnerCapacity<[UInt8]>, after before: Int, at moment: Timestamp
  ) {
    (self.turns, self.owners, self.before, self.moment) = (turns, owners, before, moment)
  }

  /// - Returns: the number of jobs to read, for each page.
  func wanted(_ count: Int, of pages: [QueuePage]) -> [Int] {
    var wanted = [Int](repeating: 0, count: pages.count)
    var open = pages.indices.filter { pages[$0].isCut || !pages[$0].jobs.isEmpty }
    if open.count == 1 { wanted[open[0]] = count }
    guard open.count > 1 else { return wanted }
    let places = pages.map(\.place)
    var (turns, owners, steps) = (turns, owners, 0)
    while steps < min(count, Self.most) {
      let turn = before + steps
      let next =
        oldest(of: open.filter { wanted[$0] == 0 }, pages, at: turn)
        ?? turns.first(of: open, among: places, owners: QueueOrder.choosesByOwner(after: turn))
      guard let next else { break }
      steps += 1
      wanted[next] += 1
      turns.recordClaim(of: places[next].queue)
      owners.countJob(of: places[next].queue.owner)
      let isThrough = !pages[next].isCut && wanted[next] >= pages[next].jobs.count
      open.removeAll { isThrough && $0 == next || !owners.hasCapacity(for: places[$0].queue.owner) }
    }
    // Read one job more, because the job behind the claimed ones may be the oldest of all.
    return wanted.map { $0 == 0 ? 0 : ($0 * count + steps - 1) / steps + 1 }
  }

  /// Considers only first jobs that were not selected yet, because the age of the others is
  /// unknown.
  private func oldest(of untouched: [Int], _ pages: [QueuePage], at turn: Int) -> Int? {
    guard QueueOrder.choosesByAge(after: turn) else { return nil }
    let oldest = untouched.min { pages[$0].head.id < pages[$1].head.id }
    return oldest.flatMap { QueueOrder.isOld(pages[$0].head.id, at: moment) ? $0 : nil }
  }
}
