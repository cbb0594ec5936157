internal import Foundation
internal import GRDB
internal import Jobs

/// Which origins may have parked jobs, and what is known of the next one at each level.
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

  /// What is known of a level.
  private enum Level: Sendable, Equatable {
    case unknown, empty
    case head(Head)
  }

  private var levels: [String: [Level]] = [:]

  /// The origins with parked jobs, and maybe some whose last one is gone.
  var origins: some Sequence<String> { levels.keys }

  /// Learns what is parked.
  init(_ db: Database) throws {
    // Beside a minimum, SQLite gives the other columns of the row that has it.
    let heads = try Row.fetchCursor(
      db,
      sql: """
        SELECT origin, priority, min(rank), number, id FROM jobs WHERE phase = 0 AND waiting = 2
        GROUP BY origin, priority
        """)
    while let row = try heads.next() {
      guard let id = JobID(data: row[4]) else { continue }
      let head = Head(rank: row[2], number: row[3], id: id)
      let origin = String(decoding: row[0] as Data, as: UTF8.self)
      levels[origin, default: Self.all(.empty)][JobRow.level(row[1])] = .head(head)
    }
  }

  private static func all(_ level: Level) -> [Level] {
    [Level](repeating: level, count: Priority.allCases.count)
  }

  /// Notes that a row is in the table.
  mutating func add(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .parked, let origin = row.origin,
      let id = row.jobID
    else { return }
    let head = Head(rank: row.rank, number: row.number, id: id)
    switch levels[origin, default: Self.all(.empty)][row.priority] {
    case .unknown: break
    case .head(let known) where known.rank < head.rank: break
    case .empty, .head: levels[origin, default: Self.all(.empty)][row.priority] = .head(head)
    }
  }

  /// Notes that a row is in the table no more.
  mutating func remove(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .parked, let origin = row.origin,
      case .head(let head)? = levels[origin]?[row.priority], head.number == row.number
    else { return }
    levels[origin]?[row.priority] = .unknown
  }

  /// The next parked job of an origin at a level.
  mutating func head(_ origin: String, _ priority: Int, _ db: Database) throws -> Head? {
    switch levels[origin]?[priority] {
    case nil, .empty: return nil
    case .head(let head): return head
    case .unknown:
      let head = try Self.look(origin, priority, db)
      levels[origin]?[priority] = head.map(Level.head) ?? .empty
      if levels[origin] == Self.all(.empty) { levels[origin] = nil }
      return head
    }
  }

  private static func look(_ origin: String, _ priority: Int, _ db: Database) throws -> Head? {
    let statement = try db.cachedStatement(
      sql: """
        SELECT rank, number, id FROM jobs
        WHERE phase = 0 AND waiting = 2 AND origin = ? AND priority = ? ORDER BY rank LIMIT 1
        """)
    let row = try Row.fetchOne(statement, arguments: [Data(origin.utf8), priority])
    guard let row, let id = JobID(data: row[2]) else { return nil }
    return Head(rank: row[0], number: row[1], id: id)
  }
}
