internal import Jobs
internal import Logging

/// Changes to many jobs of a batch, a limited number per transaction.
extension Transaction {
  /// The maximum number of cancelled and purged batches that one transaction processes.
  private static let maxStoppedBatches = 100

  func endStoppedJobs(
    _ count: Int, keptFor retention: Duration, deleting cached: (Job) -> CachedImage?
  ) throws -> StoppedBatchJobs {
    var (ends, wasFull) = (StoppedBatchJobs(), false)
    let moment = try clock()
    // Cancelled batches come before purged ones. `stage` distinguishes them without decoding the
    // record.
    let found = try execute(
      """
      SELECT number, id, stage FROM batches WHERE stage >= 4 ORDER BY stage, number
      LIMIT \(Self.maxStoppedBatches) FOR UPDATE
      """)
    let numbers = found.all.compactMap { found.int($0, 0) }
    let rows = try readableBatchRows("b.number = ANY ($1)", [.ints(numbers)])
    for (place, number) in numbers.enumerated() where ends.count < count {
      guard let id = found.id(place, 1) else { continue }
      if found.int(place, 2) == BatchStage.purged.rawValue {
        if mayDeleteBatch() { try deleteJobs(of: number, id, &ends, upTo: count, cached) }
      } else if let row = rows.first(where: { $0.number == number }),
        row.batch.counts.unfinished == 0
      {
        try markFinished(row)
      } else {
        let isFull = try cancelJobs(
          of: number, &ends, upTo: count, at: moment, keptFor: retention)
        if isFull { wasFull = true }
      }
    }
    let stopped = try execute("SELECT id FROM batches WHERE stage >= 4")
    ends.batches = stopped.all.compactMap { stopped.id($0, 0) }
    // Another call is needed if a batch was deleted only in part, or if more batches than this
    // query returned may follow.
    let mayFollow =
      forgetting.isPart || forgetting.rows > 0 && found.count == Self.maxStoppedBatches
    ends.isMore = ends.count >= count || wasFull && ends.count > 0 || mayFollow
    return ends
  }

  /// - Returns: whether the query found as many jobs as requested, including unreadable ones.
  private func cancelJobs(
    of number: Int64, _ ends: inout StoppedBatchJobs, upTo count: Int, at moment: Timestamp,
    keptFor retention: Duration
  ) throws -> Bool {
    let wanted = count - ends.count
    let found = try execute(
      "SELECT id FROM queue WHERE batch = $1 AND batch > 0 AND state <> 4 LIMIT $2",
      [.int(number), .int(Int64(wanted))])
    let ids = found.all.compactMap { found.id($0, 0) }.sorted()
    var changes = try JobChanges(to: Set(ids), in: self)
    for id in ids {
      do {
        let job = try changes.change(id, under: nil) { job in
          guard job.phase == .queued else { return false }
          return job.cancel(at: moment, keptFor: job.submission.retention ?? retention)
        }
        if let job, job.phase == .cancelled { ends.cancelled.append(job) }
      } catch StoreError.unreadable {
        // An unreadable job stays unchanged, so that the rest of the batch can be cancelled.
      }
    }
    try changes.write()
    try addDeletionCandidates(changes.dropped)
    return ids.count == wanted
  }

  private func deleteJobs(
    of number: Int64, _ id: BatchID, _ ends: inout StoppedBatchJobs, upTo count: Int,
    _ cached: (Job) -> CachedImage?
  ) throws {
    let found = try execute(
      """
      SELECT j.id FROM jobs j WHERE j.batch = $1 AND j.line IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = j.id AND q.state = 4) ORDER BY j.line LIMIT $2
      """, [.int(number), .int(Int64(count - ends.count))])
    let rows = try lockedJobs(Set(found.all.compactMap { found.id($0, 0) })).values
      .compactMap { try? $0.get() }.filter { $0.phase != .loading }.sorted { $0.id < $1.id }
    let jobs = rows.compactMap { try? $0.job() }
    try deleteEntries(ofImages: Set(jobs.compactMap(cached)))
    try delete(rows)
    ends.removed += jobs
    try deleteMessages(of: rows.map(\.id), includingUnsent: true)
    if try execute(
      "SELECT 1 FROM jobs WHERE batch = $1 AND line IS NOT NULL LIMIT 1", [.int(number)]
    ).isEmpty,
      try deleteBatch(number, id)
    {
      batches.discard(number)
    }
  }

