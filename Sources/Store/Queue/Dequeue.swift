internal import Foundation
internal import GRDB
internal import Jobs

/// Claims the jobs that a ``ClaimChooser`` chooses: reads pages of rows, and writes each job's new state.
struct Dequeue {
  /// The maximum number of rows that one transaction reads without claiming them: each is deferred
  /// by a write, and all other changes wait.
  static let maxRowsPerClaim = 2_000

  private(set) var chooser: ClaimChooser
  /// The claimed jobs in their new state.
  private(set) var claimed: [JobRow] = []
  /// The rows that were read, by their numbers.
  private var rows: [Int64: JobRow] = [:]

  init(
    _ count: Int, at moment: Timestamp, room: OriginCapacity, owners: OwnerCapacity,
    of transaction: WriteTransaction
  ) {
    chooser = ClaimChooser(
      count, at: moment, room: room, owners: owners,
      longestWait: transaction.counters.nextDue.longestWait, maxDeferred: Self.maxRowsPerClaim)
  }

  /// Claims jobs until there are enough, no more exist, or the limit of rows is reached.
  mutating func run(
    for instance: Instance, at moment: Timestamp, in transaction: inout WriteTransaction
  ) throws {
    while true {
      switch chooser.next(from: &transaction.counters.queues) {
      case .claim(let job):
        let row = try row(of: job, transaction.db)
        claimed.append(try transaction.markLoading(row, for: instance, at: moment))
      case .deferJob(let job):
        try transaction.setState(of: row(of: job, transaction.db), to: .parked)
      case .postpone(let job):
        try transaction.setState(of: row(of: job, transaction.db), to: .due)
      case .readReady(let position, let count):
        try readReady(at: position, count, in: transaction)
      case .readDeferred(let origin, let position):
        try transaction.counters.queues.deferred.readFirst(origin, position, transaction.db)
      case .end: return
      }
    }
  }

  private mutating func readReady(
    at position: QueuePosition, _ count: Int, in transaction: WriteTransaction
  ) throws {
    let page = try JobRow.fetchAll(
      """
      phase = 0 AND waiting = 0 AND priority = ? AND owner = ? AND batch = ? ORDER BY rank LIMIT ?
      """, [position.priority, position.queue.owner.data, position.queue.batch, count],
      transaction.db)
    for row in page { rows[row.number] = row }
    chooser.add(page.map(\.candidate), at: position, hasMore: page.count == count)
  }

  private mutating func row(of job: QueuedCandidate, _ db: Database) throws -> JobRow {
    if let row = rows.removeValue(forKey: job.number) { return row }
    guard let row = try JobRow.fetch(number: job.number, db) else {
      throw StoreError.unavailable(detail: "the row of a parked job is missing")
    }
    return row
  }
}
