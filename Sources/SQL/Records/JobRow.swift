internal import Jobs
internal import Synchronization

/// A job as stored: as it was submitted, which is encoded once; its record, once something has changed; and the columns used
/// for searches.
struct JobRow: Sendable {
  let id: JobID
  let owner: [UInt8]
  /// The phase of a finished job; `nil` while the job has a row in the queue.
  var finished: Phase?
  var finishedAt: Int64?
  var expiresAt: Int64?
  /// The digest of the result image; `nil` if the image is not stored.
  var image: [UInt8]?
  /// The digest of the image that the client sent; `nil` if it is not stored.
  var source: [UInt8]?
  var lastClaim: Int64?
  /// The job as it was inserted, as JSON without the members that equal the batch's defaults.
  let submitted: [UInt8]
  /// The changed job as JSON, without its submission; nil if nothing but columns has changed.
  var record: [UInt8]?
  /// Whether the job has a low-data image that is to be replaced.
  var hasLowDataImage = false
  /// The number of the job's batch; `nil` for a single job.
  var batch: Int64?
  /// The job's line number in its batch.
  let line: Int64?
  /// The failure code of a failed batch job, as UTF-8.
  var code: [UInt8]?
  /// The batch defaults that the record leaves out.
  let defaults: SharedDefaults?
  /// `nil` after the job has finished.
  var queue: QueueRow?
  /// Whether the unfinished job's batch is cancelled or purged, as ``Transaction/lockedJobs(_:)`` found it.
  var isBatchStopped = false

  /// The columns of `jobs AS j`, in the order that ``init(_:_:_:)`` reads them.
  static let columns =
    "j.id, j.owner, j.phase, j.finished_at, j.expires_at, j.image, j.source, j.last_claim, j.record, "
    + "j.batch, j.line, j.code, j.defaults, j.submitted"
  static let columnCount = 14
  /// The size in bytes of a row of `jobs AS j`, including the defaults.
  static let fullBytes =
    "(length(j.submitted) + coalesce(length(j.record), 0) + coalesce((SELECT length(d.record) FROM batch_defaults d "
    + "WHERE d.batch = j.batch AND d.digest = j.defaults), 0))"
  fileprivate static let batchColumn = 9
  fileprivate static let defaultsColumn = 12

  /// - Parameter known: the defaults that the rows refer to (``Transaction/defaults(of:)``).
  /// - Throws: `.unreadable` if the row is invalid.
  init(_ rows: Rows, _ row: Int, _ known: [ImageDigest: SharedDefaults]) throws {
    guard let id = rows.id(row, 0), let owner = rows.bytes(row, 1),
      let submitted = rows.bytes(row, 13)
    else { throw StoreError.unreadable(detail: "a job without an id, an owner or a submission") }
    (self.id, self.owner, self.submitted) = (id, owner, submitted)
    record = rows.bytes(row, 8)
    (finishedAt, expiresAt) = (rows.int(row, 3), rows.int(row, 4))
    (image, source, lastClaim) = (rows.bytes(row, 5), rows.bytes(row, 6), rows.int(row, 7))
    batch = rows.int(row, 9).flatMap { $0 > 0 ? $0 : nil }
    (line, code) = (rows.int(row, 10), rows.bytes(row, 11))
    let name = rows.digest(row, Self.defaultsColumn)
    defaults = name.flatMap { known[$0] }
    guard name == nil || defaults != nil else {
      throw unreadable("the batch's defaults are missing")
    }
    let number = Int(rows.int(row, 2) ?? -1)
    guard let phase = Phase(code: number) else { throw unreadable("unknown phase \(number)") }
    finished = phase.isFinished ? phase : nil
  }

  /// Creates the row of a new job.
  init(_ job: Job) throws {
    (id, owner) = (job.id, Array(job.owner.name.utf8))
    defaults = job.submission.defaults
    submitted = try StoredJSON.encode(
      job, without: defaults.map { StoredJSON.Context(defaults: $0) })
    source = job.capturedSource?.digest.bytes
    line = job.batch.map { Int64($0.line) }
    set(job)
    KnownJobs.remember(job, submitted, record)
  }

  /// The bytes that the job counts in ``QueueCapacity/recordBytes``: the submission, the record, the defaults' tags twice
  /// (they are indexed), and 512 for the rest of the row and the other indexes.
  var storedBytes: Int { 512 + jsonBytes + 2 * (defaults?.tagBytes ?? 0) }

