internal import Foundation
internal import GRDB
internal import HashTreeCollections
internal import Jobs

/// The parked jobs of each origin, with a cache of the first one at each position.
///
/// A position needs one query after its first parked job was claimed or deleted. Positions without
/// changes need none, whatever the number of parked jobs.
struct ParkedJobs: Sendable {
  /// The first parked job of a position.
  struct Head: Sendable, Equatable {
    var rank: Int64
    var number: Int64
    var id: JobID
  }

  /// The cached state of a position that may have parked jobs.
  private enum Known: Sendable, Equatable {
    case unknown
    case head(Head)
  }

  /// The order of an origin's positions: higher priorities first, then the longest time since the
  /// last claim.
  private struct PositionOrder: Comparable, Sendable {
    let priority: Int
    let taken: Int
    let batch: Int64

    static func < (a: Self, b: Self) -> Bool {
      (-a.priority, a.taken, a.batch) < (-b.priority, b.taken, b.batch)
    }
  }

  private struct Origin: Sendable {
    var places: TreeDictionary<ReadyQueues.Position, (known: Known, taken: Int)> = [:]
    var turns: TreeDictionary<Data, SortedElements<PositionOrder>> = [:]

    /// - Parameter taken: when a job of this position was last claimed; `nil` for no change.
    mutating func set(_ place: ReadyQueues.Position, _ known: Known?, taken: Int? = nil) {
      let old = places[place]
      let new = known.map { (known: $0, taken: taken ?? old?.taken ?? 0) }
      places[place] = new
      guard old?.taken != new?.taken else { return }
      let owner = place.lane.owner
      func turn(_ taken: Int) -> PositionOrder {
        PositionOrder(priority: place.priority, taken: taken, batch: place.lane.batch)
      }
      var turns = turns.removeValue(forKey: owner) ?? SortedElements()
      if let old { turns.remove(turn(old.taken)) }
      if let new { turns.insert(turn(new.taken)) }
      if !turns.isEmpty { self.turns[owner] = turns }
    }
  }

  /// The maximum number of an owner's positions at one origin to compare. If there are more, they
  /// take turns.
  private static let mostCompared = 16

  private var known: TreeDictionary<String, Origin> = [:]
  private var taken = 0

  /// The origins with parked jobs, possibly including some whose last parked job is gone.
  var origins: some Sequence<String> { known.keys }

  /// Returns an origin's positions with parked jobs: for each owner, those that may be first, or
  /// last, in round-robin order.
  /// - Parameter isMeant: whether to consider an owner's positions.
  func places(
    of origin: String, ownedBy isMeant: (Data) -> Bool, last: Bool,
    where condition: (ReadyQueues.Position) -> Bool
  ) -> [ReadyQueues.Position] {
    (known[origin]?.turns ?? [:]).flatMap { owner, turns in
      var places: [ReadyQueues.Position] = []
      guard isMeant(owner) else { return places }
      func add(_ turn: PositionOrder) -> Bool {
        let lane = ReadyQueues.Queue(owner: owner, batch: turn.batch)
        let place = ReadyQueues.Position(priority: turn.priority, lane: lane)
        if condition(place) { places.append(place) }
        return places.count < Self.mostCompared
      }
      if last {
        for turn in turns.descending where !add(turn) { break }
      } else {
        for turn in turns.ascending where !add(turn) { break }
      }
      return places
    }
  }

  private mutating func set(
    _ origin: String, _ place: ReadyQueues.Position, _ value: Known?, taken: Int? = nil
  ) {
    known[origin, default: Origin()].set(place, value, taken: taken)
    if known[origin]?.places.isEmpty == true { known[origin] = nil }
  }

  /// Returns whether another job is parked before this row, with the same origin and position.
  mutating func isAhead(of row: JobRow, _ db: Database) throws -> Bool {
    guard row.phase == .queued, let origin = row.origin,
      let head = try first(origin, row.position, db)
    else { return false }
    return head.rank < row.rank
  }

  /// Loads the parked jobs from the database.
  init(_ db: Database) throws {
    // With `min()`, SQLite takes the other columns from the row with the minimum.
    let heads = try Row.fetchCursor(
      db,
      sql: """
        SELECT origin, priority, min(rank), number, id, owner, batch FROM jobs
        WHERE phase = 0 AND waiting = 2 GROUP BY origin, priority, owner, batch
        """)
    while let row = try heads.next() {
      guard let id = JobID(data: row[4]) else { continue }
      let head = Head(rank: row[2], number: row[3], id: id)
      let origin = String(decoding: row[0] as Data, as: UTF8.self)
      let lane = ReadyQueues.Queue(owner: row[5], batch: row[6])
      let place = ReadyQueues.Position(priority: JobRow.validPriority(row[1]), lane: lane)
      set(origin, place, .head(head))
    }
  }

  /// Adds a row that was inserted.
  mutating func add(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .parked, let origin = row.origin,
      let id = row.jobID
    else { return }
    let head = Head(rank: row.rank, number: row.number, id: id)
    switch known[origin]?.places[row.position]?.known {
    case .unknown?: break
    case .head(let known)? where known.rank < head.rank: break
    case nil, .head?: set(origin, row.position, .head(head))
    }
  }

  /// Removes a row that was deleted.
  mutating func remove(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .parked, let origin = row.origin,
      case .head(let head)? = known[origin]?.places[row.position]?.known, head.number == row.number
    else { return }
    taken += 1
    set(origin, row.position, .unknown, taken: taken)
  }

  /// Returns the first parked job of an origin at a position.
  mutating func first(_ origin: String, _ place: ReadyQueues.Position, _ db: Database) throws
    -> Head?
  {
    switch known[origin]?.places[place]?.known {
    case nil: return nil
    case .head(let head)?: return head
    case .unknown?:
      let head = try Self.fetchFirst(origin, place, db)
      set(origin, place, head.map(Known.head))
      return head
    }
  }

  private static func fetchFirst(
    _ origin: String, _ place: ReadyQueues.Position, _ db: Database
  ) throws -> Head? {
    let statement = try db.cachedStatement(
      sql: """
        SELECT rank, number, id FROM jobs WHERE phase = 0 AND waiting = 2 AND origin = ?
          AND priority = ? AND owner = ? AND batch = ? ORDER BY rank LIMIT 1
        """)
    let row = try Row.fetchOne(
      statement,
      arguments: [Data(origin.utf8), place.priority, place.lane.owner, place.lane.batch])
    guard let row, let id = JobID(data: row[2]) else { return nil }
    return Head(rank: row[0], number: row[1], id: id)
  }
}
