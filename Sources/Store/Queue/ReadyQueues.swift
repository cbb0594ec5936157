internal import Foundation
internal import GRDB
internal import HashTreeCollections
internal import Jobs

/// The queues of ready jobs and the numbers of loading jobs, for round-robin scheduling between
/// owners and batches.
///
/// A lane is a queue of jobs served in submission order: an owner's single jobs, or the jobs of one
/// batch.
///
/// Each operation of a transaction copies this value to restore it after a failure. Persistent
/// trees make the copy cheap, whatever the number of lanes.
struct ReadyQueues: Sendable {
  struct Queue: Hashable, Sendable {
    let owner: Data
    /// The batch's number; 0 for single jobs.
    let batch: Int64
  }

  /// The jobs of one priority in a lane.
  struct Position: Hashable, Sendable {
    let priority: Int
    let lane: Queue
  }

  /// The number of ready jobs at each position. Positions without any have no entry.
  private var ready: TreeDictionary<Position, Int> = [:]
  private var loadingOfOwner: TreeDictionary<Data, Int> = [:]
  private var loading: TreeDictionary<Queue, Int> = [:]
  /// When each lane was served last, counted in claims.
  private var served: TreeDictionary<Queue, Int> = [:]
  /// When each owner was served last.
  private var servedOwner: TreeDictionary<Data, Int> = [:]
  private var turns = 0
  /// The number of lanes beyond which lanes served long ago are forgotten.
  private var mostServed = 4_096
  /// The positions with ready jobs in round-robin order, without stopped batches.
  private var order = RoundRobinOrder(priorities: 0...Priority.allCases.count - 1)
  /// Cancelled or purged batches, whose jobs are not claimed. Each value is the last line that was
  /// processed.
  private(set) var stopped: TreeDictionary<Int64, Int> = [:]

  /// Replaces invalid priorities of damaged rows by the nearest valid one, so that these jobs are
  /// claimed too.
  static func repairPriorities(_ db: Database) throws {
    let (lowest, highest) = (JobRow.validPriority(.min), JobRow.validPriority(.max))
    for (wrong, level) in [("> \(highest)", highest), ("< \(lowest)", lowest)] {
      try db.execute(
        sql: """
          UPDATE jobs SET priority = \(level) WHERE phase = 0 AND waiting = 0 AND priority \(wrong)
          """)
    }
  }

  init(counting db: Database) throws {
    let queued = try Row.fetchCursor(
      db,
      sql: """
        SELECT priority, owner, batch, count(*) FROM jobs WHERE phase = 0 AND waiting = 0
        GROUP BY priority, owner, batch
        """)
    while let row = try queued.next() {
      let lane = Queue(owner: row[1], batch: row[2])
      ready[Position(priority: JobRow.validPriority(row[0]), lane: lane), default: 0] += row[3]
    }
    let running = try Row.fetchCursor(
      db, sql: "SELECT owner, batch, count(*) FROM jobs WHERE phase = 1 GROUP BY owner, batch")
    while let row = try running.next() {
      loadingOfOwner[row[0], default: 0] += row[2]
      loading[Queue(owner: row[0], batch: row[1])] = row[2]
    }
    let stages = "\(BatchStage.cancelling.rawValue), \(BatchStage.purged.rawValue)"
    for number in try Int64.fetchAll(
      db, sql: "SELECT number FROM batches WHERE stage IN (\(stages))")
    { stopped[number] = 0 }
    for place in ready.keys { addToOrder(place) }
  }

  /// Adds a row that was inserted.
  mutating func add(_ row: JobRow) { count(row, 1) }

  /// Removes a row that was deleted.
  mutating func remove(_ row: JobRow) { count(row, -1) }

  /// Adds a job that became ready.
  mutating func addReadyJob(at place: Position) { add(1, at: place) }

  /// Returns the last processed line of a stopped batch; `nil` if the batch is not stopped.
  func stoppedLine(of batch: Int64) -> Int? { stopped[batch] }

  /// Marks a batch as stopped, with its last processed line, or as not stopped if `line` is `nil`.
  /// - Parameter owner: `nil` if the batch was stopped before or has no queued jobs.
  mutating func stop(_ batch: Int64, after line: Int?, owner: Data? = nil) {
    guard stopped[batch] != line else { return }
    guard let owner else { return stopped[batch] = line }
    let lane = Queue(owner: owner, batch: batch)
    let places = (0..<Priority.allCases.count).map { Position(priority: $0, lane: lane) }
      .filter { ready[$0] != nil }
    for place in places { removeFromOrder(place) }
    stopped[batch] = line
    for place in places { addToOrder(place) }
  }

  private mutating func count(_ row: JobRow, _ change: Int) {
    switch (row.phase, row.waiting) {
    case (.queued, .ready): add(change, at: row.position)
    case (.loading, _):
      changeTurn(of: row.position.lane) { lanes in
        Self.add(change, at: row.owner, in: &lanes.loadingOfOwner)
        Self.add(change, at: row.position.lane, in: &lanes.loading)
      }
    default: break
    }
  }

  private static func add<Key>(
    _ change: Int, at key: Key, in counts: inout TreeDictionary<Key, Int>
  ) {
    let count = (counts[key] ?? 0) + change
    counts[key] = count > 0 ? count : nil
  }