  private var jsonBytes: Int { submitted.count + (record?.count ?? 0) }

  var phase: Phase { finished ?? (queue?.state == .loading ? .loading : .queued) }

  /// The job in its current state.
  ///
  /// Claims and evictions may concern many jobs at once, so they write only columns. This method
  /// applies the same changes to the decoded record.
  ///
  /// - Throws: `.unreadable` if the record can't be decoded, belongs to another job or contradicts
  ///   the columns.
  func job() throws -> Job {
    var job: Job
    do { job = try KnownJobs.find(id, submitted, record) ?? decoded() } catch {
      throw unreadable("\(error)")
    }
    if let claimedAt = queue?.claimedAt, let claim = queue?.claim {
      guard job.phase == .queued else { throw unreadable("claimed in phase \(job.phase)") }
      job.start(
        at: Timestamp(milliseconds: claimedAt), by: ClaimNumbers.instance(of: claim))
    }
    guard finished != nil || queue != nil else { throw unreadable("no row in the queue") }
    guard job.phase == phase else { throw unreadable("phase \(job.phase), row has \(phase)") }
    guard job.id == id, job.owner.name.utf8.elementsEqual(owner) else {
      throw unreadable("it belongs to another job")
    }
    if image == nil, job.keptImage != nil { job.markImageEvicted() }
    return job
  }

  private func decoded() throws -> Job {
    var job = try StoredJSON.decode(
      Job.self, from: submitted, with: defaults.map { StoredJSON.Context(defaults: $0) })
    if let record {
      job = try StoredJSON.decode(
        Job.self, from: record,
        with: StoredJSON.Context(defaults: defaults, submission: job.submission))
    }
    KnownJobs.remember(job, submitted, record)
    return job
  }

  func unreadable(_ reason: String) -> StoreError {
    .unreadable(detail: "the record of job \(id) can't be read: \(reason)")
  }

  /// Stores the changed job; its position in the queue and its claim stay.
  mutating func update(to job: Job) throws {
    record = try StoredJSON.encode(
      job,
      without: StoredJSON.Context(defaults: job.submission.defaults, submission: job.submission))
    set(job)
    KnownJobs.remember(job, submitted, record)
  }

  private mutating func set(_ job: Job) {
    finished = job.phase.isFinished ? job.phase : nil
    finishedAt = job.finishedAt?.milliseconds
    expiresAt = job.expiresAt?.milliseconds
    image = job.keptImage?.keptDigest.bytes
    // A successful job that drops its original also drops the image that the client sent, because
    // no retry needs it.
    if job.submission.dropsOriginal, job.phase == .success { source = nil }
    hasLowDataImage = job.hasLowDataImage
    code = job.batch == nil ? nil : job.failure.map { Array($0.code.rawValue.utf8) }
    queue = finished == nil ? QueueRow(job, jsonBytes, before: queue) : nil
  }

  /// The claim that holds the job while it is loading.
  var heldBy: Claim? {
    guard let queue, queue.state == .loading, let claim = queue.claim else { return nil }
    return Claim(job: id, instance: Instance(number: queue.instance ?? 0), number: claim)
  }
}

/// Recently encoded and decoded unfinished jobs, so that such a job is rarely decoded again. All stores of a process share them:
/// equal bytes are an equal job.
enum KnownJobs {
  /// A class, because a job is large to copy.
  private final class Known: Sendable {
    let content: Int
    let job: Job

    init(_ content: Int, _ job: Job) { (self.content, self.job) = (content, job) }
  }

  /// In bytes. Enough for three thousand jobs: those that are loading, and those that were submitted shortly before.
  static let capacity = 8 << 20
  private static let known = Mutex(LRUCache<JobID, Known>(capacity: capacity))

  static func find(_ id: JobID, _ submitted: [UInt8], _ record: [UInt8]?) -> Job? {
    let content = hash(submitted, record)
    return known.withLock { known in
      known.value(for: id).flatMap { $0.content == content ? $0.job : nil }
    }
  }

  /// Forgets a finished job instead, so that more unfinished ones fit: it is rarely read from the database again.
  static func remember(_ job: Job, _ submitted: [UInt8], _ record: [UInt8]?) {
    guard !job.phase.isFinished else {
      known.withLock { _ = $0.remove(job.id) }
      return
    }
    let entry = Known(hash(submitted, record), job.asStored)
    // Members with a fixed size take some 2 KiB. A line of a batch keeps its defaults in memory.
    let cost = 2_048 + job.textBytes + (job.submission.defaults?.memoryBytes ?? 0)
    known.withLock { _ = $0.set(entry, for: job.id, cost: cost) }
  }

