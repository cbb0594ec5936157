public import Jobs
internal import Records
internal import Synchronization

/// Batches: a row each, and what is counted of its jobs beside it, so that instances which end jobs of one batch don't wait
/// for each other. That all have ended is seen by whoever looks; the one that tidies up writes it down.
extension PostgresJobStore: BatchStore {
  /// In a transaction of its own.
  public func open(
    _ batch: Batch, key: IdempotencyKey?, atMost limit: Int
  ) async throws(StoreError) -> BatchOpening {
    let record: [UInt8]
    do { record = try RecordEncoder.encode(batch) } catch { throw StoreError(cause: error) }
    return try await write { transaction in
      if let key {
        if let known = try transaction.knownKeys([key]).values.first {
          // A try of this very request that was committed after all is no repetition by a client.
          if known.ids == [batch.id] { return .opened }
          guard known.fingerprint == key.fingerprint.bytes, let id = known.ids.first else {
            return .keyReused
          }
          return .repeated(id)
        }
      }
      guard try transaction.openBatches(of: batch.owner, upTo: limit) < limit else {
        return .tooMany
      }
      if let key {
        try transaction.remember([(key: key, since: batch.createdAt, jobs: [batch.id])])
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

  /// In a transaction of its own, which has the batch's row locked.
  public func add(
    _ lines: BatchLines, to id: BatchID, capacity: QueueCapacity
  ) async throws(StoreError) -> BatchAddition {
    let request: SubmitRequest
    do { request = try SubmitRequest(lines.jobs, key: nil, capacity: capacity) } catch {
      throw StoreError(cause: error)
    }
    return try await write { [refusedLines, refusedRecords] in
      try $0.add(lines, request, to: id, refusedLines, refusedRecords)
    }
  }

  /// Ends it where nothing of it is left to do.
  public func close(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await change(id) { $0.close(at: $1) }
  }

  /// Leaves it alone where it has jobs, or somebody has gone on with it.
  public func abandon(_ id: BatchID, after lines: Int) async throws(StoreError) {
    try await write { transaction in
      guard let row = try transaction.batchRow(id, isLocked: true), row.batch.isUnused(after: lines)
      else { return }
      try transaction.forget(row.number, row.base.id)
      try transaction.forgetKey(of: row.base)
    }
  }

  /// Marks it; its jobs are ended by ``endStopped(_:keptFor:forgetting:)``.
  public func cancel(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await change(id) { $0.cancel(at: $1) }
  }

  /// Marks it; its jobs are forgotten by ``endStopped(_:keptFor:forgetting:)``.
  public func purge(_ id: BatchID, refusedAfter lines: Int?) async throws(StoreError) -> Bool {
    let batch = try await change(id, forgettingKey: lines != nil) { batch, _ in
      batch.purge(refusedAfter: lines)
    }
    return batch?.isPurged ?? false
  }

  private func change(
    _ id: BatchID, forgettingKey: Bool = false,
    _ change: @escaping @Sendable (inout Batch, Timestamp) -> Bool
  ) async throws(StoreError) -> Batch? {
    let (batch, number) = try await write { transaction -> (Batch?, Int64?) in
      guard var row = try transaction.batchRow(id, isLocked: true) else { return (nil, nil) }
      let moment = try transaction.clock()
      guard change(&row.batch, moment) else { return (row.batch, nil) }
      row.base.follow(row.batch)
      try transaction.write(row)
      if row.isPurged { try transaction.forgetMessages(of: [id], waiting: true) }
      if forgettingKey { try transaction.forgetKey(of: row.base) }
      return (row.batch, row.number)
    }
    // It may have no job that is still to end.
    if let number { endingBatches.note([number]) }
    return batch
  }

  /// One look at its row, and one at what is counted.
  public func batch(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await read { try $0.batchRow(id)?.batch }
  }

  /// By the index of ids, newest first.
  public func batches(_ query: BatchQuery) async throws(StoreError) -> BatchPage {
    try await read { try $0.page(query) }
  }

  /// By the index of the batch's lines; looks at those of the range alone, as they all are at one moment: what is tried again
  /// between two looks would be neither a result nor what ends them.
  public func results(_ query: ResultQuery) async throws(StoreError) -> BatchResults? {
    try await read { transaction in
      try transaction.atOneMoment { try transaction.results(query) }
    }
  }

  /// In a transaction for each call. What a try did whose answer was lost the next one does not find: all are to look.
  public func endStopped(
    _ count: Int, keptFor retention: Duration,
    forgetting cached: @escaping @Sendable (Job) -> CachedImage?
  ) async throws(StoreError) -> BatchEnds {
    let isAny = try await read {
      try !$0.execute("SELECT FROM batches WHERE stage >= 4 LIMIT 1").isEmpty
    }
    guard isAny else { return BatchEnds() }
    let tried = Atomic(0)
    do throws(StoreError) {
      let ends = try await write { transaction -> BatchEnds in
        // What was tried before was certainly undone.
        if !transaction.isRepeated { tried.store(0, ordering: .relaxed) }
        let ends = try transaction.endStopped(count, keptFor: retention, forgetting: cached)
        tried.add(ends.count, ordering: .relaxed)
        return ends
      }
      if tried.load(ordering: .relaxed) > ends.count { tell(.lost, from: .none) }
      return ends
    } catch {
      if case .unavailable = error, tried.load(ordering: .relaxed) > 0 { tell(.lost, from: .none) }
      throw error
    }
  }

  /// Looks first where others may look.
  public func tidyBatches(idleFor idle: Duration, _ count: Int) async throws(StoreError) -> Int {
    let isAny = try await read { transaction in
      try !transaction.execute(Transaction.untidyBatches, [transaction.moment]).isEmpty
    }
    guard isAny else { return 0 }
    let (tidied, after) = try await write { [after = openBatches.load(ordering: .relaxed)] in
      var after = after
      return (try $0.tidyBatches(idleFor: idle, count, after: &after), after)
    }
    openBatches.store(after, ordering: .relaxed)
    return tidied
  }

  /// Looks at those alone of which this process has ended jobs since it last looked.
  public func finishBatches() async throws(StoreError) -> Bool {
    let numbers = endingBatches.takeAll()
    guard !numbers.isEmpty else { return false }
    do throws(StoreError) {
      let ended = try await read { try $0.endedBatches(among: numbers) }
      guard !ended.isEmpty else { return false }
      return try await write { try $0.finishBatches(ended) }
    } catch {
      endingBatches.note(numbers)
      throw error
    }
  }

  /// By an index of failed jobs of batches.
  public func retry(
    _ query: RetryQuery, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> BatchRetry? {
    try await write { [room = queueRoom(within: query.capacity)] in
      try $0.retry(query, in: room, change)
    }
  }
}

extension Transaction {
  /// Whose time has come. Nobody is shown them any more; they are kept for as long as there are jobs that name them.
  static let overBatches = """
    b.stage IN (2, 3) AND b.expires_at <= (SELECT moment($1))
      AND NOT EXISTS (SELECT FROM jobs j WHERE j.batch = b.number)
    """

  /// Tells whether some are to be closed, ended or forgotten.
  static let untidyBatches = """
    SELECT WHERE EXISTS (SELECT FROM batches WHERE stage < 2)
      OR EXISTS (SELECT FROM batches b WHERE \(overBatches))
    """

  /// The store's clock.
  func clock() throws -> Timestamp {
    Timestamp(milliseconds: try execute("SELECT moment($1)", [moment]).int(0, 0) ?? 0)
  }

  /// How many of an owner's batches are not over, as far as that is written down, and others can see.
  fileprivate func openBatches(of owner: Owner, upTo limit: Int) throws -> Int {
    let rows = try execute(
      """
      SELECT count(*) FROM (SELECT FROM batches
        WHERE stage = ANY ($1) AND owner = $2 LIMIT $3) b
      """,
      [
        .ints([BatchStage.receiving, .running, .cancelling].map(\.rawValue)),
        .bytes(Array(owner.name.utf8)), .int(Int64(clamping: limit)),
      ])
    return Int(rows.int(0, 0) ?? 0)
  }

  /// Its key may have been forgotten for its age before, and be another's.
  fileprivate func forgetKey(of batch: Batch) throws {
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
    // A try of these very lines that was committed after all.
    if row.base.received >= end, let first = lines.jobs.first?.id, try !knownJobs([first]).isEmpty {
      return .taken(row.batch)
    }
    guard row.base.state == .receiving, row.base.received == lines.offset else {
      return .refused(row.batch)
    }
    let moment = try clock()
    let places = request.rows.compactMap(\.queue).reduce(0) { $0 + $1.places }
    let owner = Array(row.base.owner.name.utf8)
    let totals = try totals()
    // Whom to tell of its end takes none.
    guard
      places == 0
        || refusals.hasRoom(
          for: places, of: owner, held: totals.lines, within: request.capacity, at: moment)
    else { return .queueFull }
    let rejected = try lines.rejected.map { try RecordEncoder.encode($0) }
    let rejectedBytes = rejected.reduce(0) { $0 + Self.rejectedLine + $1.count }
    let bytes = request.rows.reduce(rejectedBytes) { $0 + $1.storedBytes }
    guard
      bytes == 0
        || storageRefusals.hasRoom(
          for: bytes, of: owner, held: totals.stored,
          within: QueueCapacity(request.capacity.recordBytes), at: moment)
    else { return .recordsFull }
    tallies[.stored(owner)] += rejectedBytes
    var request = request
    for index in request.rows.indices { request.rows[index].batch = row.number }
    if !request.rows.isEmpty { try save([request], known: [:]) }
    try add(
      "INSERT INTO rejected_lines (batch, line, record) SELECT $1, * FROM unnest($2, $3)",
      [
        .int(row.number), .ints(lines.rejected.map { Int64($0.line) }),
        .byteStrings(rejected),
      ])
    row.base.take(lines, at: moment)
    try write(row)
    return .taken(try batchRow(id, isLocked: true)?.batch ?? row.batch)
  }
}
