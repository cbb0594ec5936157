internal import Foundation
internal import GRDB
internal import Jobs
internal import Logging

/// Changes to many jobs of a batch, a limited number per transaction.
extension WriteTransaction {
  /// Cancels jobs of cancelled batches and deletes jobs of purged ones, except those that are
  /// loading.
  mutating func endStoppedJobs(
    _ count: Int, at moment: Timestamp, keptFor retention: Duration,
    deleting cached: (Job) -> CachedImage?
  ) throws -> StoppedBatchJobs {
    try writeBatchCounters()
    var ends = StoppedBatchJobs()
    for batch in try stoppedBatches() where ends.count < count {
      if !batch.isPurged {
        try cancelJobs(of: batch.number, &ends, upTo: count, at: moment, keptFor: retention)
      } else if deletableLines > 0 {
        try deleteJobs(of: batch, &ends, upTo: count, cached)
      }
    }
    ends.batches = try stoppedBatches().map(\.id)
    ends.isMore = ends.count >= count || deletableLines <= 0
    return ends
  }

  /// Returns cancelled batches, then purged ones. `stage` distinguishes them without decoding the
  /// record.
  private func stoppedBatches() throws -> [(number: Int64, id: BatchID, isPurged: Bool)] {
    let rows = try all(
      "SELECT number, id, stage FROM batches WHERE stage >= 4 ORDER BY stage, number")
    return rows.compactMap { row in
      BatchID(data: row[1]).map {
        (number: row[0] as Int64, id: $0, isPurged: row[2] as Int64 == BatchStage.purged.rawValue)
      }
    }
  }

  private mutating func cancelJobs(
    of number: Int64, _ ends: inout StoppedBatchJobs, upTo count: Int, at moment: Timestamp,
    keptFor retention: Duration
  ) throws {
    // Loading jobs finish or are requeued later.
    if let row = try? BatchRow.fetch(number: number, db), row.batch.counts[.queued] == 0 { return }
    let limit = count - ends.count
    let rows = try JobRow.fetchAll(
      "batch = ? AND line > ? AND phase = 0 ORDER BY line LIMIT ?",
      [number, counters.queues.ready.stoppedLine(of: number) ?? 0, limit], db)
    // Remember the line, so that the next portion does not read finished jobs again.
    counters.queues.ready.stop(number, after: rows.count < limit ? 0 : rows.last?.line)
    var references = ReferenceChanges()
    for row in rows {
      do {
        let change = try JobChange(of: row) {
          $0.cancel(at: moment, keptFor: $0.submission.retention ?? retention)
        }
        try save(change, &references)
        ends.cancelled.append(change.after)
      } catch StoreError.unreadable {
        // An unreadable job stays unchanged, so that the rest of the batch can be cancelled.
      }
    }
    try apply(references)
  }

  private mutating func deleteJobs(
    of batch: (number: Int64, id: BatchID, isPurged: Bool), _ ends: inout StoppedBatchJobs,
    upTo count: Int, _ cached: (Job) -> CachedImage?
  ) throws {
    let rows = try JobRow.fetchAll(
      "batch = ? AND line > 0 AND phase <> 1 ORDER BY line LIMIT ?",
      [batch.number, count - ends.count], db)
    let jobs = rows.compactMap { try? $0.job() }
    try deleteEntries(ofImages: Set(jobs.compactMap(cached)))
    for row in rows {
      try delete(row)
      try deleteMessages(of: row.id, includingUnsent: true)
    }
    ends.removed += jobs
    let isAny = try exists(
      "SELECT 1 FROM jobs WHERE batch = ? AND line > 0 LIMIT 1", [batch.number])
    if !isAny { try deleteBatch(batch.number, batch.id) }
  }

  /// Matches batches that have expired. Clients no longer see them. The row stays until no job
  /// refers to it, because its number could be reused otherwise.
  static let expiredBatches = """
    stage IN (2, 3) AND expires_at <= ?
      AND NOT EXISTS (SELECT 1 FROM jobs WHERE batch = batches.number AND line > 0)
    """

  /// Closes batches that stopped receiving lines, and deletes expired ones.
  mutating func closeAndExpireBatches(
    idleSince moment: Timestamp, at now: Timestamp, count: Int
  ) throws -> Int {
    try writeBatchCounters()
    var tidied = 0
    let receiving = try openBatches(after: counters.openBatches)
    counters.openBatches = receiving.last?.number ?? 0
    for var row in receiving where row.batch.receivedAt < moment && tidied < count {
      _ = row.batch.close(at: now)
      try write(row)
      tidied += 1
    }
    let over = try BatchRow.fetchReadable(
      "\(Self.expiredBatches) LIMIT ?", [now.milliseconds, count - tidied], db)
    for row in over where deletableLines > 0 {
      if try deleteBatch(row.number, row.batch.id) { tidied += 1 }
    }
    return deletableLines > 0 ? tidied : count
  }

  private func openBatches(after number: Int64) throws -> [BatchRow] {
    let rows = try BatchRow.fetchReadable(
      "stage = ? AND number > ? ORDER BY number LIMIT 1000",
      [BatchStage.receiving.rawValue, number], db)
    return rows.isEmpty && number > 0 ? try openBatches(after: 0) : rows
  }

  /// The next lines of one failure code, in order. A query for all codes at once would make SQLite
  /// read every line of the batch.
  static let failedLines = """
    SELECT line, number FROM jobs WHERE batch = ? AND code = ? AND line > ? AND line < ?
    ORDER BY line LIMIT ?
    """

  /// Returns the next failed lines and the numbers of their rows, using only the index.
  private func failedRows(
    of batch: Int64, _ query: RetryQuery
  ) throws -> [(line: Int, number: Int64)] {
    var (found, end) = ([(line: Int, number: Int64)](), Int.max)
    for code in query.codes {
      let rows = try all(
        Self.failedLines, [batch, code.rawValue, query.after, end, query.count])
      found += rows.map { (line: $0[0] as Int, number: $0[1] as Int64) }
      found = Array(found.sorted { $0.line < $1.line }.prefix(query.count))
      // Lines of the other codes behind the last of these are not needed.
      if found.count == query.count, let last = found.last { end = last.line }
    }
    return found
  }

  /// Changes failed jobs of a batch, in line order, while the queue has free slots.
  mutating func retry(
    _ query: RetryQuery, at moment: Timestamp, _ change: (inout Job) -> Bool
  ) throws -> BatchRetry? {
    guard let batch = try batch(query.batch) else { return nil }
    let found = try failedRows(of: batch.number, query)
    var references = ReferenceChanges()
    var retry = BatchRetry(next: found.count < query.count ? nil : found.last?.line)
    for (_, number) in found {
      let made: JobChange
      do {
        guard let row = try JobRow.fetch(number: number, db) else { continue }
        made = try JobChange(of: row, by: change)
      } catch let StoreError.unreadable(detail) {
        Logger(label: "store").error("failed to retry a job", metadata: ["error": "\(detail)"])
        continue
      }
      guard made.row != nil else { continue }
      guard hasSlots(for: made, within: query.capacity, at: moment) else {
        retry.isQueueFull = true
        break
      }
      try save(made, &references)
      retry.jobs.append(made.after)
    }
    try apply(references)
    return retry
  }
}