  /// A hash of 64 bits with a random seed. Only contents that one job has had are compared.
  private static func hash(_ submitted: [UInt8], _ record: [UInt8]?) -> Int {
    var hasher = Hasher()
    submitted.withUnsafeBytes { hasher.combine(bytes: $0) }
    hasher.combine(submitted.count)
    hasher.combine(record?.count)
    record?.withUnsafeBytes { hasher.combine(bytes: $0) }
    return hasher.finalize()
  }
}

extension Transaction {
  /// Returns the defaults that rows of `jobs AS j` refer to, from memory or from the database.
  /// Unreadable ones are left out.
  func defaults(of rows: Rows) throws -> [ImageDigest: SharedDefaults] {
    var known: [ImageDigest: SharedDefaults] = [:]
    var unknown: [(batch: Int64, name: ImageDigest)] = []
    for row in rows.all {
      guard let name = rows.digest(row, JobRow.defaultsColumn), known[name] == nil else { continue }
      if let defaults = KnownDefaults.find(name) {
        known[name] = defaults
      } else if let batch = rows.int(row, JobRow.batchColumn),
        !unknown.contains(where: { $0.name == name })
      {
        unknown.append((batch, name))
      }
    }
    guard !unknown.isEmpty else { return known }
    let found = try execute(
      """
      SELECT d.digest, d.record FROM unnest($1, $2) AS n (batch, digest)
        JOIN batch_defaults d ON d.batch = n.batch AND d.digest = n.digest
      """, [.ints(unknown.map(\.batch)), .byteStrings(unknown.map(\.name.bytes))])
    for row in found.all {
      guard let name = found.digest(row, 0), let record = found.bytes(row, 1),
        let defaults = try? SharedDefaults(record, digest: name)
      else { continue }
      KnownDefaults.remember(defaults, name)
      known[name] = defaults
    }
    return known
  }

  /// Stores the defaults of batch lines, each once per batch.
  func addDefaults(of rows: [JobRow]) throws {
    var (batches, digests, records): ([Int64], [[UInt8]], [[UInt8]]) = ([], [], [])
    var owners: [Int64: [UInt8]] = [:]
    var last: (batch: Int64, defaults: SharedDefaults)?
    for row in rows {
      guard let batch = row.batch, let defaults = row.defaults,
        last?.batch != batch || last?.defaults !== defaults
      else { continue }
      last = (batch, defaults)
      owners[batch] = row.owner
      let stored = try defaults.stored()
      KnownDefaults.remember(defaults, stored.digest)
      batches.append(batch)
      digests.append(stored.digest.bytes)
      records.append(stored.record)
    }
    guard !batches.isEmpty else { return }
    let added = try execute(
      """
      INSERT INTO batch_defaults (batch, digest, record) SELECT * FROM unnest($1, $2, $3) WHERE true
      ON CONFLICT DO NOTHING RETURNING batch, length(record)
      """, [.ints(batches), .byteStrings(digests), .byteStrings(records)])
    for row in added.all {
      guard let owner = added.int(row, 0).flatMap({ owners[$0] }) else { continue }
      tallies[.stored(owner)] += added.int(row, 1).map { Int($0) } ?? 0
    }
  }
}

/// A job's position in the queue, or its claim while it is loading.
struct QueueRow: Sendable {
  /// The state of an unfinished job.
  enum State: Int64 {
    /// The job can be claimed.
    case ready = 0
    /// The job waits until `not_before`.
    case due
    /// The job is deferred because its origin had no capacity.
    case parked
    /// The job waits for the end of an equal load at another instance.
    case awaiting
    case loading
  }

  var priority: Int
  var rank: Int64 = 0
  var state: State
  var notBefore: Int64?
  /// The job's origin, as UTF-8.
  var origin: [UInt8]?
  /// The fingerprint of the job's request.
  var request: [UInt8]?
  /// The slots that the job occupies in the queue: one, and one more for each 4 KiB of its record and its submission.
  var slots: Int
  var instance: Int64?
  var claim: Int64?
  /// The time of the claim. The record does not contain it yet.
  var claimedAt: Int64?
  /// Whether the job leads a load, so that other jobs may wait for it.
  var isLeading = false

