internal import Foundation
internal import GRDB
internal import Jobs
internal import Logging
internal import Records

/// A job as stored: its record, and the columns used for searches.
struct JobRow: Sendable {
  /// The state of a queued job.
  enum Waiting: Int {
    /// The job can be claimed.
    case ready = 0
    /// The job waits until `not_before`.
    case due
    /// The job is deferred because its origin had no capacity.
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
  /// The number of the claim that holds the job while it is loading.
  var claim: Int64?
  /// The time of the claim. The record does not contain it yet.
  var claimedAt: Int64?
  var finishedAt: Int64?
  var expiresAt: Int64?
  /// The digest of the result image; `nil` if the image is not stored.
  var image: Data?
  /// The digest of the image that the client sent; `nil` if it is not stored.
  var source: Data?
  var tags: Data?
  var record: Data
  /// The job's origin; `nil` after the job has finished.
  var origin: String?
  /// The fingerprint of the job's request; `nil` after the job has finished.
  var request: Data?
  /// 1 if the job has a low-data image that is to be replaced.
  var low: Int?
  /// The number of the job's batch; 0 for a single job.
  var batch: Int64 = 0
  /// The job's line number in its batch.
  let line: Int?
  /// The failure code of a failed batch job.
  var code: String?
  /// The batch defaults that the record leaves out.
  let defaults: SharedDefaults?
  /// A cache of the result of ``job()``. Every change of a column that ``job()`` reads must replace
  /// it.
  var decoded: DecodedJob?

  static let columns = """
    number, id, owner, phase, priority, rank, waiting, not_before, claim, claimed_at, finished_at, expires_at, \
    image, source, tags, record, origin, request, low, batch, line, code, defaults
    """

  init(_ row: Row, _ db: Database) throws {
    guard let phase = Phase(code: row[3]), let waiting = Waiting(rawValue: row[6]) else {
      throw StoreError.unreadable(detail: "the job of row \(row[0] as Int64) has an unknown phase")
    }
    (number, id, owner, self.phase) = (row[0], row[1], row[2], phase)
    (rank, self.waiting, notBefore) = (row[5], waiting, row[7])
    priority = Self.validPriority(row[4])
    (claim, claimedAt, finishedAt, expiresAt) = (row[8], row[9], row[10], row[11])
    (image, source, tags, record) = (row[12], row[13], row[14], row[15])
    origin = (row[16] as Data?).map { String(decoding: $0, as: UTF8.self) }
    (request, low) = (row[17], row[18])
    (batch, line, code) = (row[19], row[20], row[21])
    defaults = try (row[22] as Data?).map { [batch] in
      try SharedDefaults.fetch($0, of: batch, db)
    }
  }

  /// Converts a column to a priority; an invalid value becomes the nearest valid one.
  static func validPriority(_ column: Int) -> Int {
    min(max(0, column), Priority.allCases.count - 1)
  }

  /// Creates the row of a new job.
  init(_ job: Job, record: Data) throws {
    (number, id, owner, rank) = (0, job.id.data, job.owner.data, 0)
    (phase, priority, waiting) = (job.phase, 0, .ready)
    (source, self.record) = (job.capturedSource?.digest.data, record)
    line = job.batch?.line
    defaults = job.submission.defaults
    try set(job)
  }

  /// The job in its current state.
  ///
  /// Claims and evictions may concern many jobs at once, so they write only columns. This method
  /// applies the same changes to the decoded record.
  ///
  /// - Throws: `.unreadable` if the record can't be decoded, belongs to another job or contradicts
  ///   the columns.
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
      guard job.phase == .queued else { throw unreadable("claimed in phase \(job.phase)") }
      job.start(
        at: Timestamp(milliseconds: claimedAt), by: ClaimNumbers.instance(of: claim))
    }
    guard job.phase == phase else { throw unreadable("phase \(job.phase), row has \(phase)") }
    guard job.id.data == id, job.owner.data == owner else {
      throw unreadable("it belongs to another job")
    }
    if image == nil, job.keptImage != nil { job.markImageEvicted() }
    return job
  }

  private func unreadable(_ reason: String) -> StoreError {
    let name = jobID.map { "\($0)" } ?? "of row \(number)"
    return .unreadable(detail: "the record of job \(name) can't be read: \(reason)")
  }

  /// Returns this row with the changed job. The transaction sets rank and claim.
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
    // A successful job that drops its original also drops the image that the client sent, because
    // no retry needs it.
    if job.submission.dropsOriginal, phase == .success { source = nil }
    tags = try JobRecord.data(ofTags: job.tags, over: defaults)
    origin = phase.isFinished ? nil : job.origin
    request = phase.isFinished ? nil : job.request?.data
    low = job.hasLowDataImage ? 1 : nil
    code = job.batch == nil ? nil : job.failure?.code.rawValue
  }

  /// The slots that the job occupies in the queue: one, and one more for each 4 KiB of its record.
  var slots: Int { 1 + record.count / Self.recordBytesPerSlot }
  static let recordBytesPerSlot = 4096

  /// The claim that holds the job while it is loading.
  var heldBy: Claim? {
    guard let claim, let jobID else { return nil }
    return Claim(job: jobID, instance: ClaimNumbers.instance(of: claim), number: claim)
  }

  /// The tags from their column, from the record if the column is unreadable, or none if both are
  /// unreadable.
  var readableTags: Set<Data> {
    if let tags = try? JobRecord.tags(from: tags, over: defaults) { return tags }
    return Set((try? job().tags)?.map { Data($0.utf8) } ?? [])
  }

  /// Whether the job may have tags.
  var hasTags: Bool { tags != nil || defaults?.tags.isEmpty == false }

  /// The bytes that the job counts in ``QueueCapacity/recordBytes``: the record, the tags twice
  /// (they are indexed), and 512 for the rest of the row and the other indexes. ``StoreCounters``
  /// computes the same in SQL.
  var storedBytes: Int {
    512 + record.count + 2 * (tags?.count ?? defaults?.tagBytes ?? 0)
  }

  /// The size in bytes of the record, including the defaults.
  var fullBytes: Int { record.count + (defaults?.recordBytes ?? 0) }

  var originData: Data? { origin.map { Data($0.utf8) } }

  /// The job's id. Ids sort by their creation time.
  var jobID: JobID? { JobID(data: id) }

  /// Whether the rows differ at most in their records.
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

  /// Returns the rows that match `condition`, without unreadable ones. Rows with an unknown phase
  /// are excluded by the query, because otherwise each call would return them again.
  /// - Parameter maxBytes: the maximum sum of ``fullBytes``. The row that reaches it is the last
  ///   one.
  static func fetchAll(
    _ condition: String, _ arguments: StatementArguments, _ db: Database, maxBytes: Int = .max
  ) throws -> [JobRow] {
    // `+` keeps these columns out of the choice of an index.
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
        Logger(label: "store").error("skipping unreadable job", metadata: ["error": "\(error)"])
      }
    }
    return all
  }
}

