internal import Jobs
internal import Records

/// A batch as stored: the record of the batch itself, and separately the counts of its jobs.
struct BatchRow {
  let number: Int64
  let stage: BatchStage?
  /// The batch without the counts of its jobs.
  var base: Batch
  /// The batch with the counts of its jobs.
  var batch: Batch

  /// Whether the batch is not yet marked as finished.
  var isNotMarkedFinished: Bool { stage != .finished && stage != .cancelled }

  /// Whether the batch was purged, so that clients no longer see it.
  var isPurged: Bool { base.isPurged }
}

/// The batches and rejected lines that a transaction has deleted.
struct BatchDeletions {
  /// The number of deleted rejected lines and batches.
  var rows = 0
  /// Whether a batch was deleted only in part; the next transaction continues.
  var isPart = false
}

extension Transaction {
  /// Returns the batches that match a condition over `batches AS b`.
  /// - Parameter unreadable: called for each batch whose record can't be decoded.
  func batchRows(
    _ condition: String, _ values: [SQLValue],
    unreadable: (StoreError) throws -> Void = { throw $0 }
  ) throws -> [BatchRow] {
    let rows = try execute(
      "SELECT b.number, b.record, b.stage FROM batches b WHERE \(condition)", values)
    let found = try rows.all.compactMap { row -> (Int64, BatchStage?, Batch)? in
      guard let number = rows.int(row, 0), let record = rows.bytes(row, 1) else { return nil }
      let stage = rows.int(row, 2).flatMap(BatchStage.init(rawValue:))
      do { return (number, stage, try RecordDecoder.decode(Batch.self, from: record)) } catch {
        try unreadable(
          .unreadable(detail: "the batch of row \(number) can't be read: \(error)"))
        return nil
      }
    }
    let tallies = try batchCounters(found.map(\.0))
    return found.map { number, stage, base in
      let counted = tallies[number] ?? (BatchChange(), 0)
      return BatchRow(
        number: number, stage: stage, base: base,
        batch: base.applyingChange(counted.change, revisions: counted.revisions))
    }
  }

  /// Returns the matching batches and skips unreadable ones, so that they do not block the others.
  func readableBatchRows(_ condition: String, _ values: [SQLValue]) throws -> [BatchRow] {
    try batchRows(condition, values, unreadable: { _ in })
  }

  /// Returns the batch with the changes that this transaction made to its jobs; `nil` if it does
  /// not exist or was purged.
  /// - Parameter isLocked: whether to lock the row against other transactions until this one ends.
  func batchRow(_ id: BatchID, isLocked: Bool = false) throws -> BatchRow? {
    if isLocked { try writeBatchCounters() }
    let row = try batchRows("b.id = $1 \(isLocked ? "FOR UPDATE" : "")", [.id(id)]).first
    return row.flatMap { $0.isPurged ? nil : $0 }
  }

  func write(_ row: BatchRow, stage: BatchStage? = nil, expiresAt: Timestamp? = nil) throws {
    try add(
      "UPDATE batches SET stage = $2, expires_at = $3, record = $4 WHERE number = $1",
      [
        .int(row.number), .int((stage ?? BatchStage(row.base)).rawValue),
        .int(expiresAt?.milliseconds), .bytes(try RecordEncoder.encode(row.base)),
      ])
  }

  /// The maximum number of rejected lines that one transaction deletes.
  private static let maxDeletedLines = 5_000

  static let deleteRejectedLines = """
    DELETE FROM rejected_lines WHERE batch = $1 AND line <= (SELECT max(line) FROM
      (SELECT line FROM rejected_lines WHERE batch = $1 ORDER BY line LIMIT $2) AS l)
    RETURNING length(record)
    """

  /// The bytes that a rejected line counts in ``QueueCapacity/recordBytes`` in addition to its
  /// record.
  static let rejectedLineOverhead = 64

  /// Returns whether this transaction may delete another batch or a part of one. If not, sets
  /// `forgetting.isPart`.
  func mayDeleteBatch() -> Bool {
    let isEnough = forgetting.rows >= Self.maxDeletedLines || !hasTime
    if forgetting.rows > 0, isEnough { forgetting.isPart = true }
    return !forgetting.isPart
  }

  /// Deletes a batch, its counters and its rejected lines, but not its jobs or its unsent messages.
  /// A batch can have a million rejected lines, so each transaction deletes a portion; the last
  /// portion also deletes the batch.
  /// - Returns: whether the batch was deleted completely.
  @discardableResult
  func deleteBatch(_ number: Int64, _ id: BatchID) throws -> Bool {
    let most = max(1, Self.maxDeletedLines - forgetting.rows)
    let deleted = try executeAll([
      SQLStatement("SELECT owner FROM batches WHERE number = $1", [.int(number)]),
      SQLStatement(Self.deleteRejectedLines, [.int(number), .int(Int64(most))]),
    ])
    let (owner, lines) = (deleted[0].bytes(0, 0) ?? [], deleted[1])
    tallies[.stored(owner)] -= lines.all.reduce(0) {
      $0 + Self.rejectedLineOverhead + Int(lines.int($1, 0) ?? 0)
    }
    forgetting.rows += lines.count
    guard lines.count < most else {
      forgetting.isPart = true
      return false
    }
    forgetting.rows += 1
    try execute("DELETE FROM batch_tallies WHERE batch = $1", [.int(number)])
    let defaults = try execute(
      "DELETE FROM batch_defaults WHERE batch = $1 RETURNING length(record)", [.int(number)])
    for row in defaults.all { tallies[.stored(owner)] -= Int(defaults.int(row, 0) ?? 0) }
    try execute("DELETE FROM batches WHERE number = $1", [.int(number)])
    try deleteMessages(of: [id], includingUnsent: false)
    return true
  }
}
