internal import Foundation
internal import GRDB
internal import Jobs

/// The queue: submissions, claims, changes and completions.
extension WriteTransaction {
  /// The result of a submission, without the jobs of a repeated one.
  enum Submitted: Sendable {
    case accepted, recordsFull, imageGone
    case queueFull(wanting: Int)
    case known(IdempotencyKeys.Known)
  }

  mutating func submit(
    _ jobs: [(row: JobRow, job: Job)], key: IdempotencyKey?, capacity: QueueCapacity
  ) throws -> Submitted {
    if let key, let known = try IdempotencyKeys.find(key, db) { return .known(known) }
    if let places = missingSlots(for: jobs, within: capacity) { return .queueFull(wanting: places) }
    if let first = jobs.first {
      let hasRoom = counters.records.hasCapacity(
        for: jobs.reduce(0) { $0 + $1.row.storedBytes }, of: first.row.owner,
        within: ShareBounds(capacity.recordBytes), at: first.job.createdAt)
      guard hasRoom else { return .recordsFull }
    }
    for image in jobs.compactMap(\.row.image) {
      guard try isStored(image) else { return .imageGone }
    }
    if let key, let first = jobs.first?.job {
      try insertKey(key, for: jobs.map(\.job.id), at: first.createdAt)
    }
    var references = ReferenceChanges()
    for (row, job) in jobs {
      var row = row
      row.rank = try counters.ranks.next(db)
      try insert(row)
      try addMessage(WebhookMessage(endOf: job, after: nil))
      guard row.source != nil || row.image != nil else { continue }
      references.recordChange(from: nil, to: row, job: job)
      try deleteReservations(of: row.id, &references)
    }
    try apply(references)
    return .accepted
  }

  /// Returns the number of required slots if the queue has too few free ones; otherwise `nil`.
  private mutating func missingSlots(
    for jobs: [(row: JobRow, job: Job)], within capacity: QueueCapacity
  ) -> Int? {
    let queued = jobs.filter { $0.row.phase == .queued }
    guard let first = queued.first else { return nil }
    let places = queued.reduce(0) { $0 + $1.row.slots }
    let hasRoom = counters.queue.hasCapacity(
      for: places, of: first.row.owner, within: capacity.slots, at: first.job.createdAt)
    return hasRoom ? nil : places
  }

  /// Returns whether the queue has the slots that a change needs because it queues a finished job;
  /// records a refusal if not.
  mutating func hasSlots(
    for change: JobChange, within capacity: QueueCapacity, at moment: Timestamp
  ) -> Bool {
    guard change.before.phase.isFinished, let row = change.row, row.phase == .queued else {
      return true
    }
    let (places, owner) = (row.slots, row.owner)
    return row.batch > 0
      ? counters.lines.hasCapacity(for: places, of: owner, within: capacity.slots, at: moment)
      : counters.queue.hasCapacity(for: places, of: owner, within: capacity.slots, at: moment)
  }

  func insertKey(_ key: IdempotencyKey, for ids: [JobID], at moment: Timestamp) throws {
    try execute(
      "INSERT INTO keys (owner, key, fingerprint, created_at, jobs) VALUES (?, ?, ?, ?, ?)",
      [
        key.owner.data, Data(key.key.utf8), key.fingerprint.data,
        moment.milliseconds, IdempotencyKeys.data(of: ids),
      ])
  }

  func addBytes(_ came: [Owner: Int], on day: Int) throws -> [Owner: Int] {
    try execute("DELETE FROM owner_bytes WHERE day < ?", [day - 1])
    var sums: [Owner: Int] = [:]
    for (owner, bytes) in came {
      sums[owner] = try Int.fetchOne(
        db,
        sql: """
          INSERT INTO owner_bytes (owner, day, bytes) VALUES (?, ?, ?)
          ON CONFLICT (owner, day) DO UPDATE SET bytes = bytes + excluded.bytes RETURNING bytes
          """, arguments: [Data(owner.name.utf8), day, bytes])
    }
    return sums
  }

  /// Deletes expired keys by the index of their age.
  /// - Returns: the number of deleted keys.
  func deleteKeys(before moment: Timestamp, count: Int) throws -> Int {
    try execute(
      """
      DELETE FROM keys WHERE number IN
        (SELECT number FROM keys WHERE created_at < ? ORDER BY created_at LIMIT ?)
      """,
      [moment.milliseconds, count])
  }

