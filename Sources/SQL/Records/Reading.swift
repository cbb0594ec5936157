package import Jobs
internal import Logging

/// Queries that only read.
extension SQLJobStore {
  /// Reads the job by its id. A job of a purged batch is not found, even before it is deleted.
  package func job(_ id: JobID) async throws(StoreError) -> Job? {
    try await read { try $0.job(id) }
  }

  /// Lists jobs by index, newest first. Skips expired and unreadable jobs.
  package func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage {
    guard query.limit > 0 else { return JobPage(jobs: [], hasMore: false) }
    return try await readUnlessCancelled { [log] in try $0.page(query, log) }
  }

  /// Searches an index of jobs with a low-data image. Skips unreadable jobs.
  package func jobsWithLowDataImages(
    after id: JobID?, count: Int
  ) async throws(StoreError) -> [Job] {
    try await read { [log] transaction in
      let found = try transaction.execute(
        "SELECT id FROM jobs WHERE low AND ($1::uuid IS NULL OR id > $1) ORDER BY id LIMIT $2",
        [.id(id), .int(Int64(count))])
      let ids = found.all.compactMap { found.id($0, 0) }
      return transaction.readable(ids, try transaction.jobs(ids), log)
    }
  }

  /// Reads the counters.
  package func counts() async throws(StoreError) -> StoreCounts {
    try await read { transaction in
      let totals = try transaction.totals(phases: Phase.allCases)
      let byPhase = Phase.allCases.map { ($0, totals[.phase($0)]) }
      var counts = StoreCounts(
        jobs: Dictionary(uniqueKeysWithValues: byPhase), images: totals[.images],
        imageBytes: totals[.imageBytes])
      counts.queue = try transaction.queueDepths()
      return counts
    }
  }
}

extension SQLJobStore: EmbeddedImages {
  /// Reads the bytes of a small image.
  package func embeddedImage(_ digest: ImageDigest) async throws(StoreError) -> [UInt8]? {
    try await read {
      try $0.execute(
        "SELECT c.bytes FROM images i JOIN contents c ON c.number = i.content WHERE i.digest = $1",
        [.bytes(digest.bytes)]
      ).bytes(0, 0)
    }
  }
}

extension Transaction {
  /// Reads the job by its id. A job of a purged batch is not found.
  package func job(_ id: JobID) throws -> Job? {
    try withoutPurgedBatches(jobs([id]))[id]?.get().job()
  }

  /// Leaves out jobs of purged batches, which are deleted one after the other.
  fileprivate func withoutPurgedBatches(
    _ rows: [JobID: Result<JobRow, StoreError>]
  ) throws -> [JobID: Result<JobRow, StoreError>] {
    let batches = Set(rows.values.compactMap { try? $0.get().batch })
    guard !batches.isEmpty else { return rows }
    let found = try execute(
      "SELECT number FROM batches WHERE number = ANY ($1) AND stage = \(BatchStage.purged.rawValue)",
      [.ints(batches.sorted())])
    let purged = Set(found.all.compactMap { found.int($0, 0) })
    guard !purged.isEmpty else { return rows }
    return rows.filter { _, row in
      (try? row.get().batch).map { !purged.contains($0) } ?? true
    }
  }

  /// The maximum number of jobs read for a page if the filter has no index.
  private static let maxRowsPerPage = 2_000

  /// Counts the jobs of each state by the state's own index.
  fileprivate func queueDepths() throws -> [QueueState: Int] {
    let states: [(QueueState, QueueRow.State)] = [
      (.ready, .ready), (.due, .due), (.parked, .parked), (.awaiting, .awaiting),
      (.loading, .loading),
    ]
    let counts = states.map { _, state in
      """
      (SELECT count(*) FROM (SELECT 1 FROM queue WHERE state = \(state.rawValue)
        LIMIT \(StoreCounts.mostCounted)) AS found)
      """
    }
    let rows = try execute("SELECT \(counts.joined(separator: ", "))")
    return Dictionary(
      uniqueKeysWithValues: states.indices.map { (states[$0].0, Int(rows.int(0, $0) ?? 0)) })
  }