  /// The columns of `queue AS q`, in the order that ``init(_:_:from:)`` reads them.
  static let columns = """
    q.priority, q.rank, q.state, q.not_before, q.origin, q.request, q.places, q.instance, q.claim, q.claimed_at,
    q.leads
    """
  static let columnCount = 11

  /// Returns `nil` if there is no row or it is invalid.
  init?(_ rows: Rows, _ row: Int, from first: Int) {
    guard let priority = rows.int(row, first), let rank = rows.int(row, first + 1),
      let state = rows.int(row, first + 2).flatMap(State.init)
    else { return nil }
    self.priority = min(max(0, Int(priority)), Priority.allCases.count - 1)
    (self.rank, self.state) = (rank, state)
    notBefore = rows.int(row, first + 3)
    (origin, request) = (rows.bytes(row, first + 4), rows.bytes(row, first + 5))
    slots = Int(rows.int(row, first + 6) ?? 1)
    (instance, claim) = (rows.int(row, first + 7), rows.int(row, first + 8))
    claimedAt = rows.int(row, first + 9)
    isLeading = rows.bool(row, first + 10)
  }

  /// Creates the row of an unfinished job.
  fileprivate init(_ job: Job, _ recordSize: Int, before old: QueueRow?) {
    priority = job.priority.rawValue
    notBefore = job.notBefore?.milliseconds
    origin = job.origin.map { Array($0.utf8) }
    request = job.request?.bytes
    slots = 1 + recordSize / Self.recordBytesPerSlot
    rank = old?.rank ?? 0
    if job.phase == .loading {
      state = .loading
      (instance, claim) = (old?.instance, old?.claim)
    } else {
      state = notBefore == nil ? .ready : .due
    }
  }

  static let recordBytesPerSlot = 4_096
}

/// The rows of jobs.
extension Transaction {
  /// Reads jobs without locking them. Each unreadable job has its own error.
  func jobs(_ ids: [JobID]) throws -> [JobID: Result<JobRow, StoreError>] {
    guard !ids.isEmpty else { return [:] }
    let rows = try execute(
      """
      SELECT \(JobRow.columns), \(QueueRow.columns), NOT \(Self.isNotInStoppedBatch)
      FROM jobs j LEFT JOIN queue q ON q.id = j.id WHERE j.id = ANY ($1)
      """, [.ids(ids)])
    let defaults = try defaults(of: rows)
    var found: [JobID: Result<JobRow, StoreError>] = [:]
    for row in rows.all {
      guard let id = rows.id(row, 0) else { continue }
      found[id] = Self.readable {
        var job = try JobRow(rows, row, defaults)
        job.queue = QueueRow(rows, row, from: JobRow.columnCount)
        job.isBatchStopped = rows.bool(row, JobRow.columnCount + QueueRow.columnCount)
        return job
      }
    }
    return found
  }

  /// Reads jobs and locks them against changes, claims and deletion by other transactions.
  func lockedJobs(_ ids: Set<JobID>) throws -> [JobID: Result<JobRow, StoreError>] {
    guard !ids.isEmpty else { return [:] }
    if hasOneWriter { return try jobs(Array(ids)) }
    let rows = try execute(
      "SELECT \(JobRow.columns) FROM jobs j WHERE j.id = ANY ($1) ORDER BY j.id FOR UPDATE",
      [.ids(Array(ids))])
    // A second query, because a claim locks only the job's row in the queue.
    let places = try execute(
      """
      SELECT q.id, \(QueueRow.columns), NOT \(Self.isNotInStoppedBatch) FROM queue q
      WHERE q.id = ANY ($1) ORDER BY q.id FOR UPDATE
      """, [.ids(Array(ids))])
    var queue: [JobID: (row: QueueRow?, isBatchStopped: Bool)] = [:]
    for row in places.all {
      guard let id = places.id(row, 0) else { continue }
      let isStopped = places.bool(row, 1 + QueueRow.columnCount)
      queue[id] = (QueueRow(places, row, from: 1), isStopped)
    }
    let defaults = try defaults(of: rows)
    var found: [JobID: Result<JobRow, StoreError>] = [:]
    for row in rows.all {
      guard let id = rows.id(row, 0) else { continue }
      found[id] = Self.readable {
        var job = try JobRow(rows, row, defaults)
        if let place = queue[id] { (job.queue, job.isBatchStopped) = place }
        return job
      }
    }
    return found
  }

  private static func readable(_ body: () throws -> JobRow) -> Result<JobRow, StoreError> {
    do { return .success(try body()) } catch { return .failure(StoreError(cause: error)) }
  }

