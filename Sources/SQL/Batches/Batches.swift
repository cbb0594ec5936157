package import Jobs
internal import Synchronization

/// Batches in PostgreSQL. Each batch has one row, and its counters are rows of their own, so that
/// instances that finish jobs of the same batch do not wait for each other. Readers compute from
/// the counters whether all jobs have finished; the maintenance task stores the result.
extension SQLJobStore: BatchStore {
  /// Uses its own transaction.
  package func open(
    _ batch: Batch, key: IdempotencyKey?, atMost limit: Int
  ) async throws(StoreError) -> BatchOpening {
    let record: [UInt8]
    do { record = try StoredJSON.encode(batch) } catch { throw StoreError(cause: error) }
    return try await write(isAdding: true) { transaction in
      if let key {
        if let known = try transaction.knownKeys([key]).values.first {
          // The key belongs to this same batch: an earlier try of this call was committed although
          // its answer was lost.
          if known.ids == [batch.id] { return .opened }
          guard known.fingerprint == key.fingerprint.bytes, let id = known.ids.first else {
            return .keyReused
          }
          return .repeated(id)
        }
      }
      guard try transaction.lastCheckedOpenBatch(of: batch.owner, upTo: limit) < limit else {
        return .tooMany
      }
      if let key {
        try transaction.insertKeys([(key: key, since: batch.createdAt, jobs: [batch.id])])
      }
      try transaction.add(
        """
        INSERT INTO batches (id, owner, stage, record) VALUES ($1, $2, $3, $4)
        ON CONFLICT (id) DO NOTHING
        """,
        [
          .id(batch.id), .bytes(Array(batch.owner.name.utf8)),
          .int(BatchStage(batch).rawValue), .bytes(record),
        ])
      return .opened
    }
  }

  /// Uses its own transaction, which locks the batch's row.
  package func add(
    _ lines: BatchLines, to id: BatchID, capacity: QueueCapacity
  ) async throws(StoreError) -> BatchAddition {
    let request: SubmitRequest
    do { request = try SubmitRequest(lines.jobs, key: nil, capacity: capacity) } catch {
      throw StoreError(cause: error)
    }
    return try await write(isAdding: true) { [refusedLines, refusedRecords] in
      try $0.add(lines, request, to: id, refusedLines, refusedRecords)
    }
  }

  /// Closes the batch. A batch without unfinished jobs finishes at once.
  package func close(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await change(id) { $0.close(at: $1) }
  }

  /// Does nothing if the batch has jobs or received further lines.
  package func deleteUnused(_ id: BatchID, after lines: Int) async throws(StoreError) {
    try await write { transaction in
      guard let row = try transaction.batchRow(id, isLocked: true), row.batch.isUnused(after: lines)
      else { return }
      try transaction.deleteBatch(row.number, row.base.id)
      try transaction.deleteKey(of: row.base)
    }
  }

  /// Marks the batch; ``endStoppedJobs(_:keptFor:deleting:)`` cancels its jobs. Every job either ends
  /// before this transaction, which counts it then, or sees the mark.
  package func cancel(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await change(id, awaitingResults: true) { $0.cancel(at: $1) }
  }

  /// Marks the batch; ``endStoppedJobs(_:keptFor:deleting:)`` deletes its jobs.
  package func purge(_ id: BatchID, refusedAfter lines: Int?) async throws(StoreError) -> Bool {
    let batch = try await change(id, forgettingKey: lines != nil) { batch, _ in
      batch.purge(refusedAfter: lines)
    }
    return batch?.isPurged ?? false
  }

  private func change(
    _ id: BatchID, awaitingResults: Bool = false, forgettingKey: Bool = false,
    _ change: @escaping @Sendable (inout Batch, Timestamp) -> Bool
  ) async throws(StoreError) -> Batch? {
    let (batch, number) = try await write { transaction -> (Batch?, Int64?) in
      guard var row = try transaction.batchRow(id, isLocked: true) else { return (nil, nil) }
      if awaitingResults, !row.batch.state.isOver {
        try transaction.awaitResults(of: row.number)
        row = try transaction.batchRow(id) ?? row
      }
      let moment = try transaction.clock()
      guard change(&row.batch, moment) else { return (row.batch, nil) }
      row.base.copyState(from: row.batch)
      try transaction.write(row)
      if row.isPurged { try transaction.deleteMessages(of: [id], includingUnsent: true) }
      if forgettingKey { try transaction.deleteKey(of: row.base) }
      return (row.batch, row.number)
    }
    // All of its jobs may have finished already, so check the batch.
    if let number { endingBatches.insert([number]) }
    return batch
  }