  fileprivate func page(_ query: JobQuery, _ log: Logger) throws -> JobPage {
    var query = query
    var page = JobPage(jobs: [], hasMore: false)
    var (looked, bytes) = (0, 0)
    // The number of a batch's lines to search. Grows by a factor of four when too few of them
    // match.
    var (lines, allLines) = (query.limit + 1, 0)
    while true {
      let (found, last) = try listed(query, among: lines)
      var ids: [JobID] = []
      for (id, size) in found.prefix(query.limit) where bytes < query.maxBytes {
        ids.append(id)
        bytes += size
      }
      let rest = ids.count == found.count ? last : nil
      let hasMore = rest != nil || found.count > ids.count
      let isAfter =
        query.start.map { start in ids.contains { $0 < start } || rest.map { $0 < start } ?? false }
        ?? false
      if let start = query.start { ids.removeAll { $0 < start } }
      let fitting = readable(ids, try withoutPurgedBatches(jobs(ids)), log)
        .filter(query.selects)
      let room = query.limit - page.jobs.count
      page.jobs += fitting.prefix(room)
      looked += ids.count
      page.hasMore = hasMore && !isAfter || fitting.count > room
      page.last = page.jobs.count == query.limit ? page.jobs.last?.id : rest ?? ids.last
      // A client continues with `page.last`. A page without any job is of little use, but each
      // further query costs time.
      let isEnough = rest == nil && !page.jobs.isEmpty && !query.isSelective
      guard page.hasMore, !isEnough, page.jobs.count < query.limit, bytes < query.maxBytes,
        looked < Self.maxRowsPerPage, query.batch == nil || allLines + lines < JobQuery.maxLines
      else { break }
      query.before = page.last
      allLines += lines
      if rest != nil { lines = min(lines * 4, JobQuery.maxLines - allLines) }
    }
    if !page.hasMore || page.last == page.jobs.last?.id { page.last = nil }
    return page
  }

  /// Returns the jobs in the order of `ids`, without deleted and unreadable ones.
  fileprivate func readable(
    _ ids: [JobID], _ rows: [JobID: Result<JobRow, StoreError>], _ log: Logger
  ) -> [Job] {
    ids.compactMap { id in
      do { return try rows[id]?.get().job() } catch {
        log.error("skipping unreadable job", metadata: ["error": "\(error)"])
        return nil
      }
    }
  }

  /// Returns up to one job more than the page's limit, each with its record's size. `rest` is the
  /// last job that was read if further jobs were not.
  private func listed(_ query: JobQuery, among lines: Int) throws -> (
    [(id: JobID, bytes: Int)], rest: JobID?
  ) {
    let before = query.end ?? JobID(high: .max, low: .max)
    let common: [SQLValue] = [
      .id(before), .int(query.now.milliseconds), .int(Int64(query.limit + 1)),
    ]
    if let batch = query.batch {
      guard let (number, end) = try range(of: query, in: batch) else { return ([], nil) }
      return Self.merged([
        try execute(
          Self.ofBatch,
          common + [
            .int(number), .int(end), phases(query),
            .bytes(query.code.map { Array($0.rawValue.utf8) }), .int(Int64(lines)),
            .bool(query.phases.isEmpty),
          ])
      ])
    }
    if query.owner == nil, query.tag == nil, query.phases.isEmpty {
      return Self.merged([try execute(Self.everything, common)])
    }
    let owners = try query.owner.map { [$0.bytes] } ?? self.owners()
    var pages: [SQLStatement] = []
    for owner in owners.map(SQLValue.bytes) {
      if let tag = query.tag {
        pages.append(
          SQLStatement(
            Self.tagged, common + [owner, .bytes(IndexedText.bytes(of: tag)), phases(query)]))
        continue
      }
      for phase in query.phases.isEmpty ? Set(Phase.allCases) : query.phases {
        pages.append(
          phase == .loading
            ? SQLStatement(Self.loading, common + [owner])
            : SQLStatement(Self.inPhase, common + [owner, .int(Int64(phase.code))]))
      }
    }
    let (found, _) = Self.merged(try executeAll(pages))
    return (Array(found.prefix(query.limit + 1)), nil)
  }

  /// Merges pages, newest first. A row without a size is the last one that was read.
  private static func merged(_ pages: [Rows]) -> ([(id: JobID, bytes: Int)], rest: JobID?) {
    var (found, rest): ([(id: JobID, bytes: Int)], JobID?) = ([], nil)
    for rows in pages {
      for row in rows.all {
        guard let id = rows.id(row, 0) else { continue }
        if let bytes = rows.int(row, 1) { found.append((id, Int(bytes))) } else { rest = id }
      }
    }
    return (found.sorted { $0.id > $1.id }, rest)
  }

  /// All owners that have jobs. There are few, because each is a token of the configuration.
  private func owners() throws -> [[UInt8]] {
    let rows = try execute(
      """
      WITH RECURSIVE owners (owner) AS (
        SELECT * FROM (SELECT owner FROM jobs ORDER BY owner LIMIT 1) AS first
        UNION ALL SELECT (SELECT j.owner FROM jobs j WHERE j.owner > o.owner ORDER BY j.owner LIMIT 1)
          FROM owners o WHERE o.owner IS NOT NULL)
      SELECT owner FROM owners WHERE owner IS NOT NULL
      """)
    return rows.all.compactMap { rows.bytes($0, 0) }
  }

