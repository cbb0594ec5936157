import Jobs
import TestSupport
import Testing

@testable import SQL

extension SQLJobStore {
  /// Returns whether a job, a cache entry or a reservation refers to the image.
  func refers(to image: ImageDigest) async throws -> Bool {
    try await read {
      try !$0.execute(
        "SELECT 1 WHERE \(Transaction.isReferredTo("$1"))", [.bytes(image.bytes)]
      ).isEmpty
    }
  }

  /// Returns the bytes of all jobs' records.
  func recordBytes() async throws -> Int {
    try await read {
      Int(
        try $0.execute(
          CountedSQLite.scans
            + "SELECT sum(length(submitted) + coalesce(length(record), 0))::bigint FROM jobs"
        ).int(
          0, 0) ?? 0)
    }
  }

  /// Returns the number of jobs that have the image.
  func jobs(having image: ImageDigest) async throws -> Int {
    try await read {
      let rows = try $0.execute(
        "SELECT count(*) FROM jobs WHERE image = $1", [.bytes(image.bytes)])
      return Int(rows.int(0, 0) ?? 0)
    }
  }

  /// Recomputes the database's counters and expects them to be correct.
  func audit(_ location: SourceLocation = #_sourceLocation) async throws {
    let wrong = try await read { transaction in
      try Self.wrongCounts(transaction)
        + Self.wrongRows.flatMap { name, statement in
          let rows = try transaction.execute(CountedSQLite.scans + statement)
          return rows.isEmpty ? [] : ["\(name): \(rows.count)"]
        }
    }
    #expect(wrong == [], sourceLocation: location)
    let unreadable = try await read { transaction in
      let ids = try transaction.execute(CountedSQLite.scans + "SELECT id FROM jobs")
      let jobs = try transaction.jobs(ids.all.compactMap { ids.id($0, 0) })
      return try jobs.values.filter { row in
        let row = try row.get()
        let job = try row.job()
        return row.queue?.origin != (job.phase.isFinished ? nil : job.origin.map { Array($0.utf8) })
          || row.queue?.request != (job.phase.isFinished ? nil : job.request?.bytes)
      }.count
    }
    #expect(unreadable == 0, sourceLocation: location)
    let (counted, kept) = try await read { transaction in
      let counted = try Self.storedBytes(transaction)
      var kept = try transaction.totals(of: Set(counted.keys)).stored
      // No other owner has any.
      if kept[Totals.others] == 0 { kept[Totals.others] = nil }
      return (counted, kept)
    }
    #expect(counted == kept, "bytes of records", sourceLocation: location)
  }

  /// Computes the bytes of each owner's records.
  private static func storedBytes(_ transaction: Transaction) throws -> [[UInt8]: Int] {
    var sums: [[UInt8]: Int] = [:]
    let ids = try transaction.execute(CountedSQLite.scans + "SELECT id FROM jobs")
    for row in try transaction.jobs(ids.all.compactMap { ids.id($0, 0) }).values {
      let row = try row.get()
      sums[row.owner, default: 0] += row.storedBytes
    }
    let others = try transaction.execute(
      """
      \(CountedSQLite.scans)
      SELECT b.owner, sum(n)::bigint FROM batches b JOIN (
        SELECT batch, 64 + length(record) AS n FROM rejected_lines
        UNION ALL SELECT batch, length(record) FROM batch_defaults) r ON r.batch = b.number
      GROUP BY b.owner
      """)
    for row in others.all {
      sums[others.bytes(row, 0) ?? [], default: 0] += Int(others.int(row, 1) ?? 0)
    }
    return sums
  }

