internal import Jobs
internal import Logging

/// Queries over batches and their lines.
extension Transaction {
  private static let maxQueries = 16

  func page(_ query: BatchQuery) throws -> BatchPage {
    var page = BatchPage(batches: [], hasMore: false)
    var before = query.before ?? JobID(high: .max, low: .max)
    // The state is computed from the counters, so rows are filtered here. Large pages keep the
    // number of queries small, and the limit on queries keeps a request short.
    let most = max(query.limit + 1, query.states.isEmpty ? 0 : 256)
    var looks = 0
    while true {
      looks += 1
      var unreadable = 0
      let rows = try batchRows(
        """
        b.id < $1 AND ($2::bytea IS NULL OR b.owner = $2) AND b.stage = ANY ($4) ORDER BY b.id DESC LIMIT $3
        """,
        [
          .id(before), .bytes(query.owner.map { Array($0.name.utf8) }),
          .int(Int64(most)), .ints(query.stages),
        ], unreadable: { _ in unreadable += 1 })
      let fitting = rows.map(\.batch).filter { batch in
        (query.states.isEmpty || query.states.contains(batch.state))
          && (batch.expiresAt.map { $0 > query.now } ?? true)
      }
      page.batches += fitting
      guard page.batches.count <= query.limit, rows.count + unreadable == most,
        let last = rows.last
      else { break }
      before = last.base.id
      guard looks < Self.maxQueries else {
        (page.hasMore, page.last) = (true, before)
        return page
      }
    }
    page.hasMore = page.batches.count > query.limit
    page.batches = Array(page.batches.prefix(query.limit))
    return page
  }

  private func readable(_ line: () throws -> BatchResults.Line) -> BatchResults.Line? {
    do { return try line() } catch {
      Logger(label: "store").error("skipping unreadable line", metadata: ["error": "\(error)"])
      return nil
    }
  }

  func results(_ query: ResultQuery) throws -> BatchResults? {
    guard let row = try batchRow(query.batch) else { return nil }
    var results = BatchResults(lines: [], through: min(query.through, row.base.received))
    guard results.through > query.after else { return results }
    func range() -> [SQLValue] {
      [.int(row.number), .int(Int64(query.after)), .int(Int64(results.through))]
    }
    if query.isInOrder {
      let first = try execute(
        """
        SELECT line FROM jobs WHERE batch = $1 AND line > $2 AND line <= $3 AND phase = 0
        ORDER BY line LIMIT 1
        """, range())
      if let line = first.int(0, 0) { results.through = Int(line) - 1 }
    }
    let wanted = Phase.allCases.filter(query.includes)
    let found = try execute(
      """
      SELECT j.id, j.line, \(JobRow.fullBytes) FROM jobs j
      WHERE batch = $1 AND line > $2 AND line <= $3 AND phase = ANY ($4) ORDER BY line
      """, range() + [.ints(wanted.map { Int64($0.code) })])
    var (ids, bytes): ([JobID], Int) = ([], 0)
    for row in found.all where bytes < query.maxBytes {
      guard let id = found.id(row, 0), let line = found.int(row, 1) else { continue }
      ids.append(id)
      bytes += found.int(row, 2).map { Int($0) } ?? 0
      if bytes >= query.maxBytes { results.through = Int(line) }
    }
    let jobs = try self.jobs(ids)
    // Unreadable jobs are skipped: they must not block the results of the other jobs.
    results.lines = jobs.values.compactMap { row in
      readable {
        let row = try row.get()
        return .job(try row.job(), line: Int(row.line ?? 0))
      }
    }
    if query.withRejected { try addRejected(to: &results, of: row.number, query) }
    let through = results.through
    results.lines.removeAll { $0.number > through }
    results.lines.sort { $0.number < $1.number }
    return results
  }

  private func addRejected(
    to results: inout BatchResults, of batch: Int64, _ query: ResultQuery
  ) throws {
    let rejected = try execute(
      """
      SELECT line, record FROM (
        SELECT line, record,
          sum(length(record)) OVER (ORDER BY line) - length(record) AS earlier
        FROM rejected_lines WHERE batch = $1 AND line > $2 AND line <= $3) AS rejected
      WHERE earlier < $4 ORDER BY line
      """,
      [
        .int(batch), .int(Int64(query.after)), .int(Int64(results.through)),
        .int(Int64(query.maxBytes)),
      ])
    var bytes = 0
    for row in rejected.all {
      guard let line = rejected.int(row, 0), let record = rejected.bytes(row, 1) else { continue }
      bytes += record.count
      if bytes >= query.maxBytes { results.through = Int(line) }
      let rejection = readable {
        .rejected(try StoredJSON.decode(RejectedLine.self, from: record))
      }
      if let rejection { results.lines.append(rejection) }
    }
  }
}

extension BatchQuery {
  /// The stages that match the requested states. The `running` and `finished` states share two
  /// stages, because only the counters distinguish them.
  fileprivate var stages: [Int64?] {
    let wanted = states.isEmpty ? Set(Batch.State.allCases) : states
    let stages = wanted.flatMap { state -> [BatchStage] in
      switch state {
      case .receiving: [.receiving]
      case .running, .finished: [.running, .finished]
      case .cancelled: [.cancelled, .cancelling]
      }
    }
    return Set(stages.map(\.rawValue)).sorted()
  }
}