  private func phases(_ query: JobQuery) -> SQLValue {
    let phases = query.phases.isEmpty ? Set(Phase.allCases) : query.phases
    return .ints(phases.map { Int64($0.code) })
  }

  /// Returns the batch's number and the line before which the page ends; `nil` if the owner has no
  /// such batch.
  private func range(of query: JobQuery, in batch: BatchID) throws -> (number: Int64, end: Int64)? {
    let found = try execute(
      """
      SELECT number, (SELECT line FROM jobs WHERE id = $3 AND batch = number),
        (SELECT max(line) FROM jobs WHERE batch = number AND line IS NOT NULL)
      FROM batches WHERE id = $1 AND stage < 5 AND ($2::bytea IS NULL OR owner = $2)
      """, [.id(batch), .bytes(query.owner.map { Array($0.name.utf8) }), .id(query.end)])
    guard let number = found.int(0, 0), let last = found.int(0, 2) else { return nil }
    guard let end = query.end else { return (number, last + 1) }
    if let line = found.int(0, 1) { return (number, line) }
    let line = try JobQuery.line(of: end, upTo: Int(last) + 1) { low, high in
      let first = try execute(
        """
        SELECT line, id FROM jobs WHERE batch = $1 AND line >= $2 AND line < $3 ORDER BY line LIMIT 1
        """, [.int(number), .int(Int64(low)), .int(Int64(high))])
      return first.int(0, 0).flatMap { line in first.id(0, 1).map { (Int(line), $0) } }
    }
    return (number, Int64(line))
  }

  /// Selects from the last `$8` lines before a given line. `MATERIALIZED` keeps the planner's
  /// estimate of the batch's size out of the plan. The last row, without a size, is the last line
  /// that was read if there are more.
  static let ofBatch = """
    WITH last AS MATERIALIZED (
      SELECT max(line) AS line FROM jobs WHERE batch = $4 AND line < $5
    ), lines AS MATERIALIZED (
      SELECT j.id, length(j.submitted) + coalesce(length(j.record), 0) AS bytes, j.defaults,
        \(isListed) AND ($7::bytea IS NULL OR j.code = $7) AND ($9 OR \(currentPhase) = ANY ($6)) AS fits
      FROM jobs j
      WHERE j.batch = $4 AND j.line <= (SELECT line FROM last) AND j.line > (SELECT line FROM last) - $8
    )
    SELECT id, bytes FROM (
      SELECT * FROM (SELECT id, bytes + coalesce((SELECT length(d.record) FROM batch_defaults d
          WHERE d.batch = $4 AND d.digest = lines.defaults), 0) AS bytes
        FROM lines WHERE fits ORDER BY id DESC LIMIT $3) AS fitting
      UNION ALL SELECT * FROM (SELECT id, NULL::bigint FROM lines WHERE (SELECT max(line) FROM jobs
        WHERE batch = $4 AND line <= (SELECT line FROM last) - $8) IS NOT NULL
        ORDER BY id LIMIT 1) AS rest) AS found
    """

  private static let isListed = "j.id < $1 AND (j.expires_at IS NULL OR j.expires_at > $2)"

  /// The code of the phase of `jobs AS j`.
  private static let currentPhase = """
    CASE WHEN j.phase = 0 AND (SELECT q.state FROM queue q WHERE q.id = j.id) = 4 THEN 1 ELSE j.phase END
    """

  private static let everything = """
    SELECT j.id, \(JobRow.fullBytes) FROM jobs j WHERE \(isListed) ORDER BY j.id DESC LIMIT $3
    """

  /// An owner's jobs in a phase other than `loading`. The queue tells queued jobs from loading ones.
  private static let inPhase = """
    SELECT j.id, \(JobRow.fullBytes) FROM jobs j WHERE j.owner = $4 AND j.phase = $5 AND \(isListed)
      AND ($5 > 0 OR EXISTS (SELECT 1 FROM queue q WHERE q.id = j.id AND q.state <> 4))
    ORDER BY j.id DESC LIMIT $3
    """

  /// An owner's loading jobs, which are few.
  private static let loading = """
    SELECT j.id, \(JobRow.fullBytes) FROM queue q JOIN jobs j ON j.id = q.id
    WHERE q.owner = $4 AND q.state = 4 AND \(isListed) ORDER BY q.id DESC LIMIT $3
    """

  private static let tagged = """
    SELECT j.id, \(JobRow.fullBytes) FROM tags t JOIN jobs j ON j.id = t.id
    WHERE t.owner = $4 AND t.tag = $5 AND t.id < $1 AND \(isListed) AND \(currentPhase) = ANY ($6)
    ORDER BY t.id DESC LIMIT $3
    """
}
