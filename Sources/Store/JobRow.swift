internal import Foundation
internal import GRDB
internal import Jobs
internal import Logging

/// A job as the table holds it: its record, and beside it what is searched by.
struct JobRow: Sendable {
  /// What a queued job waits for.
  enum Waiting: Int {
    /// Its turn.
    case ready = 0
    /// Its time.
    case due
    /// Room at its origin, which had none when its turn came.
    case parked
  }

  var number: Int64
  let id: Data
  let owner: Data
  var phase: Phase
  var priority: Int
  var rank: Int64
  var waiting: Waiting
  var notBefore: Int64?
  /// The number of the claim that holds it, while loading.
  var claim: Int64?
  /// When the claim took it, until the record tells.
  var claimedAt: Int64?
  var finishedAt: Int64?
  var expiresAt: Int64?
  /// The digest of what is kept of the result.
  var image: Data?
  /// The captured source's digest, while it is kept.
  var source: Data?
  var tags: Data?
  var record: Data
  /// Job.origin, until it has finished.
  var origin: String?
  /// Job.request, until it has finished.
  var request: Data?
  /// 1 where Job.hasLowDataImage.
  var low: Int?
  /// The number of its batch; 0: it is of none.
  var batch: Int64 = 0
  /// Which line of its batch it is.
  let line: Int?
  /// Why a job of a batch has failed.
  var code: String?
  /// The defaults that its record leaves out.
  let defaults: SharedDefaults?
  /// What ``job()`` gives; nil where that is not kept. Whoever changes a column that it depends on replaces it.
  var decoded: DecodedJob?

  static let columns = """
    number, id, owner, phase, priority, rank, waiting, not_before, claim, claimed_at, finished_at, expires_at, \
    image, source, tags, record, origin, request, low, batch, line, code, defaults
    """

  init(_ row: Row, _ db: Database) throws {
    guard let phase = Phase(code: row[3]), let waiting = Waiting(rawValue: row[6]) else {
      throw StoreError.unreadable(detail: "the job of row \(row[0] as Int64) is in no known phase")
    }
    (number, id, owner, self.phase) = (row[0], row[1], row[2], phase)
    (rank, self.waiting, notBefore) = (row[5], waiting, row[7])
    priority = Self.level(row[4])
    (claim, claimedAt, finishedAt, expiresAt) = (row[8], row[9], row[10], row[11])
    (image, source, tags, record) = (row[12], row[13], row[14], row[15])
    origin = (row[16] as Data?).map { String(decoding: $0, as: UTF8.self) }
    (request, low) = (row[17], row[18])
    (batch, line, code) = (row[19], row[20], row[21])
    defaults = try (row[22] as Data?).map { [batch] in
      try SharedDefaults.fetch($0, of: batch, db)
    }
  }

  /// The priority that a column tells; what is none is the nearest one.
  static func level(_ column: Int) -> Int { min(max(0, column), Priority.allCases.count - 1) }

  /// The row of a job that is new.
  init(_ job: Job, record: Data) throws {
    (number, id, owner, rank) = (0, job.id.data, job.owner.data, 0)
    (phase, priority, waiting) = (job.phase, 0, .ready)
    (source, self.record) = (job.capturedSource?.digest.data, record)
    line = job.batch?.line
    defaults = job.submission.defaults
    try set(job)
  }

  /// The job as it is.
  ///
  /// Taking a job and letting its image give way write columns only, as both may concern many jobs at once: here
  /// the record catches up by the same moves.
  ///
  /// - Throws: `.unreadable` where the record is none, or another job's, or says otherwise than the columns.
  func job() throws -> Job {
    guard let decoded else { return try decodedRecord() }
    return try decoded.value(decodedRecord)
  }

  private func decodedRecord() throws -> Job {
    var job: Job
    do { job = try JobRecord.job(from: record, over: defaults) } catch {
      throw unreadable("\(error)")
    }
    if let claimedAt, let claim {
      guard job.phase == .queued else { throw unreadable("taken while \(job.phase)") }
      job.start(
        at: Timestamp(milliseconds: claimedAt), by: ClaimNumbers.instance(of: claim))
    }
    guard job.phase == phase else { throw unreadable("\(job.phase) in a row that is \(phase)") }
    guard job.id.data == id, job.owner.data == owner else { throw unreadable("another job's") }
    if image == nil, job.keptImage != nil { job.loseImage() }
    return job
  }

  private func unreadable(_ reason: String) -> StoreError {
    let name = jobID.map { "\($0)" } ?? "of row \(number)"
    return .unreadable(detail: "the record of job \(name) can't be read: \(reason)")
  }