  /// Claims queued jobs with the same request, in queue order.
  mutating func claim(
    equalTo request: Data, count: Int, for instance: Instance, at moment: Timestamp
  ) throws -> [JobRow] {
    let rows = try counters.requests.blocks.flatMap { block in
      try JobRow.fetchAll(
        "\(QueuedRequests.condition) ORDER BY priority DESC, rank LIMIT ?3",
        [request, block, count], db)
    }.sorted { ($1.priority, $0.rank) < ($0.priority, $1.rank) }
    // Jobs of stopped batches are few and will be cancelled soon.
    return try rows.prefix(count).filter { !isBatchStopped(of: $0) }
      .map { try markLoading($0, for: instance, at: moment) }
  }

  /// Makes jobs ready whose due time has passed.
  /// - Returns: whether all such jobs are ready now; `false` if the limit for one transaction was
  ///   reached.
  mutating func makeDueJobsReady(at moment: Timestamp) throws -> Bool {
    guard counters.nextDue.mayHaveDueJobs(at: moment) else { return true }
    counters.nextDue.invalidate()
    var looks = Dequeue.maxRowsPerClaim
    for (condition, bound) in [
      ("<= ?", moment.milliseconds), ("> ?", counters.nextDue.latest(at: moment)),
    ] where looks > 0 {
      let woken = try all(Self.makeReadyStatement(notBefore: condition), [bound, looks])
      for row in woken {
        counters.queues.ready.addReady(
          1, at: QueuePosition(priority: row[0], owner: row[1], batch: row[2]))
      }
      looks -= woken.count
    }
    return looks > 0
  }

  /// - Parameter condition: one range of `not_before`. A statement with two ranges would not use
  ///   the index.
  static func makeReadyStatement(notBefore condition: String) -> String {
    """
    UPDATE jobs SET waiting = 0 WHERE number IN
      (SELECT number FROM jobs WHERE phase = 0 AND waiting = 1 AND not_before \(condition) LIMIT ?)
    RETURNING priority, owner, batch
    """
  }

  /// Changes the state of a queued job.
  mutating func setState(of row: JobRow, to waiting: JobRow.Waiting) throws {
    var moved = row
    moved.waiting = waiting
    try execute(
      "UPDATE jobs SET waiting = ? WHERE number = ?", [waiting.rawValue, row.number])
    counters.recordChange(from: row, to: moved)
  }

  /// Assigns a new claim to a queued job.
  mutating func markLoading(
    _ row: JobRow, for instance: Instance, at moment: Timestamp
  ) throws -> JobRow {
    var taken = row
    (taken.phase, taken.waiting, taken.notBefore) = (.loading, .ready, nil)
    counters.claims += 1
    taken.claim = ClaimNumbers.number(counters.claims, of: instance)
    taken.claimedAt = moment.milliseconds
    try execute(
      """
      UPDATE jobs SET phase = 1, waiting = 0, claim = ?, claimed_at = ?, not_before = NULL
      WHERE number = ?
      """,
      [taken.claim, taken.claimedAt, taken.number])
    counters.recordChange(from: row, to: taken)
    taken.decoded = DecodedJob()
    held.update(taken)
    if row.hasTags {
      try removeTags(of: row)
      try addTags(of: taken)
    }
    return taken
  }

  /// Returns the row of a job that is about to be changed, if the claim holds it.
  private func find(_ id: JobID, under claim: Claim?) throws -> JobRow? {
    guard let row = try held[id.data] ?? JobRow.fetch(id.data, db) else { return nil }
    if let claim, claim != row.heldBy { return nil }
    return row
  }

  /// Whether the row's batch is cancelled or purged. Reads memory only.
  private func isBatchStopped(of row: JobRow) -> Bool {
    counters.queues.ready.stoppedLine(of: row.batch) != nil
  }

  /// Returns the requests of the rows that further queued jobs have too.
  func equalQueuedRequests(of rows: [JobRow]) throws -> Set<Fingerprint> {
    var shared: Set<Fingerprint> = []
    for request in Set(rows.compactMap(\.request)) where try counters.requests.contains(request, db)
    {
      if let request = Fingerprint(bytes: request) { shared.insert(request) }
    }
    return shared
  }

