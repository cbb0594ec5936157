internal import Foundation
internal import GRDB
internal import Jobs
internal import Synchronization

/// The queues in memory, and the rows that they count.
extension ClaimableJobs {
  /// Loads the queues from the database.
  init(_ db: Database) throws {
    self.init()
    let stages = "\(BatchStage.cancelling.rawValue), \(BatchStage.purged.rawValue)"
    for number in try Int64.fetchAll(
      db, sql: "SELECT number FROM batches WHERE stage IN (\(stages))")
    { ready.stop(number, after: 0) }
    let running = try Row.fetchCursor(
      db, sql: "SELECT owner, batch, count(*) FROM jobs WHERE phase = 1 GROUP BY owner, batch")
    while let row = try running.next() {
      ready.addLoading(row[2], of: QueuePosition(priority: 0, owner: row[0], batch: row[1]).queue)
    }
    let queued = try Row.fetchCursor(
      db,
      sql: """
        SELECT priority, owner, batch, count(*) FROM jobs WHERE phase = 0 AND waiting = 0
        GROUP BY priority, owner, batch
        """)
    while let row = try queued.next() {
      ready.addReady(row[3], at: QueuePosition(priority: row[0], owner: row[1], batch: row[2]))
    }
    // With `min()`, SQLite takes the other columns from the row with the minimum.
    let heads = try Row.fetchCursor(
      db,
      sql: """
        SELECT origin, priority, min(rank), number, id, owner, batch, not_before FROM jobs
        WHERE phase = 0 AND waiting = 2 GROUP BY origin, priority, owner, batch
        """)
    while let row = try heads.next() {
      deferred.add(
        QueuedCandidate(
          number: row[3], id: JobID(data: row[4]),
          position: QueuePosition(priority: row[1], owner: row[5], batch: row[6]), rank: row[2],
          notBefore: (row[7] as Int64?).map(Timestamp.init),
          origin: String(decoding: row[0] as Data, as: UTF8.self)))
    }
  }

  /// Adds a row that was inserted.
  mutating func add(_ row: JobRow) {
    switch (row.phase, row.waiting) {
    case (.queued, .ready): ready.addReady(1, at: row.position)
    case (.queued, .parked): deferred.add(row.candidate)
    case (.loading, _): ready.addLoading(1, of: row.position.queue)
    default: break
    }
  }

  /// Removes a row that was deleted.
  mutating func remove(_ row: JobRow) {
    switch (row.phase, row.waiting) {
    case (.queued, .ready): ready.addReady(-1, at: row.position)
    case (.queued, .parked):
      let job = row.candidate
      deferred.remove(job, served: ready.served.lastTurn(of: job.position.queue))
    case (.loading, _): ready.addLoading(-1, of: row.position.queue)
    default: break
    }
  }
}

extension DeferredJobs {
  /// Returns whether another job is deferred before this row, with the same origin and position.
  mutating func isAhead(of row: JobRow, _ db: Database) throws -> Bool {
    guard row.phase == .queued, let origin = row.origin else { return false }
    let position = row.position
    try readFirst(origin, position, db)
    guard case .job(let head) = first(of: origin, at: position) else { return false }
    return head.rank < row.rank
  }

  /// Reads the first deferred job of an origin at a position, if it is unknown.
  mutating func readFirst(_ origin: String, _ position: QueuePosition, _ db: Database) throws {
    guard case .unknown = first(of: origin, at: position) else { return }
    let statement = try db.cachedStatement(
      sql: """
        SELECT rank, number, id, not_before FROM jobs WHERE phase = 0 AND waiting = 2 AND origin = ?
          AND priority = ? AND owner = ? AND batch = ? ORDER BY rank LIMIT 1
        """)
    let row = try Row.fetchOne(
      statement,
      arguments: [
        Data(origin.utf8), position.priority, position.queue.owner.data, position.queue.batch,
      ])
    let job = row.map {
      QueuedCandidate(
        number: $0[1], id: JobID(data: $0[2]), position: position, rank: $0[0],
        notBefore: ($0[3] as Int64?).map(Timestamp.init), origin: origin)
    }
    setFirst(job, of: origin, at: position)
  }
}

extension QueuePosition {
  /// The position of a row with these columns. An invalid priority becomes the nearest valid one.
  init(priority: Int, owner: Data, batch: Int64) {
    self.init(
      priority: JobRow.validPriority(priority),
      queue: JobQueueName(owner: Owner(String(decoding: owner, as: UTF8.self)), batch: batch))
  }
}

extension JobRow {
  /// The job's position in the queue.
  var position: QueuePosition { QueuePosition(priority: priority, owner: owner, batch: batch) }

