internal import Foundation
internal import GRDB
internal import Jobs

/// Whose jobs are ready for their turn, and whose are loading: what is needed to be fair.
///
/// A lane is what is served in the order in which it came: an owner's single jobs, or those of a batch.
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
  private(set) var ready: [Place: Int] = [:]
  private var loadingOfOwner: [Data: Int] = [:]
  private var loading: [Lane: Int] = [:]
  /// When each lane had its turn last, counted in turns.
  private var served: [Lane: Int] = [:]
  /// When each owner had one last.
  private var servedOwner: [Data: Int] = [:]
  private var turns = 0
  /// Batches of which no job is to be handed over, each with the line up to which its jobs were ended.
  var stopped: [Int64: Int] = [:]

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
      ready[Place(priority: row[0], lane: lane)] = row[3]
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
  }

  /// Notes that a row is in the table.
  mutating func add(_ row: JobRow) { note(row, 1) }

  /// Notes that a row is in the table no more.
  mutating func remove(_ row: JobRow) { note(row, -1) }

  /// A job's time has come.
  mutating func wake(_ place: Place) { Self.add(1, at: place, in: &ready) }

  private mutating func note(_ row: JobRow, _ change: Int) {
    switch (row.phase, row.waiting) {
    case (.queued, .ready): Self.add(change, at: row.place, in: &ready)
    case (.loading, _):
      Self.add(change, at: row.owner, in: &loadingOfOwner)
      Self.add(change, at: row.place.lane, in: &loading)
    default: break
    }
  }

  private static func add<Key>(_ change: Int, at key: Key, in counts: inout [Key: Int]) {
    let count = counts[key, default: 0] + change
    counts[key] = count > 0 ? count : nil
  }

  /// A lane had its turn.
  mutating func serve(_ lane: Lane) {
    turns += 1
    // Who has long had none needs no note of when.
    if served.count > 4_096 {
      served = served.filter { $0.value > turns - 2_048 }
      servedOwner = servedOwner.filter { $0.value > turns - 2_048 }
    }
    served[lane] = turns
    servedOwner[lane.owner] = turns
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