  /// One query for its row and one for its counters. Both see the same snapshot.
  package func batch(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await read { transaction in
      try transaction.withSnapshot { try transaction.batchRow(id)?.batch }
    }
  }

  /// Uses the index of ids, newest first.
  package func batches(_ query: BatchQuery) async throws(StoreError) -> BatchPage {
    try await readUnlessCancelled { transaction in
      try transaction.withSnapshot { try transaction.page(query) }
    }
  }

  /// Uses the index of the batch's lines, and reads only the requested range. All queries see the
  /// same snapshot: a job retried between two queries would otherwise be missing from the results
  /// without ending them.
  package func results(_ query: ResultQuery) async throws(StoreError) -> BatchResults? {
    try await readUnlessCancelled { transaction in
      try transaction.withSnapshot { try transaction.results(query) }
    }
  }

  /// One transaction per call. If the answer to a commit is lost, the next call does not find the
  /// jobs that were changed. In this case all instances are notified to check their jobs.
  package func endStoppedJobs(
    _ count: Int, keptFor retention: Duration,
    deleting cached: @escaping @Sendable (Job) -> CachedImage?
  ) async throws(StoreError) -> StoppedBatchJobs {
    let isAny = try await read {
      try !$0.execute("SELECT 1 FROM batches WHERE stage >= 4 LIMIT 1").isEmpty
    }
    guard isAny else { return StoppedBatchJobs() }
    let tried = Atomic(0)
    do throws(StoreError) {
      let ends = try await write { transaction -> StoppedBatchJobs in
        // Without an uncertain commit, the earlier tries were rolled back and do not count.
        if !transaction.isRepeated { tried.store(0, ordering: .relaxed) }
        let ends = try transaction.endStoppedJobs(count, keptFor: retention, deleting: cached)
        tried.add(ends.count, ordering: .relaxed)
        return ends
      }
      if tried.load(ordering: .relaxed) > ends.count { publish(.lost, from: .none) }
      return ends
    } catch {
      if case .unavailable = error, tried.load(ordering: .relaxed) > 0 {
        publish(.lost, from: .none)
      }
      throw error
    }
  }

  /// Checks with a read transaction first whether there is anything to do.
  package func closeAndExpireBatches(idleFor idle: Duration, _ count: Int) async throws(StoreError)
    -> Int
  {
    let isAny = try await read { transaction in
      try !transaction.execute(Transaction.batchesToMaintain, [transaction.moment]).isEmpty
    }
    guard isAny else { return 0 }
    let (tidied, after) = try await write { [after = openBatches.load(ordering: .relaxed)] in
      var after = after
      return (try $0.closeAndExpireBatches(idleFor: idle, count, after: &after), after)
    }
    openBatches.store(after, ordering: .relaxed)
    return tidied
  }

  /// Checks only batches with jobs that this process finished since the last call.
  package func finishBatches() async throws(StoreError) -> Bool {
    let numbers = endingBatches.removeAll()
    guard !numbers.isEmpty else { return false }
    do throws(StoreError) {
      let ended = try await read { try $0.endedBatches(among: numbers) }
      guard !ended.isEmpty else { return false }
      return try await write { try $0.finishBatches(ended) }
    } catch {
      endingBatches.insert(numbers)
      throw error
    }
  }

  /// Uses the index of failed batch jobs.
  package func retry(
    _ query: RetryQuery, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> BatchRetry? {
    try await write { [room = queueRoom(within: query.capacity)] in
      try $0.retry(query, in: room, change)
    }
  }
}

extension Transaction {
  /// Matches batches that have expired. Clients no longer see them; the row stays until no job
  /// refers to it.
  static let expiredBatches = """
    b.stage IN (2, 3) AND b.expires_at <= (SELECT moment($1))
      AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.batch = b.number AND j.line IS NOT NULL)
    """

