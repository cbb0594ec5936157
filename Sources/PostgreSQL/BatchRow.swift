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

  /// Forgets a batch, what it counts, and the lines that were rejected; not its jobs, nor what waits to be sent.
  func forget(_ number: Int64, _ id: BatchID) throws {
    for table in ["rejected_lines", "batch_tallies"] {
      try execute("DELETE FROM \(table) WHERE batch = $1", [.int(number)])
    }
    try execute("DELETE FROM batches WHERE number = $1", [.int(number)])
    try forgetMessages(of: [id], waiting: false)
  }
}