  private mutating func add(_ change: Int, at place: Position) {
    let wasReady = ready[place] != nil
    Self.add(change, at: place, in: &ready)
    let isReady = ready[place] != nil
    if isReady, !wasReady { addToOrder(place) }
    if wasReady, !isReady { removeFromOrder(place) }
  }

  // MARK: The order

  private func ownerTurn(_ owner: Data) -> RoundRobinOrder.Rank {
    RoundRobinOrder.Rank(loading: loadingOfOwner[owner] ?? 0, served: servedOwner[owner] ?? 0)
  }

  private func laneTurn(_ lane: Queue) -> RoundRobinOrder.Rank {
    RoundRobinOrder.Rank(loading: loading[lane] ?? 0, served: served[lane] ?? 0)
  }

  private mutating func addToOrder(_ place: Position) {
    guard stopped[place.lane.batch] == nil else { return }
    order.insert(place, of: ownerTurn(place.lane.owner), laneTurn(place.lane))
  }

  private mutating func removeFromOrder(_ place: Position) {
    guard stopped[place.lane.batch] == nil else { return }
    order.remove(place, of: ownerTurn(place.lane.owner), laneTurn(place.lane))
  }

  /// Applies a change that affects the order of a lane and its owner, and updates the order.
  private mutating func changeTurn(of lane: Queue, _ change: (inout ReadyQueues) -> Void) {
    let places = (0..<Priority.allCases.count).map { Position(priority: $0, lane: lane) }
      .filter { ready[$0] != nil }
    for place in places { removeFromOrder(place) }
    let before = ownerTurn(lane.owner)
    change(&self)
    order.updateRank(of: lane.owner, from: before, to: ownerTurn(lane.owner))
    for place in places { addToOrder(place) }
  }

  /// Records that a job of this lane was claimed.
  mutating func recordClaim(of lane: Queue) {
    turns += 1
    // Forget lanes that were not served in the last 2,048 claims, except those in the order, which
    // is computed from these values.
    if served.count > mostServed {
      served = served.filter { $0.value > turns - 2_048 || isReady($0.key) }
      servedOwner = servedOwner.filter { $0.value > turns - 2_048 || order.contains(owner: $0.key) }
      mostServed = max(4_096, 2 * served.count)
    }
    changeTurn(of: lane) { lanes in
      lanes.served[lane] = lanes.turns
      lanes.servedOwner[lane.owner] = lanes.turns
    }
  }

  /// Whether both have the same ready jobs.
  func hasSameReadyJobs(as other: ReadyQueues) -> Bool { ready == other.ready }

  /// Whether a position has ready jobs.
  func isReady(_ place: Position) -> Bool { ready[place] != nil }

  private func isReady(_ lane: Queue) -> Bool {
    (0..<Priority.allCases.count).contains { ready[Position(priority: $0, lane: lane)] != nil }
  }

  /// Candidates for the next position: see ``RoundRobinOrder/first(ownersFirst:of:except:_:)``.
  func next(
    ownersFirst: Bool, of isMeant: (Data) -> Bool, except skipped: Set<Position>,
    _ inspected: inout Int
  ) -> [Position] {
    order.first(ownersFirst: ownersFirst, of: isMeant, except: skipped, &inspected)
  }

  /// Returns the last `count` positions in round-robin order.
  /// - Parameter isMeant: whether to consider an owner's positions.
  func last(
    _ count: Int, of isMeant: (Data) -> Bool, except skipped: Set<Position>, _ inspected: inout Int
  ) -> [Position] {
    order.last(count, of: isMeant, except: skipped, &inspected)
  }

  /// Returns the position that is next.
  /// - Parameter owners: whether to compare owners before priorities.
  func first(of places: [Position], owners: Bool) -> Position? {
    guard places.count > 1 else { return places.first }
    return places.lazy.map { (place: $0, turn: turn(of: $0)) }
      .min { Self.isBefore($0, $1, owners: owners) }?.place
  }

  /// Sorts positions in round-robin order.
  func sorted(_ places: [Position], owners: Bool) -> [Position] {
    guard places.count > 1 else { return places }
    return places.map { (place: $0, turn: turn(of: $0)) }
      .sorted { Self.isBefore($0, $1, owners: owners) }.map(\.place)
  }

  private func turn(of place: Position) -> RoundRobinState {
    let lane = place.lane
    return RoundRobinState(
      priority: place.priority,
      owner: (loadingOfOwner[lane.owner] ?? 0, servedOwner[lane.owner] ?? 0),
      lane: (loading[lane] ?? 0, served[lane] ?? 0))
  }

  private static func isBefore(
    _ a: (place: Position, turn: RoundRobinState), _ b: (place: Position, turn: RoundRobinState),
    owners: Bool
  ) -> Bool {
    a.turn.comesBefore(b.turn, owners: owners) ?? a.place.lane.isBefore(b.place.lane)
  }
}

extension ReadyQueues.Queue {
  /// An arbitrary order, for lanes that are equal otherwise.
  fileprivate func isBefore(_ other: Self) -> Bool {
    owner == other.owner ? batch < other.batch : owner.lexicographicallyPrecedes(other.owner)
  }
}

extension JobRow {
  /// The job's position in the queue.
  var position: ReadyQueues.Position {
    ReadyQueues.Position(priority: priority, lane: ReadyQueues.Queue(owner: owner, batch: batch))
  }
}
