internal import Foundation
internal import GRDB
internal import Jobs
internal import Records

/// Batches, and the effects of changes to their jobs.
extension WriteTransaction {
  /// The result of opening a batch.
  enum Opened: Sendable {
    case opened, tooMany
    case known(IdempotencyKeys.Known)
  }

  mutating func open(
    _ batch: Batch, key: IdempotencyKey?, atMost limit: Int
  ) throws -> Opened {
    if let key, let known = try IdempotencyKeys.find(key, db) { return .known(known) }
    // Count the batches whose last jobs this transaction has finished as finished.
    try writeBatchCounters()
    let others = try one(Self.openBatches, [batch.owner.data, limit])
    let count: Int = others?[0] ?? 0
    guard count < limit else { return .tooMany }
    if let key { try insertKey(key, for: [batch.id], at: batch.createdAt) }
    try execute(
      "INSERT INTO batches (id, owner, stage, expires_at, record) VALUES (?, ?, ?, NULL, ?)",
      [batch.id.data, batch.owner.data, BatchStage(batch).rawValue, try batch.record])
    return .opened
  }

  /// Counts an owner's unfinished batches by the index of stages. The index of owners is not used,
  /// because it also contains finished batches, which are more.
  static let openBatches = """
    SELECT count(*) FROM (SELECT 1 FROM batches INDEXED BY batches_stage
      WHERE stage IN (\(openStages)) AND owner = ? LIMIT ?)
    """

  private static let openStages = [BatchStage.receiving, .running, .cancelling]
    .map { "\($0.rawValue)" }.joined(separator: ", ")

  /// Adds lines to a batch, if they follow the received ones.
  mutating func add(
    _ lines: BatchLines, _ rows: [JobRow], to id: BatchID, capacity: QueueCapacity,
    at moment: Timestamp
  ) throws -> BatchAddition {
    guard var row = try batch(id) else { return .unknown }
    guard row.batch.state == .receiving, row.batch.received == lines.offset else {
      return .refused(row.batch)
    }
    let places = rows.reduce(0) { $0 + $1.slots }
    let owner = row.batch.owner.data
    // Lines without jobs need no slots in the queue.
    guard
      places == 0
        || counters.lines.hasCapacity(for: places, of: owner, within: capacity.slots, at: moment)
    else { return .queueFull }
    let rejected = try lines.rejected.map {
      (line: $0.line, record: Data(try RecordEncoder.encode($0)))
    }
    let rejectedBytes = rejected.reduce(0) {
      $0 + StoreCounters.rejectedLineOverhead + $1.record.count
    }
    let bytes = rows.reduce(rejectedBytes) { $0 + $1.storedBytes }
    guard
      bytes == 0
        || counters.records.hasCapacity(
          for: bytes, of: owner, within: ShareBounds(capacity.recordBytes), at: moment)
    else { return .recordsFull }
    counters.records.acquireUnchecked(rejectedBytes, for: owner)
    try addDefaults(of: rows, to: row.number)
    for var job in rows {
      job.batch = row.number
      job.rank = try counters.ranks.next(db)
      try insert(job)
    }
    for line in rejected {
      try execute(
        "INSERT INTO rejected_lines (batch, line, record) VALUES (?, ?, ?)",
        [row.number, line.line, line.record])
    }
    row.batch.addLines(lines, at: moment)
    try save(&row, with: counters.batches.remove(row.number), at: moment)
    return .accepted(row.batch)
  }

  /// Stores the defaults of batch lines, each once per batch.
  private mutating func addDefaults(of rows: [JobRow], to batch: Int64) throws {
    var last: SharedDefaults?
    for row in rows where row.defaults !== last {
      guard let defaults = row.defaults else { continue }
      let stored = try defaults.stored()
      let added = try execute(
        "INSERT OR IGNORE INTO batch_defaults (batch, digest, tag_bytes, record) VALUES (?, ?, ?, ?)",
        [batch, stored.digest.data, defaults.tagBytes, Data(stored.record)])
      if added > 0 { counters.records.acquireUnchecked(stored.record.count, for: row.owner) }
      KnownDefaults.remember(defaults, stored.digest)
      last = defaults
    }
  }

  /// Changes a batch.
  /// - Parameter change: returns `false` to leave the batch unchanged.
  /// - Returns: the batch after the change; `nil` if it does not exist.
  mutating func update(batch id: BatchID, _ change: (inout Batch) -> Bool) throws -> Batch? {
    guard var row = try batch(id) else { return nil }
    if change(&row.batch) { try write(row) }
    return row.batch
  }

  /// Returns the batch with all changes to its jobs so far; `nil` if it does not exist or was
  /// purged.
  mutating func batch(_ id: BatchID) throws -> BatchRow? {
    try writeBatchCounters()
    return try BatchRow.fetch(id, db).flatMap { $0.batch.isPurged ? nil : $0 }
  }

  /// Writes the changed counters of batches, one row per batch, however many jobs changed.
  mutating func writeBatchCounters() throws {
    for number in counters.batches.numbers {
      let change = counters.batches.remove(number)
      var row: BatchRow?
      do { row = try BatchRow.fetch(number: number, db) } catch StoreError.unreadable {
        // An unreadable batch is skipped, so that it does not block the rest of the transaction.
      }
      guard var row else { continue }
      try save(&row, with: change, at: row.batch.receivedAt)
    }
  }