  /// - Parameter after: the number of the last open batch that was checked.
  func closeAndExpireBatches(idleFor idle: Duration, _ count: Int, after: inout Int64) throws -> Int
  {
    let moment = try clock()
    var tidied = 0
    let over = try readableBatchRows(
      "\(Self.expiredBatches) ORDER BY b.number LIMIT $2 FOR UPDATE",
      [.int(moment.milliseconds), .int(Int64(count))])
    let open = try openBatches(after: after)
    after = open.last?.number ?? 0
    let rows = over + open
    for var row in rows where tidied < count {
      if row.base.state == .receiving {
        guard row.base.receivedAt + idle < moment, row.batch.close(at: moment) else { continue }
        row.base.copyState(from: row.batch)
        if row.batch.state.isOver { try markFinished(row) } else { try write(row) }
        tidied += 1
      } else if row.batch.state.isOver, let end = row.batch.expiresAt {
        if row.isNotMarkedFinished {
          try self.markFinished(row)
        } else if end <= moment {
          if mayDeleteBatch(), try deleteBatch(row.number, row.base.id) { tidied += 1 }
        } else {
          try write(row, stage: BatchStage(row.batch), expiresAt: end)
        }
      } else if row.stage != .running {
        try write(row, stage: .running)
      }
    }
    return forgetting.isPart ? count : tidied
  }

  private func openBatches(after number: Int64) throws -> [BatchRow] {
    let rows = try readableBatchRows(
      "b.stage < 2 AND b.number > $1 ORDER BY b.number LIMIT 1000 FOR UPDATE", [.int(number)])
    return rows.isEmpty && number > 0 ? try openBatches(after: 0) : rows
  }

  /// Returns the batches that have no unfinished jobs.
  func endedBatches(among numbers: Set<Int64>) throws -> [Int64] {
    let rows = try execute(
      """
      SELECT b.number FROM unnest($1) AS n (number) JOIN batches b ON b.number = n.number
      WHERE b.stage IN (1, 4) AND 0 = (SELECT coalesce(sum(t.n), 0) FROM batch_tallies t
        WHERE t.batch = b.number AND t.name = ANY ($2))
      """,
      [
        .ints(numbers.sorted()),
        .byteStrings([.queued, .loading].map { Array(BatchCounter.phase($0).utf8) }),
      ])
    return rows.all.compactMap { rows.int($0, 0) }
  }

  /// Marks batches as finished.
  /// - Returns: whether a webhook message was written.
  func finishBatches(_ numbers: [Int64]) throws -> Bool {
    let rows = try readableBatchRows(
      "b.number = ANY ($1) ORDER BY b.number FOR UPDATE", [.ints(numbers)])
    var isTold = false
    for row in rows where row.isNotMarkedFinished && !row.isPurged && row.batch.finishedAt != nil {
      try markFinished(row)
      isTold = isTold || row.batch.webhook != nil
    }
    return isTold
  }

  /// Marks the batch as finished and writes its webhook message. The batch's row is locked and all
  /// of its jobs have finished. The batch is not checked again until it expires or one of its jobs
  /// is retried.
  private func markFinished(_ row: BatchRow) throws {
    var row = row
    try addMessages([WebhookMessage(endOf: row.batch, wasOver: false)].compactMap(\.self))
    row.base.finishCancelling()
    try write(row, stage: BatchStage(row.batch), expiresAt: row.batch.expiresAt)
  }

  /// The next lines of each failure code, in line order. A search for all codes at once could make
  /// the server scan every line of the batch.
  static let failedJobs =
    "SELECT id, line FROM jobs WHERE batch = $1 AND code = $3 AND line > $2 ORDER BY line LIMIT $4"

  private func failedJobs(of batch: Int64, _ query: RetryQuery) throws -> [(id: JobID, line: Int)] {
    let found = try executeAll(
      query.codes.map { code in
        SQLStatement(
          Self.failedJobs,
          [
            .int(batch), .int(Int64(query.after)), .bytes(Array(code.rawValue.utf8)),
            .int(Int64(query.count)),
          ])
      })
    let jobs = found.flatMap { rows in
      rows.all.compactMap { row in
        rows.id(row, 0).map { (id: $0, line: Int(rows.int(row, 1) ?? 0)) }
      }
    }
    return Array(jobs.sorted { $0.line < $1.line }.prefix(query.count))
  }

  func retry(
    _ query: RetryQuery, in room: QueueLimits, _ change: (inout Job) -> Bool
  ) throws -> BatchRetry? {
    guard let row = try batchRow(query.batch) else { return nil }
    let found = try failedJobs(of: row.number, query)
    let ids = found.map(\.id)
    var retry = BatchRetry(next: found.count < query.count ? nil : found.last?.line)
    var changes = try JobChanges(to: Set(ids), in: self)
    for id in ids {
      var isChanged = false
      do {
        let job = try changes.change(id, under: nil, within: room) { job in
          isChanged = change(&job)
          return isChanged
        }
        if isChanged, let job { retry.jobs.append(job) }
      } catch is QueueFull {
        retry.isQueueFull = true
        break
      } catch let StoreError.unreadable(detail) {
        Logger(label: "store").error("failed to retry a job", metadata: ["error": "\(detail)"])
      }
    }
    try changes.write()
    try addDeletionCandidates(changes.dropped)
    return retry
  }
}