  private static let wrongRows = [
    ("images' entries", wrongEntries),
    ("unreferenced images that are no candidates", lostImages),
    (
      "references to images that are pending deletion or gone",
      """
      SELECT image FROM jobs WHERE image IS NOT NULL AND image NOT IN (SELECT digest FROM images WHERE NOT leaving)
      UNION ALL SELECT source FROM jobs
        WHERE source IS NOT NULL AND source NOT IN (SELECT digest FROM images WHERE NOT leaving)
      UNION ALL SELECT digest FROM cache WHERE digest NOT IN (SELECT digest FROM images WHERE NOT leaving)
      UNION ALL SELECT digest FROM reservations WHERE digest NOT IN (SELECT digest FROM images WHERE NOT leaving)
      """
    ),
    (
      "queue rows without an unfinished job, and unfinished jobs without a queue row",
      """
      SELECT jobs.id FROM jobs FULL JOIN queue ON queue.id = jobs.id
      WHERE (coalesce(jobs.phase, 9) = 0) <> (queue.id IS NOT NULL)
      """
    ),
    (
      "claims of jobs that aren't loading",
      "SELECT id FROM queue WHERE (state = 4) <> (claim IS NOT NULL)"
    ),
    ("leading jobs that are not loading", "SELECT id FROM queue WHERE leads AND state <> 4"),
    (
      "several leading jobs with one request",
      "SELECT request FROM queue WHERE leads GROUP BY request HAVING count(request) > 1"
    ),
    (
      "jobs that wait for a missing load",
      """
      SELECT id FROM queue q WHERE state = 3
        AND NOT EXISTS (SELECT 1 FROM queue l WHERE l.leads AND l.request = q.request)
      """
    ),
    ("parked jobs without an origin", "SELECT id FROM queue WHERE state = 2 AND origin IS NULL"),
    ("tags without a job", "SELECT id FROM tags WHERE id NOT IN (SELECT id FROM jobs)"),
    (
      "counts without a batch",
      "SELECT batch FROM batch_tallies WHERE batch NOT IN (SELECT number FROM batches)"
    ),
    (
      "defaults without a batch",
      "SELECT batch FROM batch_defaults WHERE batch NOT IN (SELECT number FROM batches)"
    ),
    (
      "rejected lines without a batch",
      "SELECT batch FROM rejected_lines WHERE batch NOT IN (SELECT number FROM batches)"
    ),
    (
      "small images' bytes",
      """
      SELECT digest FROM images LEFT JOIN contents c ON c.number = content
        WHERE content IS NOT NULL AND (c.number IS NULL OR leaving OR images.bytes <> length(c.bytes))
      UNION ALL SELECT c.bytes FROM contents c WHERE c.number NOT IN (SELECT content FROM images WHERE content IS NOT NULL)
      """
    ),
  ]

  /// Counts the rows and compares the counters with them.
  private static func wrongCounts(_ transaction: Transaction) throws -> [String] {
    var counted: [[UInt8]: Int] = [:]
    func count(_ name: (Rows, Int) -> Counters.Name?, _ statement: String) throws {
      let rows = try transaction.execute(CountedSQLite.scans + statement)
      for row in rows.all {
        guard let name = name(rows, row) else { continue }
        for name in [name, name.sum].compactMap(\.self) {
          counted[name.bytes, default: 0] += Int(rows.int(row, 0) ?? 0)
        }
      }
    }
    try count(
      { .phase($0.bool($1, 1) ? .loading : .queued) },
      "SELECT count(*), state = 4 FROM queue GROUP BY 2")
    try count(
      { rows, row in Phase(code: Int(rows.int(row, 1) ?? 0)).map { .phase($0) } },
      "SELECT count(*), phase FROM jobs WHERE phase > 0 GROUP BY phase")
    try count(
      { $0.bool($1, 1) ? .places($0.bytes($1, 2) ?? []) : .lines($0.bytes($1, 2) ?? []) },
      """
      SELECT sum(places)::bigint, batch = 0, owner FROM queue WHERE state <> 4 GROUP BY 2, 3
      """)
    try count({ _, _ in .images }, "SELECT count(*) FROM images WHERE NOT leaving")
    try count(
      { _, _ in .imageBytes }, "SELECT sum(bytes)::bigint FROM images WHERE NOT leaving")
    try count(
      { rows, row in rows.bytes(row, 1).flatMap { $0.isEmpty ? nil : .imageBytesOf($0) } },
      "SELECT sum(bytes)::bigint, owner FROM images WHERE NOT leaving GROUP BY owner")
    try count({ _, _ in .entries }, "SELECT count(*) FROM cache")
    try count({ _, _ in .recordBytes }, "SELECT sum(length(record))::bigint FROM cache")
    try count({ _, _ in .entryBytes }, "SELECT sum(bytes)::bigint FROM images WHERE cached > 0")
    let kept = try transaction.execute("SELECT name, sum(n)::bigint FROM tallies GROUP BY name")
    for row in kept.all {
      guard let name = kept.bytes(row, 0), !name.starts(with: Counters.Name.storedPrefix),
        name != Counters.Name.allStored.bytes
      else { continue }
      counted[name, default: 0] -= Int(kept.int(row, 1) ?? 0)
    }
    return counted.filter { $0.value != 0 }.map {
      "\(String(decoding: $0.key, as: UTF8.self)): \($0.value)"
    }
  }

  private static let wrongEntries = """
    SELECT digest FROM images WHERE cached <> (SELECT count(*) FROM cache WHERE cache.digest = images.digest)
    """

  private static let lostImages = """
    SELECT digest FROM images WHERE NOT leaving AND NOT (\(Transaction.isReferredTo("images.digest")))
      AND digest NOT IN (SELECT digest FROM candidates)
    """
}