  mutating func update(
    _ id: JobID, under claim: Claim?, _ change: (inout Job) -> Bool
  ) throws -> Job? {
    guard let row = try find(id, under: claim) else { return nil }
    return try save(JobChange(of: row, isBatchStopped: isBatchStopped(of: row), by: change))
  }

  mutating func update(
    _ id: JobID, within capacity: QueueCapacity, at moment: Timestamp,
    _ change: (inout Job) -> Bool
  ) throws -> UpdateOutcome {
    guard let row = try find(id, under: nil) else { return .unknown }
    let change = try JobChange(of: row, by: change)
    guard hasSlots(for: change, within: capacity, at: moment) else { return .queueFull }
    return .updated(try save(change))
  }

  /// - Returns: the job after the change.
  private mutating func save(_ change: JobChange) throws -> Job {
    var references = ReferenceChanges()
    try save(change, &references)
    try apply(references)
    return change.after
  }

  /// Executes a completion.
  /// - Parameters:
  ///   - row: the row of its cache entry.
  ///   - moment: the time at which the entry is stored.
  /// - Returns: for each claim, the changed job or the error; and the evicted images.
  mutating func complete(_ completion: Completion, row: CacheRow?, at moment: Timestamp) throws
    -> (jobs: [Result<Job?, StoreError>], evicted: [ImageDigest])
  {
    let embedding = try completion.image.map {
      try embed($0, limit: completion.imageLimit, for: completion.instance)
    }
    let arriving = embedding?.arriving
    var references = ReferenceChanges()
    let jobs = try completion.claims.map {
      try complete($0, completion.change, &references)
    }
    if let row {
      try saveEntry(
        row, within: completion.cacheLimit, at: moment, lastUse: completion.lastUse,
        arriving: arriving?.digest, &references)
    }
    try evict(downTo: completion.cacheLimit, lastUse: completion.lastUse, &references)
    if let holder = completion.releasing { try deleteReservations(of: holder.data, &references) }
    try apply(references, arriving: arriving)
    if let image = completion.image, arriving == nil { try deleteUnused(image) }
    return (jobs, embedding?.evicted ?? [])
  }

  /// Changes one job of a completion. An unreadable job fails alone; an error of the database fails
  /// the whole completion.
  private mutating func complete(
    _ claim: Claim, _ change: (inout Job) -> Bool, _ references: inout ReferenceChanges
  ) throws -> Result<Job?, StoreError> {
    guard let row = try find(claim.job, under: claim) else { return .success(nil) }
    let prepared: JobChange
    do {
      prepared = try JobChange(of: row, isBatchStopped: isBatchStopped(of: row), by: change)
    } catch {
      return .failure(StoreError(cause: error))
    }
    try save(prepared, &references)
    return .success(prepared.after)
  }

  mutating func save(_ change: JobChange, _ references: inout ReferenceChanges) throws {
    guard var row = change.row else { return }
    switch change.place {
    case .none: break
    case .toTheEnd: row.rank = try counters.ranks.next(db)
    // A rank below every rank so far moves a job to the front of its priority.
    case .ahead: row.rank = -(try counters.ranksAhead.next(db))
    }
    if row.phase != .loading { row.claim = nil }
    try replace(change.old, by: row)
    try addMessage(WebhookMessage(endOf: change.after, after: change.before.phase))
    references.recordChange(from: change.old, to: row, job: change.after)
  }

  mutating func remove(_ id: JobID, if condition: (Job) -> Bool) throws -> Removal {
    guard let row = try JobRow.fetch(id.data, db) else { return .unknown }
    let job = try row.job()
    guard condition(job) else { return .kept(job) }
    try delete(row)
    try deleteMessages(of: row.id, includingUnsent: true)
    return .removed(job)
  }

  mutating func expire(at moment: Timestamp, count: Int) throws -> [JobID] {
    let rows = try JobRow.fetchAll(
      "expires_at <= ? ORDER BY expires_at LIMIT ?", [moment.milliseconds, count], db)
    for row in rows {
      try delete(row)
      try deleteMessages(of: row.id, includingUnsent: false)
    }
    return rows.compactMap { JobID(data: $0.id) }
  }
}

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
