internal import Foundation
internal import GRDB
internal import Jobs

/// What is counted rather than looked up. It is a value: an operation that fails gets the earlier one back.
struct StoreCounters: Sendable {
  private(set) var jobs = [Int](repeating: 0, count: Phase.allCases.count)
  /// Whose jobs have how many places of the queue.
  var queue = SharedCapacity<Data>()
  /// The same of jobs that are lines of batches: those take no places of the others.
  var lines = SharedCapacity<Data>()
  /// Bytes of the records of each owner: of jobs, of rejected lines and of batches' defaults.
  var records = SharedCapacity<Data>()
  /// What has been done to them, for their batches.
  var batches = BatchChanges()
  /// Up to which number batches that still receive lines were looked at; where none is beyond it, the next look begins anew.
  var openBatches: Int64 = 0
  /// Ends of batches that somebody is told of, since the start.
  var toldBatches = 0
  /// Images that are not leaving.
  var images = 0
  /// Their bytes.
  private(set) var imageBytes = 0
  /// Their bytes by ``ImageRow/owner``.
  private(set) var imageOwners = ImageOwners()
  /// The bytes of those among them that can't give way.
  var pinnedBytes = 0

  /// Entries of the cache.
  var cacheEntries = 0
  /// Their images' bytes, equal images counted once.
  var cacheBytes = 0
  /// Their records' bytes.
  var cacheRecordBytes = 0

  /// What the cache's limit is of. Records count too, or a million entries of one image would cost nothing; not the
  /// first MiB of them, so that a small limit is one of images.
  var cacheSize: Int { cacheBytes + max(0, cacheRecordBytes - 1 << 20) }

  /// Between whom the queue is shared.
  var lanes: Lanes
  /// Which jobs are next once their origins have room.
  var parked: ParkedHeads
  /// Where jobs that ask the same are looked for.
  var requests: QueuedRequests
  /// When the next job that waits for its time is due.
  var nextDue = NextDue()
  /// Jobs handed over in the queue's order, since the start.
  var dequeued = 0
  /// Places that were inspected to find whose turn it is, since the start.
  var inspectedPlaces = 0

  /// Places at the end of the queue: each is behind all earlier ones.
  var ranks = NumberSequence(name: "rank")
  /// Places ahead of the queue, counted downwards.
  var ranksAhead = NumberSequence(name: "rank ahead")
  /// Claims made, since the start.
  var claims: Int64 = 0

  mutating func addImageBytes(_ bytes: Int, of owner: Data?) {
    imageBytes += bytes
    imageOwners.add(bytes, of: owner)
  }

  /// Takes places of the queue for a job, or of what batches have beside it.
  private mutating func hold(_ places: Int, for owner: Data, ofBatch: Bool) {
    if ofBatch { lines.hold(places, for: owner) } else { queue.hold(places, for: owner) }
  }

  private mutating func release(_ row: JobRow) {
    if row.batch > 0 {
      lines.release(row.places, of: row.owner)
    } else {
      queue.release(row.places, of: row.owner)
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

  /// Notes that a job's row was written or deleted; nil where there is none before or after.
  mutating func move(from old: JobRow?, to new: JobRow?) {
    if let old {
      self[old.phase] -= 1
      if old.phase == .queued { release(old) }
      lanes.remove(old)
      parked.remove(old)
      nextDue.remove(old)
    }
    if let new {
      self[new.phase] += 1
      if new.phase == .queued { hold(new.places, for: new.owner, ofBatch: new.batch > 0) }
      lanes.add(new)
      parked.add(new)
      nextDue.add(new)
    }
    requests.move(from: old, to: new)
    batches.move(from: old, to: new)
    countRecord(from: old, to: new)
  }

  /// Notes that a job's record was written or deleted.
  mutating func countRecord(from old: JobRow?, to new: JobRow?) {
    guard let owner = (new ?? old)?.owner else { return }
    let added = (new?.storedBytes ?? 0) - (old?.storedBytes ?? 0)
    if added > 0 { records.hold(added, for: owner) }
    if added < 0 { records.release(-added, of: owner) }
  }

  /// Bytes that a rejected line counts in addition to its record.
  static let rejectedLine = 64

  private static let storedBytes = """
    SELECT owner, sum(bytes) FROM (
      SELECT j.owner AS owner,
        512 + length(j.record) + 2 * coalesce(length(j.tags), d.tag_bytes, 0) AS bytes
        FROM jobs j LEFT JOIN batch_defaults d ON d.batch = j.batch AND d.digest = j.defaults
      UNION ALL SELECT b.owner, \(rejectedLine) + length(r.record)
        FROM rejected_lines r JOIN batches b ON b.number = r.batch
      UNION ALL SELECT b.owner, length(d.record)
        FROM batch_defaults d JOIN batches b ON b.number = d.batch
    ) GROUP BY owner
    """

  /// Counts what the database holds.
  init(counting db: Database) throws {
    lanes = try Lanes(counting: db)
    parked = try ParkedHeads(db)
    requests = try QueuedRequests(counting: db)
    let phases = try Row.fetchCursor(db, sql: "SELECT phase, count(*) FROM jobs GROUP BY phase")
    while let row = try phases.next() {
      guard let phase = Phase(code: row[0]) else { continue }
      self[phase] = row[1]
    }
    let queued = try Row.fetchCursor(
      db,
      sql: """
        SELECT owner, sum(1 + length(record) / \(JobRow.recordPerPlace)), batch > 0 FROM jobs
        WHERE phase = 0 GROUP BY owner, batch > 0
        """)
    while let row = try queued.next() {
      hold(row[1], for: row[0], ofBatch: row[2])
    }
    let stored = try Row.fetchCursor(db, sql: Self.storedBytes)
    while let row = try stored.next() { records.hold(row[1], for: row[0]) }
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

/// Numbers that are never given twice, also after a crash: they are set aside in the database by the thousands, so
/// that taking one seldom writes.
struct NumberSequence: Sendable {
  let name: String
  private var last: Int64 = 0
  private var bound: Int64 = 0
  private static let block: Int64 = 10_000

  init(name: String) { self.name = name }

  /// Counts the instances that there ever were.
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
