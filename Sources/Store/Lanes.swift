internal import Foundation
internal import GRDB
internal import HashTreeCollections
internal import Jobs

/// Whose jobs are ready for their turn, and whose are loading: what is needed to be fair.
///
/// A lane is what is served in the order in which it came: an owner's single jobs, or those of a batch.
///
/// Each operation of a transaction keeps a copy, to go back to if it fails. Trees share what a change leaves as it is, so
/// that a copy costs the same however many lanes there are.
struct Lanes: Sendable {
  struct Lane: Hashable, Sendable {
    let owner: Data
    /// 0: single jobs.
    let batch: Int64
  }

  /// A lane's jobs of one priority.
  struct Place: Hashable, Sendable {
    let priority: Int
    let lane: Lane
  }

  /// How many jobs are ready at each place; never none.
  private var ready: TreeDictionary<Place, Int> = [:]
  private var loadingOfOwner: TreeDictionary<Data, Int> = [:]
  private var loading: TreeDictionary<Lane, Int> = [:]
  /// When each lane had its turn last, counted in turns.
  private var served: TreeDictionary<Lane, Int> = [:]
  /// When each owner had one last.
  private var servedOwner: TreeDictionary<Data, Int> = [:]
  private var turns = 0
  /// At how many lanes those are forgotten that were served long ago.
  private var mostServed = 4_096
  /// The places that are ready, except of stopped batches.
  private var order = TurnOrder(priorities: 0...Priority.allCases.count - 1)
  /// Batches of which no job is to be handed over, each with the line up to which its jobs were ended.
  private(set) var stopped: TreeDictionary<Int64, Int> = [:]

  /// Gives queued jobs with a priority that there is none of, in damaged rows, the nearest one: they have their turn, too.
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

  /// Notes that a row is in the table.
  mutating func add(_ row: JobRow) { note(row, 1) }

  /// Notes that a row is in the table no more.
  mutating func remove(_ row: JobRow) { note(row, -1) }

  /// A job's time has come.
  mutating func wake(_ place: Place) { add(1, at: place) }

  /// The line up to which the jobs of a stopped batch were ended; nil: the batch is not stopped.
  func stoppedLine(of batch: Int64) -> Int? { stopped[batch] }

  /// Stops a batch, with the line up to which its jobs were ended; nil: its jobs may be handed over.
  /// - Parameter owner: nil: the batch was stopped before, or has no queued jobs.
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

  /// Changes what the turn of a lane and of its owner is made of, and their places in the order.
  private mutating func changeTurn(of lane: Lane, _ change: (inout Lanes) -> Void) {
    let places = (0..<Priority.allCases.count).map { Place(priority: $0, lane: lane) }
      .filter { ready[$0] != nil }
    for place in places { removeFromOrder(place) }
    let before = ownerTurn(lane.owner)
    change(&self)
    order.move(owner: lane.owner, from: before, to: ownerTurn(lane.owner))
    for place in places { addToOrder(place) }
  }

  /// A lane had its turn.
  mutating func serve(_ lane: Lane) {
    turns += 1
    // Forget lanes that were not served in the last 2,048 turns, except those in the order: it is made of their turns.
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

  /// Whether the same jobs are ready.
  func hasSameReady(as other: Lanes) -> Bool { ready == other.ready }

  /// Whether a place has ready jobs.
  func isReady(_ place: Place) -> Bool { ready[place] != nil }

  private func isReady(_ lane: Lane) -> Bool {
    (0..<Priority.allCases.count).contains { ready[Place(priority: $0, lane: lane)] != nil }
  }

  /// The ready places one of which is next: see ``TurnOrder/first(ownersFirst:of:except:_:)``.
  func next(
    ownersFirst: Bool, of isMeant: (Data) -> Bool, except skipped: Set<Place>,
    _ inspected: inout Int
  ) -> [Place] {
    order.first(ownersFirst: ownersFirst, of: isMeant, except: skipped, &inspected)
  }

  /// So many ready places whose turns come last.
  /// - Parameter isMeant: whether an owner's places are.
  func last(
    _ count: Int, of isMeant: (Data) -> Bool, except skipped: Set<Place>, _ inspected: inout Int
  ) -> [Place] {
    order.last(count, of: isMeant, except: skipped, &inspected)
  }

  /// The place whose turn it is.
  /// - Parameter owners: whether the owners come before the priority.
  func first(of places: [Place], owners: Bool) -> Place? {
    guard places.count > 1 else { return places.first }
    return places.lazy.map { (place: $0, turn: turn(of: $0)) }
      .min { Self.isBefore($0, $1, owners: owners) }?.place
  }

  /// The places in the order of their turns.
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
  /// An order where no other tells one.
  fileprivate func isBefore(_ other: Self) -> Bool {
    owner == other.owner ? batch < other.batch : owner.lexicographicallyPrecedes(other.owner)
  }
}

extension JobRow {
  /// Where it waits for its turn.
  var place: Lanes.Place {
    Lanes.Place(priority: priority, lane: Lanes.Lane(owner: owner, batch: batch))
  }
}