  /// This row with the job changed; rank and claim are the transaction's to decide.
  func updated(to job: Job) throws -> JobRow {
    var row = self
    row.record = try JobRecord.data(of: job)
    row.claimedAt = nil
    try row.set(job)
    row.decoded = DecodedJob(job)
    return row
  }

  private mutating func set(_ job: Job) throws {
    phase = job.phase
    priority = job.priority.rawValue
    notBefore = job.notBefore?.milliseconds
    waiting = phase == .queued && notBefore != nil ? .due : .ready
    finishedAt = job.finishedAt?.milliseconds
    expiresAt = job.expiresAt?.milliseconds
    image = job.keptImage?.keptDigest.data
    // What the client sent is dropped too, once it is not needed for another try.
    if job.submission.dropsOriginal, phase == .success { source = nil }
    tags = try JobRecord.data(ofTags: job.tags, over: defaults)
    origin = phase.isFinished ? nil : job.origin
    request = phase.isFinished ? nil : job.request?.data
    low = job.hasLowDataImage ? 1 : nil
    code = job.batch == nil ? nil : job.failure?.code.rawValue
  }

  /// What it counts in the queue's capacity: a place is for a record of up to 4 kB.
  var places: Int { 1 + record.count / Self.recordPerPlace }
  static let recordPerPlace = 4096

  /// What holds it, while loading.
  var heldBy: Claim? {
    guard let claim, let jobID else { return nil }
    return Claim(job: jobID, instance: ClaimNumbers.instance(of: claim), number: claim)
  }

  /// Its tags, as the record tells where their column can't be read; none where neither can: nothing else waits for them.
  var readableTags: Set<Data> {
    if let tags = try? JobRecord.tags(from: tags, over: defaults) { return tags }
    return Set((try? job().tags)?.map { Data($0.utf8) } ?? [])
  }

  /// Whether it may have any.
  var hasTags: Bool { tags != nil || defaults?.tags.isEmpty == false }

  /// Bytes that it counts in ``QueueCapacity/recordBytes``: the record, the labels twice (they are indexed), and 512 for the
  /// rest of the row and the other indexes. ``StoreCounters`` counts the same in SQL.
  var storedBytes: Int {
    512 + record.count + 2 * (tags?.count ?? defaults?.tagBytes ?? 0)
  }

  /// Bytes of the record including the defaults.
  var fullBytes: Int { record.count + (defaults?.recordBytes ?? 0) }

  var originData: Data? { origin.map { Data($0.utf8) } }

  /// When its job was submitted and which it is: ids sort by their creation.
  var jobID: JobID? { JobID(data: id) }

  /// Whether only the records differ.
  func hasSameColumns(as other: JobRow) -> Bool {
    phase == other.phase && priority == other.priority && rank == other.rank
      && waiting == other.waiting && notBefore == other.notBefore && claim == other.claim
      && claimedAt == other.claimedAt && finishedAt == other.finishedAt
      && expiresAt == other.expiresAt && image == other.image && source == other.source
      && tags == other.tags && origin == other.origin && request == other.request
      && low == other.low && code == other.code
  }
}

extension JobRow {
  static func fetch(_ id: Data, _ db: Database) throws -> JobRow? {
    let statement = try db.cachedStatement(sql: "SELECT \(columns) FROM jobs WHERE id = ?")
    return try Row.fetchOne(statement, arguments: [id]).map { try JobRow($0, db) }
  }

  static func fetch(number: Int64, _ db: Database) throws -> JobRow? {
    let statement = try db.cachedStatement(sql: "SELECT \(columns) FROM jobs WHERE number = ?")
    return try Row.fetchOne(statement, arguments: [number]).map { try JobRow($0, db) }
  }

  /// The rows that `condition` chooses, without any that can't be read: one of a phase that there is not is not chosen, as it
  /// would take the place of another each time.
  /// - Parameter maxBytes: sum of ``fullBytes``; the row that reaches it is the last one.
  static func fetchAll(
    _ condition: String, _ arguments: StatementArguments, _ db: Database, maxBytes: Int = .max
  ) throws -> [JobRow] {
    // `+`: no index is chosen by this.
    let statement = try db.cachedStatement(
      sql: """
        SELECT \(columns) FROM jobs
        WHERE +phase BETWEEN 0 AND 4 AND +waiting BETWEEN 0 AND 2 AND \(condition)
        """)
    let rows = try Row.fetchCursor(statement, arguments: arguments)
    var (all, bytes): ([JobRow], Int) = ([], 0)
    while bytes < maxBytes, let row = try rows.next() {
      do {
        let job = try JobRow(row, db)
        bytes += job.fullBytes
        all.append(job)
      } catch {
        Logger(label: "store").error("a job is passed over", metadata: ["error": "\(error)"])
      }
    }
    return all
  }
}
