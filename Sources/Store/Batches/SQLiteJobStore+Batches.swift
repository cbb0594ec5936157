internal import Foundation
internal import GRDB
package import Jobs
internal import Logging
internal import Records
internal import Synchronization

/// Batches in SQLite. Each batch has one row, whose counters are updated by the transactions that
/// change its jobs.
extension SQLiteJobStore: BatchStore {
  /// Searches the idempotency key in the same transaction.
  package func open(
    _ batch: Batch, key: IdempotencyKey?, atMost limit: Int
  ) async throws(StoreError) -> BatchOpening {
    switch try await writer.perform(isAdding: true, { try $0.open(batch, key: key, atMost: limit) })
    {
    case .opened: .opened
    case .tooMany: .tooMany
    case .known(.reused): .keyReused
    // The fingerprint of the request says that it was for a batch, so there is exactly one id.
    case .known(.repeated(let ids)): .repeated(ids[0])
    }
  }

  /// Encodes the jobs on a reading thread, then uses one commit.
  package func add(
    _ lines: BatchLines, to id: BatchID, capacity: QueueCapacity
  ) async throws(StoreError) -> BatchAddition {
    let rows = try await compute(for: lines.jobs.count) {
      try lines.jobs.map { try JobRow($0, record: JobRecord.data(of: $0)) }
    }
    return try await writer.perform(isAdding: true) { [now] in
      try $0.add(lines, rows, to: id, capacity: capacity, at: now())
    }
  }

  /// Closes the batch. A batch without unfinished jobs finishes at once.
  package func close(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await writer.perform { [now] in try $0.update(batch: id) { $0.close(at: now()) } }
  }

  /// Does nothing if the batch has jobs or received further lines.
  package func deleteUnused(_ id: BatchID, after lines: Int) async throws(StoreError) {
    try await writer.perform { try $0.deleteUnused(id, after: lines) }
  }

  /// Marks the batch; ``endStoppedJobs(_:keptFor:deleting:)`` cancels its jobs.
  package func cancel(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await writer.perform { [now] in try $0.update(batch: id) { $0.cancel(at: now()) } }
  }

  /// Marks the batch; ``endStoppedJobs(_:keptFor:deleting:)`` deletes its jobs.
  package func purge(_ id: BatchID, refusedAfter lines: Int?) async throws(StoreError) -> Bool {
    try await writer.perform { try $0.purge(batch: id, refusedAfter: lines) }
  }

  /// Does not use the disk if there are no such batches.
  package func endStoppedJobs(
    _ count: Int, keptFor retention: Duration,
    deleting cached: @escaping @Sendable (Job) -> CachedImage?
  ) async throws(StoreError) -> StoppedBatchJobs {
    guard writer.hasStoppedBatches else { return StoppedBatchJobs() }
    return try await writer.perform { [now] in
      try $0.endStoppedJobs(count, at: now(), keptFor: retention, deleting: cached)
    }
  }

  /// Checks on a reading thread first whether there is anything to do.
  package func closeAndExpireBatches(idleFor idle: Duration, _ count: Int) async throws(StoreError)
    -> Int
  {
    let moment = now()
    let isAny = try await read { db in
      let look = try db.cachedStatement(
        sql: """
          SELECT 1 FROM batches WHERE stage = 0 OR \(WriteTransaction.expiredBatches) LIMIT 1
          """)
      return try Int.fetchOne(look, arguments: [moment.milliseconds]) != nil
    }
    guard isAny else { return 0 }
    return try await writer.perform {
      try $0.closeAndExpireBatches(idleSince: moment + (.zero - idle), at: moment, count: count)
    }
  }

  /// Writes nothing: the transaction that finishes a batch's last job finishes the batch too.
  /// Returns whether batches with a webhook have finished since the last call.
  package func finishBatches() async throws(StoreError) -> Bool {
    let told = writer.finishedBatchesWithWebhook
    return knownFinishedBatches.exchange(told, ordering: .relaxed) != told
  }

  /// Uses the index of failed batch jobs.
  package func retry(
    _ query: RetryQuery, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws(StoreError) -> BatchRetry? {
    try await writer.perform { [now] in try $0.retry(query, at: now(), change) }
  }

  /// Reads one row on a reading thread.
  package func batch(_ id: BatchID) async throws(StoreError) -> Batch? {
    try await read { try BatchRow.fetch(id, $0)?.batch.kept }
  }

  /// Uses the index of each owner's batches.
  package func batches(_ query: BatchQuery) async throws(StoreError) -> BatchPage {
    try await readUnlessCancelled { try BatchListing(query: query).page($0) }
  }

  /// Uses the index of the batch's lines, and reads only the requested range.
  package func results(_ query: ResultQuery) async throws(StoreError) -> BatchResults? {
    try await readUnlessCancelled { try BatchResultsQuery(query: query).results($0) }
  }
}

extension Batch {
  /// `nil` if the batch was purged.
  fileprivate var kept: Batch? { isPurged ? nil : self }
}

/// Lists batches, newest first.
struct BatchListing {
  let query: BatchQuery
  /// The maximum number of batches to read for one page. The page is short if too few of them match
  /// the filter.
  var maxRowsPerPage = 4_096

