internal import Foundation
internal import GRDB
internal import Jobs

/// Which origins may have parked jobs, and what is known of the next one at each place.
///
/// An origin costs a look at the database once after its next job was taken; one that nothing changed for costs none,
/// however many jobs are parked for it.
struct ParkedHeads: Sendable {
  /// A parked job.
  struct Head: Sendable, Equatable {
    var rank: Int64
    var number: Int64
    var id: JobID
  }

  /// What is known of a place where there may be some.
  private enum Known: Sendable, Equatable {
    case unknown
    case head(Head)
  }

  private var known: [String: [Lanes.Place: Known]] = [:]

  /// The origins with parked jobs, and maybe some whose last one is gone.
  var origins: some Sequence<String> { known.keys }

  /// Where an origin has parked jobs, or may have.
  func places(of origin: String) -> some Sequence<Lanes.Place> { (known[origin] ?? [:]).keys }

  /// Whether a job of the row's origin is parked ahead of it, at its place.
  mutating func isAhead(of row: JobRow, _ db: Database) throws -> Bool {
    guard row.phase == .queued, let origin = row.origin,
      let head = try head(origin, row.place, db)
    else { return false }
    return head.rank < row.rank
  }

  /// Learns what is parked.
  init(_ db: Database) throws {
    // Beside a minimum, SQLite gives the other columns of the row that has it.
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
      let lane = Lanes.Lane(owner: row[5], batch: row[6])
      let place = Lanes.Place(priority: JobRow.level(row[1]), lane: lane)
      known[origin, default: [:]][place] = .head(head)
    }
  }

  /// Notes that a row is in the table.
  mutating func add(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .parked, let origin = row.origin,
      let id = row.jobID
    else { return }
    let head = Head(rank: row.rank, number: row.number, id: id)
    switch known[origin]?[row.place] {
    case .unknown?: break
    case .head(let known)? where known.rank < head.rank: break
    case nil, .head?: known[origin, default: [:]][row.place] = .head(head)
    }
  }

  /// Notes that a row is in the table no more.
  mutating func remove(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .parked, let origin = row.origin,
      case .head(let head)? = known[origin]?[row.place], head.number == row.number
    else { return }
    known[origin]?[row.place] = .unknown
  }

  /// The next parked job of an origin at a place.
  mutating func head(_ origin: String, _ place: Lanes.Place, _ db: Database) throws -> Head? {
    switch known[origin]?[place] {
    case nil: return nil
    case .head(let head)?: return head
    case .unknown?:
      let head = try Self.look(origin, place, db)
      known[origin]?[place] = head.map(Known.head)
      if known[origin]?.isEmpty == true { known[origin] = nil }
      return head
    }
  }

  private static func look(
    _ origin: String, _ place: Lanes.Place, _ db: Database
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