  /// The job, as far as the choice of the next job depends on it.
  var candidate: QueuedCandidate {
    QueuedCandidate(
      number: number, id: jobID, position: position, rank: rank,
      notBefore: notBefore.map(Timestamp.init), origin: origin)
  }

  /// Replaces invalid priorities of damaged rows by the nearest valid one, so that these jobs are
  /// claimed too.
  static func repairPriorities(_ db: Database) throws {
    let (lowest, highest) = (validPriority(.min), validPriority(.max))
    for (wrong, level) in [("> \(highest)", highest), ("< \(lowest)", lowest)] {
      try db.execute(
        sql: """
          UPDATE jobs SET priority = \(level) WHERE phase = 0 AND waiting = 0 AND priority \(wrong)
          """)
    }
  }
}

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

/// The earliest due time of waiting jobs, cached so that claims need no query before it.
struct NextDue: Sendable {
  private enum Known: Sendable {
    case unknown
    /// `nil` if no job waits.
    case at(Int64?)
  }

  private var known = Known.unknown
  /// See ``QueueOrder/isDue(_:at:longestWait:)``.
  var longestWait = Duration.seconds(86_400)

  /// Returns whether jobs may have become due.
  func mayHaveDueJobs(at moment: Timestamp) -> Bool {
    switch known {
    case .unknown: true
    case .at(nil): false
    case .at(let next?):
      QueueOrder.isDue(Timestamp(milliseconds: next), at: moment, longestWait: longestWait)
    }
  }

  /// The latest valid due time, in milliseconds.
  func latest(at moment: Timestamp) -> Int64 { (moment + longestWait).milliseconds }

  /// Adds a row that was inserted.
  mutating func add(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .due, let notBefore = row.notBefore,
      case .at(let next) = known
    else { return }
    known = .at(min(next ?? .max, notBefore))
  }

  /// Removes a row that was deleted.
  mutating func remove(_ row: JobRow) {
    guard row.phase == .queued, row.waiting == .due, case .at(row.notBefore) = known else { return }
    known = .unknown
  }

  /// Empties the cache after several rows changed.
  mutating func invalidate() { known = .unknown }

  /// The earliest due time; `nil` if no job waits.
  mutating func moment(_ db: Database) throws -> Timestamp? {
    if case .at(let next) = known { return next.map(Timestamp.init) }
    let next = try Int64.fetchOne(
      db.cachedStatement(
        sql: "SELECT min(not_before) FROM jobs WHERE phase = 0 AND waiting = 1"))
    known = .at(next)
    return next.map(Timestamp.init)
  }
}

/// A cache of the rows of loading jobs, as this process wrote them last. When such a job finishes,
/// its row need not be read and decoded. Only the writing thread uses it.
///
/// Every write of a row updates the cache, and every rollback empties it. Rows that are missing here
/// are read from the database.
final class LoadingRowCache {
  /// The maximum number of bytes of all rows. Beyond it, for example if thousands of jobs share a
  /// load, rows are read again.
  static let mostBytes = 16 << 20
  private(set) var rows: [Data: JobRow] = [:]
  /// The number of bytes of these rows.
  private(set) var bytes = 0

  subscript(id: Data) -> JobRow? { rows[id] }

  /// Updates the cache after a job's row was written.
  func update(_ row: JobRow) {
    remove(row)
    guard row.phase == .loading, bytes + row.heldBytes <= Self.mostBytes else { return }
    rows[row.id] = row
    bytes += row.heldBytes
  }

  /// Removes the row of a deleted job.
  func remove(_ row: JobRow) {
    if let old = rows.removeValue(forKey: row.id) { bytes -= old.heldBytes }
  }

  /// Empties the cache after a rollback.
  func removeAll() {
    rows.removeAll(keepingCapacity: true)
    bytes = 0
  }
}

extension JobRow {
  /// The approximate memory of a row in bytes: the record, the decoded job with the same texts, and
  /// both structures.
  fileprivate var heldBytes: Int { 4_096 + 2 * record.count + (tags?.count ?? 0) }
}

/// A row's decoded job, decoded once for all copies of the row.
final class DecodedJob: Sendable {
  private let job: Mutex<Job?>

  init(_ job: Job? = nil) { self.job = Mutex(job) }

  /// - Parameter decode: called if the job was not decoded yet.
  func value(_ decode: () throws -> Job) throws -> Job {
    if let job = job.withLock(\.self) { return job }
    let decoded = try decode()
    job.withLock { $0 = decoded }
    return decoded
  }
}