  /// `+` excludes the index of stages, because its results would have to be sorted.
  static func condition(isOfOwner: Bool, stages: String) -> String {
    """
    \(isOfOwner ? "owner = ? AND" : "") id < ? AND id >= ? AND +stage IN (\(stages))
      AND (expires_at IS NULL OR expires_at > ?) ORDER BY id DESC LIMIT ?
    """
  }

  func page(_ db: Database) throws -> BatchPage {
    guard query.limit > 0 else { return BatchPage(batches: [], hasMore: false) }
    let stages = Set((query.states.isEmpty ? Set(Batch.State.allCases) : query.states).map(stages))
    let wanted = stages.reduce(into: Set<Int64>()) { $0.formUnion($1) }.sorted()
      .map(String.init).joined(separator: ", ")
    var found: [Batch] = []
    // 17 bytes of 0xFF are greater than every id.
    var before = query.before?.data ?? Data(repeating: 0xFF, count: 17)
    var owner: [(any DatabaseValueConvertible)?] = []
    if let name = query.owner { owner.append(name.data) }
    let look = try db.cachedStatement(
      sql: """
        SELECT id FROM batches WHERE \(owner.isEmpty ? "" : "owner = ? AND") id < ?
        ORDER BY id DESC LIMIT 1 OFFSET ?
        """)
    let last = try Data.fetchOne(
      look, arguments: StatementArguments(owner + [before, maxRowsPerPage - 1]))
    let end = last ?? Data()
    // More than one round is needed only if a batch is unreadable: it must not end the listing.
    while true {
      var unreadable = 0
      let rows = try BatchRow.fetchAll(
        Self.condition(isOfOwner: !owner.isEmpty, stages: wanted),
        StatementArguments(
          owner + [before, end, query.now.milliseconds, query.limit + 1]), db,
        unreadable: { _ in unreadable += 1 })
      found += rows.map(\.batch)
      guard found.count <= query.limit, rows.count + unreadable > query.limit, let row = rows.last
      else { break }
      before = row.batch.id.data
    }
    var page = BatchPage(
      batches: Array(found.prefix(query.limit)), hasMore: found.count > query.limit)
    // The client continues after the last batch that was read.
    if !page.hasMore, let last = last.flatMap({ JobID(data: $0) }) {
      (page.hasMore, page.last) = (true, last)
    }
    return page
  }

  private func stages(_ state: Batch.State) -> [Int64] {
    let stage = BatchStage(state).rawValue
    return state == .cancelled ? [stage, BatchStage.cancelling.rawValue] : [stage]
  }
}

/// Reads the lines of a batch, in order.
struct BatchResultsQuery {
  let query: ResultQuery

  func results(_ db: Database) throws -> BatchResults? {
    guard let row = try BatchRow.fetch(query.batch, db), !row.batch.isPurged else { return nil }
    var results = BatchResults(lines: [], through: min(query.through, row.batch.received))
    guard results.through > query.after else { return results }
    if query.isInOrder {
      let first = try Int.fetchOne(
        db.cachedStatement(
          sql: """
            SELECT min(line) FROM jobs WHERE batch = ? AND line > ? AND line <= ? AND phase < 2
            """), arguments: [row.number, query.after, results.through])
      if let first { results.through = first - 1 }
    }
    let phases = Phase.allCases.filter(query.includes).map { "\($0.code)" }.joined(separator: ", ")
    var jobs: [JobRow] = []
    if !phases.isEmpty {
      jobs = try JobRow.fetchAll(
        "batch = ? AND line > ? AND line <= ? AND +phase IN (\(phases)) ORDER BY line",
        [row.number, query.after, results.through], db, maxBytes: query.maxBytes)
    }
    if let last = jobs.last?.line, jobs.reduce(0, { $0 + $1.fullBytes }) >= query.maxBytes {
      results.through = last
    }
    if query.withRejected { try addRejected(to: &results, of: row.number, db) }
    // Unreadable jobs are skipped: they must not block the results of the other jobs.
    for job in jobs {
      guard let line = job.line, line <= results.through else { break }
      if let job = readable({ .job(try job.job(), line: line) }) { results.lines.append(job) }
    }
    results.lines.sort { $0.number < $1.number }
    return results
  }

  private func addRejected(
    to results: inout BatchResults, of batch: Int64, _ db: Database
  ) throws {
    let statement = try db.cachedStatement(
      sql: """
        SELECT line, record FROM rejected_lines WHERE batch = ? AND line > ? AND line <= ?
        ORDER BY line
        """)
    let rows = try Row.fetchCursor(
      statement, arguments: [batch, query.after, results.through])
    var bytes = 0
    while bytes < query.maxBytes, let row = try rows.next() {
      let record: Data = row[1]
      bytes += record.count
      if bytes >= query.maxBytes { results.through = row[0] }
      let line = readable {
        .rejected(try RecordDecoder.decode(RejectedLine.self, from: Array(record)))
      }
      if let line { results.lines.append(line) }
    }
  }

  private func readable(_ line: () throws -> BatchResults.Line) -> BatchResults.Line? {
    do { return try line() } catch {
      Logger(label: "store").error("skipping unreadable line", metadata: ["error": "\(error)"])
      return nil
    }
  }
}
