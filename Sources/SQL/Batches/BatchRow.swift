internal import Jobs
internal import Synchronization

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
      do { return (number, stage, try StoredJSON.decode(Batch.self, from: record)) } catch {
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
        .int(expiresAt?.milliseconds), .bytes(try StoredJSON.encode(row.base)),
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

/// The changes that one transaction makes to the jobs of batches, by batch number.
struct BatchChanges {
  private(set) var changes: [Int64: BatchChange] = [:]

  /// Records that a job's row was written or deleted; `nil` means the row did not exist before or
  /// does not exist afterwards.
  mutating func recordChange(from old: JobRow?, to new: JobRow?) {
    guard let batch = (new ?? old)?.batch else { return }
    // A finished job stays counted in its batch, even after its row was deleted.
    if new == nil, old?.phase.isFinished == true { return }
    if let old, let new, old.phase == new.phase, old.expiresAt == new.expiresAt,
      old.image == new.image
    {
      return
    }
    changes[batch, default: BatchChange()].recordChange(
      from: old?.contribution, to: new?.contribution)
  }

  /// Records that an unfinished job moves to another phase.
  /// - Parameter batch: the number of its batch; `nil` if the job belongs to none.
  mutating func recordPhaseChange(in batch: Int64?, from old: Phase, to new: Phase) {
    guard let batch else { return }
    func member(_ phase: Phase) -> BatchChange.Member {
      BatchChange.Member(phase: phase, code: nil, bytes: 0, finishedAt: nil, expiresAt: nil)
    }
    changes[batch, default: BatchChange()].recordChange(from: member(old), to: member(new))
  }

  /// Records that a job of a batch succeeds or fails, because the batch was not stopped when the
  /// job was read.
  mutating func recordResult(in batch: Int64) { withResults.insert(batch) }

  /// Discards the changes of a batch that was deleted.
  mutating func discard(_ batch: Int64) { changes[batch] = nil }

  mutating func removeAll() -> [Int64: BatchChange] {
    defer { changes = [:] }
    touched.formUnion(changes.filter { $0.value.mayEndBatch }.keys)
    return changes
  }

  /// Batches with jobs that succeed or fail in this transaction.
  private(set) var withResults: Set<Int64> = []

  /// Batches with finished or deleted jobs, among the changes already written.
  private(set) var touched: Set<Int64> = []
}

/// The numbers of batches whose last job may have finished in this process and that were not
/// checked since.
final class PossiblyFinishedBatches: Sendable {
  private let numbers = Mutex<Set<Int64>>([])

  func insert(_ more: Set<Int64>) {
    if !more.isEmpty { numbers.withLock { $0.formUnion(more) } }
  }

  func removeAll() -> Set<Int64> {
    numbers.withLock { numbers in
      defer { numbers = [] }
      return numbers
    }
  }
}

extension BatchChange {
  fileprivate var mayEndBatch: Bool {
    ended > 0 || jobs[Phase.queued.code] + jobs[Phase.loading.code] < 0
  }
}

extension JobRow {
  /// The contribution of this job to the counts of its batch.
  fileprivate var contribution: BatchChange.Member {
    let bytes = phase == .success ? (try? job())?.image?.bytes ?? 0 : 0
    return BatchChange.Member(
      phase: phase,
      code: code.flatMap { FailureCode(rawValue: String(decoding: $0, as: UTF8.self)) },
      bytes: bytes, finishedAt: finishedAt.map { Timestamp(milliseconds: $0) },
      expiresAt: expiresAt.map { Timestamp(milliseconds: $0) })
  }
}

/// The names of a batch's counters.
enum BatchCounter {
  static let bytes = "bytes"
  static let revisions = "revisions"
  static let lastEnd = "last end"
  static let lastExpiry = "last expiry"
  static func phase(_ phase: Phase) -> String { "phase \(phase.rawValue)" }
  static func code(_ code: FailureCode) -> String { "code \(code.rawValue)" }
}

extension BatchChange {
  /// The amount to add to each counter. For `last end` and `last expiry`: the value that the
  /// counter is raised to at least.
  fileprivate var counterChanges: [(name: String, n: Int64)] {
    var tallies = Phase.allCases.map { (BatchCounter.phase($0), Int64(jobs[$0.code])) }
    tallies += codes.map { (BatchCounter.code($0.key), Int64($0.value)) }
    tallies.append((BatchCounter.bytes, Int64(bytes)))
    tallies.append((BatchCounter.revisions, 1))
    if let lastEnd { tallies.append((BatchCounter.lastEnd, lastEnd.milliseconds)) }
    if let lastExpiry { tallies.append((BatchCounter.lastExpiry, lastExpiry.milliseconds)) }
    return tallies.filter { $0.1 != 0 }
  }
}

extension Transaction {
  /// Writes the changed counters of batches, one row per counter, however many jobs changed.
  func writeBatchCounters() throws {
    let all = batches.removeAll()
    let begun = all.filter { $0.value.requeued > 0 }.keys.sorted()
    // The lock orders this transaction with one that marks the batch as finished. If that one was
    // first, the batch is marked as running, so that it is checked again.
    let rows =
      try begun.isEmpty
      ? []
      : readableBatchRows(
        "b.number = ANY ($1) AND b.stage IN (1, 2, 3) ORDER BY b.number FOR UPDATE", [.ints(begun)])
    for var row in rows {
      row.base.resume()
      try write(row, stage: .running)
    }
    let changes = all.flatMap { batch, change in
      change.counterChanges.map { (batch: batch, name: Array($0.name.utf8), n: $0.n) }
    }.sorted { a, b in
      a.batch == b.batch ? a.name.lexicographicallyPrecedes(b.name) : a.batch < b.batch
    }
    guard !changes.isEmpty else { return }
    try add(
      """
      INSERT INTO batch_tallies AS t (batch, name, slot, n)
      SELECT batch, name, \(slot), n FROM unnest($1, $2, $3) AS x (batch, name, n) WHERE true
      ON CONFLICT (batch, name, slot) DO UPDATE
        SET n = CASE WHEN t.name = ANY ($4) THEN greatest(t.n, excluded.n) ELSE t.n + excluded.n END
      """,
      [
        .ints(changes.map(\.batch)), .byteStrings(changes.map(\.name)), .ints(changes.map(\.n)),
        .byteStrings([BatchCounter.lastEnd, BatchCounter.lastExpiry].map { Array($0.utf8) }),
      ])
  }

  /// Checks that the batches of jobs that succeed or fail are still not cancelled, and lets none be
  /// cancelled before the commit. Otherwise the transaction is repeated, and finds them cancelled.
  ///
  /// Must be last in a transaction: one that waits for this lock may hold any other one.
  func checkBatchesOfResults() throws {
    guard !batches.withResults.isEmpty else { return }
    try lock(.checkResults(batches.withResults.sorted()))
  }

  /// Waits for the transactions that passed ``checkBatchesOfResults()`` and lets no other one pass it
  /// before the commit.
  func awaitResults(of batch: Int64) throws {
    try lock(.results(batch))
  }

  /// The current counters of batches, and the number of changes that they sum up.
  func batchCounters(_ numbers: [Int64]) throws -> [Int64: (change: BatchChange, revisions: Int)] {
    guard !numbers.isEmpty else { return [:] }
    let rows = try execute(
      """
      SELECT batch, name, sum(n)::bigint, max(n) FROM batch_tallies WHERE batch = ANY ($1)
      GROUP BY batch, name
      """, [.ints(numbers)])
    var sums: [Int64: [String: Int]] = [:]
    for row in rows.all {
      guard let batch = rows.int(row, 0), let bytes = rows.bytes(row, 1) else { continue }
      let name = String(decoding: bytes, as: UTF8.self)
      let isLast = [BatchCounter.lastEnd, BatchCounter.lastExpiry].contains(name)
      sums[batch, default: [:]][name] = Int(rows.int(row, isLast ? 3 : 2) ?? 0)
    }
    return sums.mapValues { sums in
      func moment(_ name: String) -> Timestamp? {
        sums[name].map { Timestamp(milliseconds: Int64($0)) }
      }
      var codes: [FailureCode: Int] = [:]
      for code in FailureCode.allCases { codes[code] = sums[BatchCounter.code(code)] }
      var jobs: [Phase: Int] = [:]
      for phase in Phase.allCases { jobs[phase] = sums[BatchCounter.phase(phase)] }
      let change = BatchChange(
        jobs: jobs, codes: codes, bytes: sums[BatchCounter.bytes] ?? 0,
        lastEnd: moment(BatchCounter.lastEnd), lastExpiry: moment(BatchCounter.lastExpiry))
      return (change, sums[BatchCounter.revisions] ?? 0)
    }
  }
}
