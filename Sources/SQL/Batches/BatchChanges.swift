internal import Jobs
internal import Synchronization

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

  /// Sets the initial counts of a new batch.
  mutating func setInitial(_ batch: Int64, _ change: BatchChange) { changes[batch] = change }

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
