internal import Foundation
internal import GRDB
internal import Jobs

/// Counters held in memory instead of being queried. This is a value type, so that a failed
/// operation can restore the previous state.
struct StoreCounters: Sendable {
  private(set) var jobs = [Int](repeating: 0, count: Phase.allCases.count)
  /// The queue slots of each owner's single jobs.
  var queue = FairShare<Data>()
  /// The queue slots of each owner's batch jobs, which have their own limit.
  var lines = FairShare<Data>()
  /// The bytes of each owner's records: of jobs, of rejected lines and of batches' defaults.
  var records = FairShare<Data>()
  /// The changes to jobs of batches that are not written to their batches yet.
  var batches = BatchChanges()
  /// The number of the last receiving batch that was checked. After the last batch, the next check
  /// starts from the first.
  var openBatches: Int64 = 0
  /// The number of finished batches with a webhook since the start.
  var finishedBatchesWithWebhook = 0
  /// The number of images that are not pending deletion.
  var images = 0
  /// The bytes of these images.
  private(set) var imageBytes = 0
  /// Their bytes by ``ImageRow/owner``.
  private(set) var imageOwners = ImageOwners()
  /// The bytes of the images that can't be evicted.
  var pinnedBytes = 0

  /// The number of cache entries.
  var cacheEntries = 0
  /// The bytes of the entries' images; equal images count once.
  var cacheBytes = 0
  /// The bytes of the entries' records.
  var cacheRecordBytes = 0

  /// The size that the cache's limit applies to. Records count too; otherwise a million entries of
  /// one image would cost nothing. The first MiB of records is free, so that a small limit still
  /// means image bytes.
  var cacheSize: Int { cacheBytes + max(0, cacheRecordBytes - 1 << 20) }

  /// The queues of owners and batches, and the deferred jobs of each origin.
  var queues: ClaimableJobs
  /// The requests of queued jobs, for finding equal ones.
  var requests: QueuedRequests
  /// The earliest due time of waiting jobs.
  var nextDue = NextDue()
  /// The number of positions compared to find the next job, since the start.
  var comparedPositions = 0

  /// Ranks at the end of the queue, in ascending order.
  var ranks = NumberSequence(name: "rank")
  /// Ranks before the front of the queue; they are used with a negative sign.
  var ranksAhead = NumberSequence(name: "rank ahead")
  /// The number of claims since the start.
  var claims: Int64 = 0

  mutating func addImageBytes(_ bytes: Int, of owner: Data?) {
    imageBytes += bytes
    imageOwners.add(bytes, of: owner)
  }

  /// Adds queue slots for a single job or a batch job.
  private mutating func addSlots(_ places: Int, for owner: Data, ofBatch: Bool) {
    if ofBatch {
      lines.acquireUnchecked(places, for: owner)
    } else {
      queue.acquireUnchecked(places, for: owner)
    }
  }

  private mutating func release(_ row: JobRow) {
    if row.batch > 0 {
      lines.release(row.slots, of: row.owner)
    } else {
      queue.release(row.slots, of: row.owner)
    }
  }

  subscript(phase: Phase) -> Int {
    get { jobs[phase.code] }
    set { jobs[phase.code] = newValue }
  }

  var counts: StoreCounts {
    let byPhase = Phase.allCases.map { ($0, self[$0]) }
    return StoreCounts(
      jobs: Dictionary(uniqueKeysWithValues: byPhase), images: images, imageBytes: imageBytes)
  }

  var cacheCounts: (entries: Int, bytes: Int) { (cacheEntries, cacheBytes) }

  /// Records that a job's row was written or deleted; `nil` means the row did not exist before or
  /// does not exist afterwards.
  mutating func recordChange(from old: JobRow?, to new: JobRow?) {
    if let old {
      self[old.phase] -= 1
      if old.phase == .queued { release(old) }
      queues.remove(old)
      nextDue.remove(old)
    }
    if let new {
      self[new.phase] += 1
      if new.phase == .queued { addSlots(new.slots, for: new.owner, ofBatch: new.batch > 0) }
      queues.add(new)
      nextDue.add(new)
    }
    requests.recordChange(from: old, to: new)
    batches.recordChange(from: old, to: new)
    countRecord(from: old, to: new)
  }

