internal import Foundation
internal import GRDB
internal import Jobs

/// Where queued jobs with equal requests are looked for: the index of requests is in blocks of ranks, so that a queue of a
/// million is some fifteen looks, and a usual one is one.
struct QueuedRequests: Sendable {
  /// How many queued jobs ask a request, by their ranks' block.
  private var counts: [Int64: Int] = [:]

  /// The condition of one look, whose arguments are the request and the block.
  static let condition =
    "phase = 0 AND rank >> 16 = ?2 AND substr(request, 1, 6) = substr(?1, 1, 6) AND request = ?1"

  /// None.
  init() {}

  /// Counts what the database holds.
  init(counting db: Database) throws {
    let blocks = try Row.fetchCursor(
      db,
      sql: """
        SELECT rank >> 16, count(*) FROM jobs WHERE phase = 0 AND request IS NOT NULL GROUP BY rank >> 16
        """)
    while let row = try blocks.next() { counts[row[0]] = row[1] }
  }

  /// Where there are some, those ahead in the queue first.
  var blocks: [Int64] { counts.keys.sorted() }

  /// Notes that a row was written or deleted; nil where there is none before or after.
  mutating func move(from old: JobRow?, to new: JobRow?) {
    let (left, come) = (old?.requestBlock, new?.requestBlock)
    guard left != come else { return }
    if let left { add(-1, at: left) }
    if let come { add(1, at: come) }
  }

  private mutating func add(_ change: Int, at block: Int64) {
    let count = counts[block, default: 0] + change
    counts[block] = count > 0 ? count : nil
  }

  /// Whether a queued job asks the request.
  func isAny(_ request: Data, _ db: Database) throws -> Bool {
    guard !counts.isEmpty else { return false }
    let look = try db.cachedStatement(sql: "SELECT 1 FROM jobs WHERE \(Self.condition) LIMIT 1")
    return try blocks.contains { try Int.fetchOne(look, arguments: [request, $0]) != nil }
  }
}

extension JobRow {
  /// Where the index of requests has it; nil where it has not.
  fileprivate var requestBlock: Int64? { phase == .queued && request != nil ? rank >> 16 : nil }
}
