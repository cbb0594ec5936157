internal import Foundation
internal import GRDB
internal import Jobs

/// Finds queued jobs with equal requests. The index of requests is divided into blocks of 65,536
/// ranks, so a search needs one query per block: about 15 for a million jobs, and usually one.
struct QueuedRequests: Sendable {
  /// The number of queued jobs with a request, by block of ranks.
  private var counts: [Int64: Int] = [:]

  /// The condition of one query. Its arguments are the request and the block.
  static let condition =
    "phase = 0 AND rank >> 16 = ?2 AND substr(request, 1, 6) = substr(?1, 1, 6) AND request = ?1"

  init() {}

  /// Loads the counts from the database.
  init(counting db: Database) throws {
    let blocks = try Row.fetchCursor(
      db,
      sql: """
        SELECT rank >> 16, count(*) FROM jobs WHERE phase = 0 AND request IS NOT NULL GROUP BY rank >> 16
        """)
    while let row = try blocks.next() { counts[row[0]] = row[1] }
  }

  /// The blocks with such jobs, in queue order.
  var blocks: [Int64] { counts.keys.sorted() }

  /// Records that a row was written or deleted; `nil` means the row did not exist before or does
  /// not exist afterwards.
  mutating func recordChange(from old: JobRow?, to new: JobRow?) {
    let (left, come) = (old?.requestBlock, new?.requestBlock)
    guard left != come else { return }
    if let left { add(-1, at: left) }
    if let come { add(1, at: come) }
  }

  private mutating func add(_ change: Int, at block: Int64) {
    let count = counts[block, default: 0] + change
    counts[block] = count > 0 ? count : nil
  }

  /// Returns whether a queued job has this request.
  func contains(_ request: Data, _ db: Database) throws -> Bool {
    guard !counts.isEmpty else { return false }
    let look = try db.cachedStatement(sql: "SELECT 1 FROM jobs WHERE \(Self.condition) LIMIT 1")
    return try blocks.contains { try Int.fetchOne(look, arguments: [request, $0]) != nil }
  }
}

extension JobRow {
  /// The block of the row in the index; `nil` if the row is not indexed.
  fileprivate var requestBlock: Int64? { phase == .queued && request != nil ? rank >> 16 : nil }
}