  /// Returns a row if a batch may have to be closed, finished or deleted.
  static let batchesToMaintain = """
    SELECT 1 WHERE EXISTS (SELECT 1 FROM batches WHERE stage < 2)
      OR EXISTS (SELECT 1 FROM batches b WHERE \(expiredBatches))
    """

  /// The current time of the store.
  func clock() throws -> Timestamp {
    Timestamp(milliseconds: try execute("SELECT moment($1)", [moment]).int(0, 0) ?? 0)
  }

  /// Counts an owner's unfinished batches, up to a limit, by the committed stages.
  fileprivate func lastCheckedOpenBatch(of owner: Owner, upTo limit: Int) throws -> Int {
    let rows = try execute(
      """
      SELECT count(*) FROM (SELECT 1 FROM batches
        WHERE stage = ANY ($1) AND owner = $2 LIMIT $3) b
      """,
      [
        .ints([BatchStage.receiving, .running, .cancelling].map(\.rawValue)),
        .bytes(Array(owner.name.utf8)), .int(Int64(clamping: limit)),
      ])
    return Int(rows.int(0, 0) ?? 0)
  }

  /// Deletes the batch's idempotency key. Deletes nothing if the key expired before and was reused
  /// for another batch.
  fileprivate func deleteKey(of batch: Batch) throws {
    guard let key = batch.key else { return }
    try execute(
      "DELETE FROM keys WHERE owner = $1 AND key = $2 AND jobs = $3",
      [
        .bytes(Array(batch.owner.name.utf8)), .bytes(IndexedText.bytes(of: key)),
        .bytes(batch.id.bytes),
      ])
  }

  fileprivate func add(
    _ lines: BatchLines, _ request: SubmitRequest, to id: BatchID, _ refusals: Refusals,
    _ storageRefusals: Refusals
  ) throws -> BatchAddition {
    guard var row = try batchRow(id, isLocked: true) else { return .unknown }
    let end = lines.offset + lines.count
    // An earlier try with the same lines was committed although its answer was lost.
    if row.base.received >= end, let first = lines.jobs.first?.id, try !knownJobs([first]).isEmpty {
      return .accepted(row.batch)
    }
    guard row.base.state == .receiving, row.base.received == lines.offset else {
      return .refused(row.batch)
    }
    let moment = try clock()
    let places = request.rows.compactMap(\.queue).reduce(0) { $0 + $1.slots }
    let owner = Array(row.base.owner.name.utf8)
    let totals = try totals(of: [owner])
    // Lines without jobs need no slots in the queue.
    guard
      places == 0
        || refusals.hasCapacity(
          for: places, of: owner, held: totals.lines, within: request.capacity, at: moment)
    else { return .queueFull }
    let rejected = try lines.rejected.map { try StoredJSON.encode($0) }
    let rejectedBytes = rejected.reduce(0) { $0 + Self.rejectedLineOverhead + $1.count }
    let bytes = request.rows.reduce(rejectedBytes) { $0 + $1.storedBytes }
    guard
      bytes == 0
        || storageRefusals.hasCapacity(
          for: bytes, of: owner, held: totals.stored,
          within: QueueCapacity(request.capacity.recordBytes), at: moment)
    else { return .recordsFull }
    tallies[.stored(owner)] += rejectedBytes
    var request = request
    for index in request.rows.indices { request.rows[index].batch = row.number }
    if !request.rows.isEmpty { try save([request], known: [:]) }
    try add(
      """
      INSERT INTO rejected_lines (batch, line, record)
      SELECT $1, n.line, n.record FROM unnest($2, $3) AS n (line, record)
      """,
      [
        .int(row.number), .ints(lines.rejected.map { Int64($0.line) }),
        .byteStrings(rejected),
      ])
    row.base.addLines(lines, at: moment)
    try write(row)
    return .accepted(try batchRow(id, isLocked: true)?.batch ?? row.batch)
  }
}
