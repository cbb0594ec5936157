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
struct Lanes: Sendable {
  struct Lane: Hashable, Sendable {
    let owner: Data
    /// The batch's number; 0 for single jobs.
    let batch: Int64
  }

  /// The jobs of one priority in a lane.
  struct Place: Hashable, Sendable {
    let priority: Int
    let lane: Lane
  }

  /// The number of ready jobs at each position. Positions without any have no entry.
  private var ready: TreeDictionary<Place, Int> = [:]
  private var loadingOfOwner: TreeDictionary<Data, Int> = [:]
  private var loading: TreeDictionary<Lane, Int> = [:]
  /// When each lane was served last, counted in claims.
  private var served: TreeDictionary<Lane, Int> = [:]
  /// When each owner was served last.
  private var servedOwner: TreeDictionary<Data, Int> = [:]
  private var turns = 0
  /// The number of lanes beyond which lanes served long ago are forgotten.
  private var mostServed = 4_096
  /// The positions with ready jobs in round-robin order, without stopped batches.
  private var order = TurnOrder(priorities: 0...Priority.allCases.count - 1)
  /// Cancelled or purged batches, whose jobs are not claimed. Each value is the last line that was
  /// processed.
  private(set) var stopped: TreeDictionary<Int64, Int> = [:]

