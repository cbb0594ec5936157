internal import Jobs
internal import Records

/// A batch as the tables hold it: what was done to itself, and beside it what its jobs have come to.
struct BatchRow {
  let number: Int64
  let stage: BatchStage?
  /// Without what its jobs have come to.
  var base: Batch
  /// With it.
  var batch: Batch

  /// Whether it is not written down that all of its jobs have ended.
  var isEnding: Bool { stage != .finished && stage != .cancelled }

  /// Whether nothing of it is to be told any more.
  var isPurged: Bool { base.isPurged }
}

/// What a transaction has forgotten of batches.
struct Forgetting {
  /// Rejected lines, and batches.
  var rows = 0
  /// Whether more is left for the next one.
  var isPart = false
}

extension Transaction {
  /// The batches that a condition over `batches AS b` chooses, as they are.
  /// - Parameter unreadable: is told of one that can't be read.
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
    let tallies = try batchTallies(found.map(\.0))
    return found.map { number, stage, base in
      let counted = tallies[number] ?? (BatchChange(), 0)
      return BatchRow(
        number: number, stage: stage, base: base,
        batch: base.counting(counted.change, in: counted.revisions))
    }
  }

  /// Those that can be read: one that can't is not to stop what is done for all the others.
  func readableBatchRows(_ condition: String, _ values: [SQLValue]) throws -> [BatchRow] {
    try batchRows(condition, values, unreadable: { _ in })
  }

  /// The batch, unless it is none any more; what this transaction did to its jobs included.
  /// - Parameter isLocked: whether nobody else changes it until the transaction ends.
  func batchRow(_ id: BatchID, isLocked: Bool = false) throws -> BatchRow? {
    if isLocked { try writeBatchTallies() }
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

  /// Rejected lines that one transaction forgets, at the most.
  private static let mostForgotten = 5_000

  static let forgetLines = """
    WITH forgotten AS (
      DELETE FROM rejected_lines WHERE batch = $1 AND line <= (SELECT max(line) FROM
        (SELECT line FROM rejected_lines WHERE batch = $1 ORDER BY line LIMIT $2) l)
      RETURNING record
    )
    SELECT count(*), coalesce(sum(\(rejectedLine) + octet_length(record)), 0)::bigint,
      (SELECT owner FROM batches WHERE number = $1) FROM forgotten
    """

  /// Bytes that a rejected line counts in ``QueueCapacity/recordBytes`` in addition to its record.
  static let rejectedLine = 64

  /// Whether it may forget another batch, or a part of one; notes where not.
  func mayForget() -> Bool {
    let isEnough = forgetting.rows >= Self.mostForgotten || !hasTime
    if forgetting.rows > 0, isEnough { forgetting.isPart = true }
    return !forgetting.isPart
  }

  /// Forgets a batch, what it counts, and the lines that were rejected; not its jobs, nor what waits to be sent. There may be
  /// a million such lines: a portion of them goes, and the batch with the last one.
  /// - Returns: whether it is gone.
  @discardableResult
  func forget(_ number: Int64, _ id: BatchID) throws -> Bool {
    let most = max(1, Self.mostForgotten - forgetting.rows)
    let forgotten = try execute(Self.forgetLines, [.int(number), .int(Int64(most))])
    let (lines, owner) = (Int(forgotten.int(0, 0) ?? 0), forgotten.bytes(0, 2) ?? [])
    tallies[.stored(owner)] -= Int(forgotten.int(0, 1) ?? 0)
    forgetting.rows += lines
    guard lines < most else {
      forgetting.isPart = true
      return false
    }
    forgetting.rows += 1
    try execute("DELETE FROM batch_tallies WHERE batch = $1", [.int(number)])
    let defaults = try execute(
      "DELETE FROM batch_defaults WHERE batch = $1 RETURNING octet_length(record)", [.int(number)])
    for row in defaults.all { tallies[.stored(owner)] -= Int(defaults.int(row, 0) ?? 0) }
    try execute("DELETE FROM batches WHERE number = $1", [.int(number)])
    try forgetMessages(of: [id], waiting: false)
    return true
  }
}