  private mutating func save(
    _ row: inout BatchRow, with change: BatchChange?, at moment: Timestamp
  ) throws {
    if let change { row.batch.applyChange(change, at: moment) }
    try write(row)
  }

  mutating func write(_ row: BatchRow) throws {
    counters.queues.ready.stop(
      row.number,
      after: row.batch.isCancelling ? counters.queues.ready.stoppedLine(of: row.number) ?? 0 : nil,
      owner: row.batch.owner)
    try execute(
      "UPDATE batches SET stage = ?, expires_at = ?, record = ? WHERE number = ?",
      [
        BatchStage(row.batch).rawValue, row.batch.expiresAt?.milliseconds, try row.batch.record,
        row.number,
      ])
    guard let message = WebhookMessage(endOf: row.batch, wasOver: row.wasOver) else { return }
    try addMessage(message)
    counters.finishedBatchesWithWebhook += 1
  }

  /// Marks the batch as purged.
  /// - Parameter lines: set if the start of a batch was refused after this number of lines. Then
  ///   the key is deleted too, unless further lines were received.
  /// - Returns: whether the batch is purged.
  mutating func purge(batch id: BatchID, refusedAfter lines: Int?) throws -> Bool {
    let batch = try update(batch: id) { $0.purge(refusedAfter: lines) }
    guard let batch, batch.isPurged else { return false }
    try deleteMessages(of: id.data, includingUnsent: true)
    if lines != nil { try deleteKey(of: batch) }
    return true
  }

  /// Deletes a batch without jobs and its key, so that the same request creates a new batch.
  mutating func deleteUnused(_ id: BatchID, after lines: Int) throws {
    guard let row = try batch(id), row.batch.isUnused(after: lines) else { return }
    try deleteBatch(row.number, id)
    try deleteKey(of: row.batch)
  }

  /// Deletes the batch's idempotency key. Deletes nothing if the key expired before and was reused
  /// for another batch.
  private func deleteKey(of batch: Batch) throws {
    guard let key = batch.key else { return }
    try execute(
      "DELETE FROM keys WHERE owner = ? AND key = ? AND jobs = ?",
      [batch.owner.data, Data(key.utf8), IdempotencyKeys.data(of: [batch.id])])
  }

  /// Deletes a batch and its rejected lines, but not its jobs or its unsent messages. A batch can
  /// have a million rejected lines, and all other writes wait. So each transaction deletes a
  /// portion; the last portion also deletes the batch.
  /// - Returns: whether the batch was deleted completely.
  @discardableResult
  mutating func deleteBatch(_ number: Int64, _ id: BatchID) throws -> Bool {
    let most = max(1, deletableLines)
    let owner: Data = try one("SELECT owner FROM batches WHERE number = ?", [number])?[0] ?? Data()
    let rejected = try one(
      """
      SELECT ifnull(sum(\(StoreCounters.rejectedLineOverhead) + length(record)), 0) FROM
        (SELECT record FROM rejected_lines WHERE batch = ? ORDER BY line LIMIT ?)
      """, [number, most])
    counters.records.release(rejected?[0] ?? 0, of: owner)
    let lines = try execute(
      """
      DELETE FROM rejected_lines WHERE batch = ?1 AND line <= (SELECT max(line) FROM
        (SELECT line FROM rejected_lines WHERE batch = ?1 ORDER BY line LIMIT ?2))
      """, [number, most])
    deletableLines -= lines
    guard lines < most else { return false }
    deletableLines -= 1
    counters.queues.ready.stop(number, after: nil)
    _ = counters.batches.remove(number)
    for row in try all(
      "DELETE FROM batch_defaults WHERE batch = ? RETURNING length(record)", [number])
    { counters.records.release(row[0], of: owner) }
    try execute("DELETE FROM batches WHERE number = ?", [number])
    try deleteMessages(of: id.data, includingUnsent: false)
    return true
  }
}

/// Changes that a transaction made to jobs of batches and has not written to the batches yet, by
/// batch number.
struct BatchChanges: Sendable {
  private var changes: [Int64: BatchChange] = [:]

  var numbers: [Int64] { Array(changes.keys) }

  /// Records that a job's row was written or deleted; `nil` means the row did not exist before or
  /// does not exist afterwards.
  mutating func recordChange(from old: JobRow?, to new: JobRow?) {
    guard let number = (new ?? old)?.batch, number > 0 else { return }
    // A finished job stays counted in its batch, even after its row was deleted.
    if new == nil, old?.phase.isFinished == true { return }
    if let old, let new, old.phase == new.phase, old.expiresAt == new.expiresAt,
      old.image == new.image
    {
      return
    }
    changes[number, default: BatchChange()].recordChange(
      from: old.map { $0.contribution }, to: new.map { $0.contribution })
  }

  mutating func remove(_ number: Int64) -> BatchChange? { changes.removeValue(forKey: number) }
}

extension JobRow {
  /// The contribution of this job to the counts of its batch.
  fileprivate var contribution: BatchChange.Member {
    // A job that has just succeeded is decoded already.
    let bytes = phase == .success ? (try? job())?.image?.bytes ?? 0 : 0
    return BatchChange.Member(
      phase: phase, code: code.flatMap { FailureCode(rawValue: $0) }, bytes: bytes,
      finishedAt: finishedAt.map { Timestamp(milliseconds: $0) },
      expiresAt: expiresAt.map { Timestamp(milliseconds: $0) })
  }
}
