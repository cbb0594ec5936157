internal import Jobs
internal import Records

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
    if isOnlyWriter { return try jobs(Array(ids)) }
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

  func insert(
    _ rows: [JobRow], tags: [(row: JobRow, tags: [String])], areCounted: Bool
  ) throws {
    try addDefaults(of: rows)
    try add(
      """
      INSERT INTO jobs (id, owner, phase, finished_at, expires_at, image, source, low, record, batch, line, code, defaults)
      SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
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
          try rows.map { try $0.defaults?.stored { try RecordEncoder.encode($0) }.digest.bytes }),
      ])
    try enqueue(rows)
    try addTags(tags)
    for row in rows {
      updateCounters(row, 1)
      if !areCounted { batches.recordChange(from: nil, to: row) }
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