  func insert(_ rows: [JobRow], tags: [(row: JobRow, tags: [String])]) throws {
    try addDefaults(of: rows)
    try add(
      """
      INSERT INTO jobs (id, owner, phase, finished_at, expires_at, image, source, low, record, batch, line, code, defaults, submitted)
      SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
      """,
      [
        .ids(rows.map(\.id)), .byteStrings(rows.map(\.owner)),
        .ints(rows.map { Int64($0.finished?.code ?? 0) }), .ints(rows.map(\.finishedAt)),
        .ints(rows.map(\.expiresAt)), .byteStrings(rows.map(\.image)),
        .byteStrings(rows.map(\.source)), .bools(rows.map(\.hasLowDataImage)),
        .byteStrings(rows.map(\.record)), .ints(rows.map { $0.batch ?? 0 }),
        .ints(rows.map(\.line)),
        .byteStrings(rows.map(\.code)),
        .byteStrings(
          try rows.map { try $0.defaults?.stored().digest.bytes }),
        .byteStrings(rows.map(\.submitted)),
      ])
    try enqueue(rows)
    try addTags(tags)
    for row in rows {
      updateCounters(row, 1)
      batches.recordChange(from: nil, to: row)
    }
  }

  /// Inserts the queue rows of unfinished jobs, behind all others of their priority.
  func enqueue(_ rows: [JobRow]) throws {
    let queued = rows.compactMap { row in row.queue.map { (row, $0) } }
    guard !queued.isEmpty else { return }
    try add(
      """
      INSERT INTO queue (id, owner, priority, state, places, not_before, origin, request, batch, rank)
      SELECT n.id, n.owner, n.priority, n.state, n.places, n.not_before, n.origin, n.request, n.batch, nextval('ranks')
      FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
        AS n (id, owner, priority, state, places, not_before, origin, request, batch)
      """,
      [
        .ids(queued.map(\.0.id)), .byteStrings(queued.map(\.0.owner)),
        .ints(queued.map { Int64($0.1.priority) }), .ints(queued.map(\.1.state.rawValue)),
        .ints(queued.map { Int64($0.1.slots) }), .ints(queued.map(\.1.notBefore)),
        .byteStrings(queued.map(\.1.origin)), .byteStrings(queued.map(\.1.request)),
        .ints(queued.map { $0.0.batch ?? 0 }),
      ])
  }

  func addTags(_ tagged: [(row: JobRow, tags: [String])]) throws {
    var (owners, tags, ids): ([[UInt8]], [[UInt8]], [JobID]) = ([], [], [])
    for (row, texts) in tagged {
      for tag in Set(texts.map(IndexedText.bytes)) {
        owners.append(row.owner)
        tags.append(tag)
        ids.append(row.id)
      }
    }
    guard !ids.isEmpty else { return }
    try add(
      "INSERT INTO tags (owner, tag, id) SELECT * FROM unnest($1, $2, $3)",
      [.byteStrings(owners), .byteStrings(tags), .ids(ids)])
  }

  func removeTags(of ids: [JobID]) throws {
    guard !ids.isEmpty else { return }
    try add("DELETE FROM tags WHERE id = ANY ($1)", [.ids(ids)])
  }

  /// Deletes jobs, whose rows this transaction has locked.
  func delete(_ rows: [JobRow]) throws {
    guard !rows.isEmpty else { return }
    let ids = rows.map(\.id)
    try add("DELETE FROM jobs WHERE id = ANY ($1)", [.ids(ids)])
    try add("DELETE FROM queue WHERE id = ANY ($1)", [.ids(ids)])
    try removeTags(of: ids)
    try continueLoads(Set(rows.compactMap(\.queue).filter(\.isLeading).compactMap(\.request)))
    for row in rows {
      updateCounters(row, -1)
      batches.recordChange(from: row, to: nil)
    }
    try addDeletionCandidates(Set(rows.flatMap { [$0.image, $0.source].compactMap(\.self) }))
  }

  /// Adds a row to the counters (`sign` 1) or removes it (`sign` -1).
  func updateCounters(_ row: JobRow, _ sign: Int) {
    tallies[.phase(row.phase)] += sign
    tallies[.stored(row.owner)] += sign * row.storedBytes
    if row.phase == .queued, let queue = row.queue {
      tallies[row.batch == nil ? .places(row.owner) : .lines(row.owner)] += sign * queue.slots
    }
  }
}