  /// Records that a job's record was written or deleted.
  mutating func countRecord(from old: JobRow?, to new: JobRow?) {
    guard let owner = (new ?? old)?.owner else { return }
    let added = (new?.storedBytes ?? 0) - (old?.storedBytes ?? 0)
    if added > 0 { records.acquireUnchecked(added, for: owner) }
    if added < 0 { records.release(-added, of: owner) }
  }

  /// The bytes that a rejected line counts in addition to its record.
  static let rejectedLineOverhead = 64

  private static let storedBytes = """
    SELECT owner, sum(bytes) FROM (
      SELECT j.owner AS owner,
        512 + length(j.record) + 2 * coalesce(length(j.tags), d.tag_bytes, 0) AS bytes
        FROM jobs j LEFT JOIN batch_defaults d ON d.batch = j.batch AND d.digest = j.defaults
      UNION ALL SELECT b.owner, \(rejectedLineOverhead) + length(r.record)
        FROM rejected_lines r JOIN batches b ON b.number = r.batch
      UNION ALL SELECT b.owner, length(d.record)
        FROM batch_defaults d JOIN batches b ON b.number = d.batch
    ) GROUP BY owner
    """

  /// Loads the counters from the database.
  init(counting db: Database) throws {
    queues = try ClaimableJobs(db)
    requests = try QueuedRequests(counting: db)
    let phases = try Row.fetchCursor(db, sql: "SELECT phase, count(*) FROM jobs GROUP BY phase")
    while let row = try phases.next() {
      guard let phase = Phase(code: row[0]) else { continue }
      self[phase] = row[1]
    }
    let queued = try Row.fetchCursor(
      db,
      sql: """
        SELECT owner, sum(1 + length(record) / \(JobRow.recordBytesPerSlot)), batch > 0 FROM jobs
        WHERE phase = 0 GROUP BY owner, batch > 0
        """)
    while let row = try queued.next() {
      addSlots(row[1], for: row[0], ofBatch: row[2])
    }
    let stored = try Row.fetchCursor(db, sql: Self.storedBytes)
    while let row = try stored.next() { records.acquireUnchecked(row[1], for: row[0]) }
    let sums = try Row.fetchOne(
      db,
      sql: """
        SELECT count(*), ifnull(sum(bytes), 0), ifnull(sum(iif(hard > 0, bytes, 0)), 0)
        FROM images WHERE leaving = 0
        """)
    if let sums { (images, imageBytes, pinnedBytes) = (sums[0], sums[1], sums[2]) }
    imageOwners = try ImageOwners(counting: db)
    let cached = try Row.fetchOne(
      db, sql: "SELECT count(*), ifnull(sum(length(record)), 0) FROM cache")
    if let cached { (cacheEntries, cacheRecordBytes) = (cached[0], cached[1]) }
    cacheBytes =
      try Int.fetchOne(
        db,
        sql: """
          SELECT ifnull(sum(bytes), 0) FROM images
          WHERE EXISTS (SELECT 1 FROM cache WHERE cache.digest = images.digest)
          """) ?? 0
    for sequence in [\StoreCounters.ranks, \.ranksAhead] {
      try self[keyPath: sequence].load(db)
    }
  }
}

/// Numbers that are never used twice, even after a crash. Blocks of 10,000 are reserved in the
/// database, so that most numbers need no write.
struct NumberSequence: Sendable {
  let name: String
  private var last: Int64 = 0
  private var bound: Int64 = 0
  private static let block: Int64 = 10_000

  init(name: String) { self.name = name }

  /// Returns the next instance number.
  static func nextRun(_ db: Database) throws -> Int64 {
    let statement = try db.cachedStatement(
      sql: """
        INSERT INTO sequences (name, bound) VALUES ('run', 1)
        ON CONFLICT (name) DO UPDATE SET bound = bound + 1 RETURNING bound
        """)
    return try Int64.fetchOne(statement) ?? 1
  }

  mutating func load(_ db: Database) throws {
    let statement = try db.cachedStatement(sql: "SELECT bound FROM sequences WHERE name = ?")
    bound = try Int64.fetchOne(statement, arguments: [name]) ?? 0
    last = bound
  }

  mutating func next(_ db: Database) throws -> Int64 {
    if last == bound {
      bound += Self.block
      try db.cachedStatement(
        sql: """
          INSERT INTO sequences (name, bound) VALUES (?, ?)
          ON CONFLICT (name) DO UPDATE SET bound = excluded.bound
          """
      ).execute(arguments: [name, bound])
    }
    last += 1
    return last
  }
}