  /// Replaces invalid priorities of damaged rows by the nearest valid one, so that these jobs are
  /// claimed too.
  static func mend(_ db: Database) throws {
    let (lowest, highest) = (JobRow.level(.min), JobRow.level(.max))
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
      let lane = Lane(owner: row[1], batch: row[2])
      ready[Place(priority: JobRow.level(row[0]), lane: lane), default: 0] += row[3]
    }
    let running = try Row.fetchCursor(
      db, sql: "SELECT owner, batch, count(*) FROM jobs WHERE phase = 1 GROUP BY owner, batch")
    while let row = try running.next() {
      loadingOfOwner[row[0], default: 0] += row[2]
      loading[Lane(owner: row[0], batch: row[1])] = row[2]
    }
    let stages = "\(BatchStage.cancelling.rawValue), \(BatchStage.purged.rawValue)"
    for number in try Int64.fetchAll(
      db, sql: "SELECT number FROM batches WHERE stage IN (\(stages))")
    { stopped[number] = 0 }
    for place in ready.keys { addToOrder(place) }
  }

  /// Adds a row that was inserted.
  mutating func add(_ row: JobRow) { note(row, 1) }

  /// Removes a row that was deleted.
  mutating func remove(_ row: JobRow) { note(row, -1) }

  /// Adds a job that became ready.
  mutating func wake(_ place: Place) { add(1, at: place) }

  /// Returns the last processed line of a stopped batch; `nil` if the batch is not stopped.
  func stoppedLine(of batch: Int64) -> Int? { stopped[batch] }

  /// Marks a batch as stopped, with its last processed line, or as not stopped if `line` is `nil`.
  /// - Parameter owner: `nil` if the batch was stopped before or has no queued jobs.
  mutating func stop(_ batch: Int64, after line: Int?, owner: Data? = nil) {
    guard stopped[batch] != line else { return }
    guard let owner else { return stopped[batch] = line }
    let lane = Lane(owner: owner, batch: batch)
    let places = (0..<Priority.allCases.count).map { Place(priority: $0, lane: lane) }
      .filter { ready[$0] != nil }
    for place in places { removeFromOrder(place) }
    stopped[batch] = line
    for place in places { addToOrder(place) }
  }

  private mutating func note(_ row: JobRow, _ change: Int) {
    switch (row.phase, row.waiting) {
    case (.queued, .ready): add(change, at: row.place)
    case (.loading, _):
      changeTurn(of: row.place.lane) { lanes in
        Self.add(change, at: row.owner, in: &lanes.loadingOfOwner)
        Self.add(change, at: row.place.lane, in: &lanes.loading)
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

  private mutating func add(_ change: Int, at place: Place) {
    let wasReady = ready[place] != nil
    Self.add(change, at: place, in: &ready)
    let isReady = ready[place] != nil
    if isReady, !wasReady { addToOrder(place) }
    if wasReady, !isReady { removeFromOrder(place) }
  }

  // MARK: The order

  private func ownerTurn(_ owner: Data) -> TurnOrder.Turn {
    TurnOrder.Turn(loading: loadingOfOwner[owner] ?? 0, served: servedOwner[owner] ?? 0)
  }

  private func laneTurn(_ lane: Lane) -> TurnOrder.Turn {
    TurnOrder.Turn(loading: loading[lane] ?? 0, served: served[lane] ?? 0)
  }

  private mutating func addToOrder(_ place: Place) {
    guard stopped[place.lane.batch] == nil else { return }
    order.insert(place, of: ownerTurn(place.lane.owner), laneTurn(place.lane))
  }

  private mutating func removeFromOrder(_ place: Place) {
    guard stopped[place.lane.batch] == nil else { return }
    order.remove(place, of: ownerTurn(place.lane.owner), laneTurn(place.lane))
  }

  /// Applies a change that affects the order of a lane and its owner, and updates the order.
  private mutating func changeTurn(of lane: Lane, _ change: (inout Lanes) -> Void) {
    let places = (0..<Priority.allCases.count).map { Place(priority: $0, lane: lane) }
      .filter { ready[$0] != nil }
    for place in places { removeFromOrder(place) }
    let before = ownerTurn(lane.owner)
    change(&self)
    order.move(owner: lane.owner, from: before, to: ownerTurn(lane.owner))
    for place in places { addToOrder(place) }
  }

  /// Records that a job of this lane was claimed.
  mutating func serve(_ lane: Lane) {
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
  func hasSameReady(as other: Lanes) -> Bool { ready == other.ready }

  /// Whether a position has ready jobs.
  func isReady(_ place: Place) -> Bool { ready[place] != nil }

  private func isReady(_ lane: Lane) -> Bool {
    (0..<Priority.allCases.count).contains { ready[Place(priority: $0, lane: lane)] != nil }
  }

  /// Candidates for the next position: see ``TurnOrder/first(ownersFirst:of:except:_:)``.
  func next(
    ownersFirst: Bool, of isMeant: (Data) -> Bool, except skipped: Set<Place>,
    _ inspected: inout Int
  ) -> [Place] {
    order.first(ownersFirst: ownersFirst, of: isMeant, except: skipped, &inspected)
  }

  /// Returns the last `count` positions in round-robin order.
  /// - Parameter isMeant: whether to consider an owner's positions.
  func last(
    _ count: Int, of isMeant: (Data) -> Bool, except skipped: Set<Place>, _ inspected: inout Int
  ) -> [Place] {
    order.last(count, of: isMeant, except: skipped, &inspected)
  }

  /// Returns the position that is next.
  /// - Parameter owners: whether to compare owners before priorities.
  func first(of places: [Place], owners: Bool) -> Place? {
    guard places.count > 1 else { return places.first }
    return places.lazy.map { (place: $0, turn: turn(of: $0)) }
      .min { Self.isBefore($0, $1, owners: owners) }?.place
  }

  /// Sorts positions in round-robin order.
  func sorted(_ places: [Place], owners: Bool) -> [Place] {
    guard places.count > 1 else { return places }
    return places.map { (place: $0, turn: turn(of: $0)) }
      .sorted { Self.isBefore($0, $1, owners: owners) }.map(\.place)
  }

  private func turn(of place: Place) -> QueueTurn {
    let lane = place.lane
    return QueueTurn(
      priority: place.priority,
      owner: (loadingOfOwner[lane.owner] ?? 0, servedOwner[lane.owner] ?? 0),
      lane: (loading[lane] ?? 0, served[lane] ?? 0))
  }

  private static func isBefore(
    _ a: (place: Place, turn: QueueTurn), _ b: (place: Place, turn: QueueTurn), owners: Bool
  ) -> Bool {
    a.turn.comesBefore(b.turn, owners: owners) ?? a.place.lane.isBefore(b.place.lane)
  }
}

extension Lanes.Lane {
  /// An arbitrary order, for lanes that are equal otherwise.
  fileprivate func isBefore(_ other: Self) -> Bool {
    owner == other.owner ? batch < other.batch : owner.lexicographicallyPrecedes(other.owner)
  }
}

extension JobRow {
  /// The job's position in the queue.
  var place: Lanes.Place {
    Lanes.Place(priority: priority, lane: Lanes.Lane(owner: owner, batch: batch))
  }
}