/// The stored form of a job: JSON as `Codable` encodes it, without the members that equal the
/// defaults of its batch.
enum JobRecord {
  static func data(of job: Job) throws -> Data {
    Data(try RecordEncoder.encode(job, userInfo: userInfo(job.submission.defaults)))
  }

  /// - Parameter defaults: the defaults with which the job was encoded.
  static func job(from data: Data, over defaults: SharedDefaults? = nil) throws -> Job {
    try RecordDecoder.decode(Job.self, from: Array(data), userInfo: userInfo(defaults))
  }

  private static func userInfo(_ defaults: SharedDefaults?) -> [CodingUserInfoKey: Any] {
    defaults.map { [.defaults: $0] } ?? [:]
  }

  /// Encodes tags for their column; `nil` if they equal the tags of the defaults, or there are
  /// none.
  static func data(ofTags tags: [String], over defaults: SharedDefaults?) throws -> Data? {
    tags == defaults?.tags ?? [] ? nil : Data(try RecordEncoder.encode(tags))
  }

  static func tags(from data: Data?, over defaults: SharedDefaults?) throws -> Set<Data> {
    let tags = try data.map { try RecordDecoder.decode([String].self, from: Array($0)) }
    return Set((tags ?? defaults?.tags ?? []).map { Data($0.utf8) })
  }
}

/// Defaults of batches. Jobs refer to them by digest.
extension SharedDefaults {
  func stored() throws -> Stored { try stored { try RecordEncoder.encode($0) } }

  /// Reads a batch's defaults by their digest, from memory or from the database.
  static func fetch(_ digest: Data, of batch: Int64, _ db: Database) throws -> SharedDefaults {
    guard let name = ImageDigest(bytes: digest) else {
      throw StoreError.unreadable(detail: "the name of a line's defaults is not a digest")
    }
    if let known = KnownDefaults.find(name) { return known }
    let statement = try db.cachedStatement(
      sql: "SELECT record FROM batch_defaults WHERE batch = ? AND digest = ?")
    guard let record = try Data.fetchOne(statement, arguments: [batch, digest]) else {
      throw StoreError.unreadable(detail: "the defaults of the batch of row \(batch) are missing")
    }
    let defaults = try SharedDefaults(Array(record), digest: name) {
      try RecordDecoder.decode(DefaultsRecord.self, from: $0)
    }
    KnownDefaults.remember(defaults, name)
    return defaults
  }
}

/// The stored form of a cache entry: JSON as `Codable` encodes it.
enum CacheRecord {
  static func data(of entry: CacheEntry) throws -> Data { Data(try RecordEncoder.encode(entry)) }

  static func entry(from data: Data) throws -> CacheEntry {
    try RecordDecoder.decode(CacheEntry.self, from: Array(data))
  }
}

extension JobID {
  /// 16 bytes with the same order as the ids.
  var data: Data {
    withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { Data($0) }
  }

  init?(data: Data) {
    guard data.count == 16 else { return nil }
    let words = data.withUnsafeBytes {
      ($0.loadUnaligned(as: UInt64.self), $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }
    self.init(high: UInt64(bigEndian: words.0), low: UInt64(bigEndian: words.1))
  }
}

extension ImageDigest {
  var data: Data { Data(bytes) }
}

extension Fingerprint {
  var data: Data { Data(bytes) }
}

extension Owner {
  var data: Data { Data(name.utf8) }
}
