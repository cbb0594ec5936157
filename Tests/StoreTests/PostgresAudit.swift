import Jobs
import TestSupport
import Testing

@testable import PostgreSQL

extension TestDatabase {
  /// Expires the leases of all instances, as after a power failure. Leases use the server's clock,
  /// which a test can't wait for.
  func loseInstances() throws { try server.run("UPDATE instances SET lease_until = 0", in: name) }
}

/// Transactions that a test blocks.
extension TestDatabase {
  /// Blocks transactions that fire this trigger until ``unblock()`` is called.
  func block(_ trigger: String) throws {
    try server.run(
      """
      CREATE TABLE opened ();
      CREATE FUNCTION wait_until_open() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        WHILE NOT EXISTS (SELECT 1 FROM opened) LOOP PERFORM pg_sleep(0.01); END LOOP;
        RETURN NEW;
      END $$;
      CREATE \(trigger) EXECUTE FUNCTION wait_until_open()
      """, in: name)
  }

  func unblock() throws { try server.run("INSERT INTO opened DEFAULT VALUES", in: name) }

  /// An SQL condition: the thread's transaction is blocked by the trigger.
  static func isHeld(_ thread: String) -> String {
    "EXISTS (SELECT 1 FROM pg_stat_activity WHERE \(isOf(thread)) AND wait_event = 'PgSleep')"
  }

  /// An SQL condition: the thread's transaction waits for another one.
  static func waits(_ thread: String) -> String {
    "EXISTS (SELECT 1 FROM pg_stat_activity WHERE \(isOf(thread)) AND wait_event_type = 'Lock')"
  }

  private static func isOf(_ thread: String) -> String {
    "datname = current_database() AND application_name = 'imagefetch \(thread)'"
  }

  /// Waits until a condition holds. After a timeout the test continues, so that blocked transactions
  /// can end.
  func expect(_ condition: String, _ location: SourceLocation = #_sourceLocation) async {
    let holds = await poll { (try? server.run("SELECT \(condition)", in: name)) == "t\n" }
    #expect(holds, "\(condition)", sourceLocation: location)
  }
}

extension StoreUnderTest {
  /// Opens the store in a database. Long timeouts make each transaction complete its optional work,
  /// as in the other stores, even on a busy machine.
  init(
    in database: TestDatabase, _ clock: ManualClock,
    _ change: (inout PostgresJobStore.Configuration) -> Void = { _ in }
  ) throws {
    var configuration = PostgresJobStore.Configuration(url: database.url)
    configuration.now = { clock.now }
    configuration.timeout = .seconds(600)
    change(&configuration)
    self.init(try PostgresJobStore(configuration), clock)
  }
}

extension PostgresJobStore {
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
      Int(try $0.execute("SELECT sum(length(record))::bigint FROM jobs").int(0, 0) ?? 0)
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
      try Self.wrongRows.flatMap { name, statement in
        let rows = try transaction.execute(statement)
        return rows.isEmpty ? [] : ["\(name): \(rows.count)"]
      }
    }
    #expect(wrong == [], sourceLocation: location)
    let unreadable = try await read { transaction in
      let ids = try transaction.execute("SELECT id FROM jobs")
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
      (try Self.storedBytes(transaction), try transaction.totals().stored.filter { $0.value != 0 })
    }
    #expect(counted == kept, "bytes of records", sourceLocation: location)
  }

  /// Computes the bytes of each owner's records.
  private static func storedBytes(_ transaction: Transaction) throws -> [[UInt8]: Int] {
    var sums: [[UInt8]: Int] = [:]
    let ids = try transaction.execute("SELECT id FROM jobs")
    for row in try transaction.jobs(ids.all.compactMap { ids.id($0, 0) }).values {
      let row = try row.get()
      sums[row.owner, default: 0] += row.storedBytes
    }
    let others = try transaction.execute(
      """
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
    ("counts", wrongCounts), ("images' entries", wrongEntries),
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
      SELECT digest FROM images WHERE embedded AND digest NOT IN (SELECT digest FROM contents)
      UNION ALL SELECT digest FROM images JOIN contents c USING (digest)
        WHERE leaving OR NOT embedded OR images.bytes <> length(c.bytes)
      """
    ),
  ]

  private static let wrongCounts = """
    WITH counted (name, n) AS (
      SELECT 'phase ' || CASE WHEN state = 4 THEN 'loading' ELSE 'queued' END, count(*) FROM queue GROUP BY 1
      UNION ALL SELECT 'phase ' || (ARRAY['success', 'failure', 'cancelled'])[phase - 1], count(*)
        FROM jobs WHERE phase > 0 GROUP BY 1
      UNION ALL SELECT CASE WHEN batch = 0 THEN 'places ' ELSE 'lines ' END || encode(owner, 'escape'), sum(places)
        FROM queue WHERE state <> 4 GROUP BY 1
      UNION ALL SELECT 'images', count(*) FROM images WHERE NOT leaving
      UNION ALL SELECT 'image bytes', sum(bytes) FROM images WHERE NOT leaving
      UNION ALL SELECT 'image bytes of ' || encode(owner, 'escape'), sum(bytes)
        FROM images WHERE NOT leaving AND owner <> ''::bytea GROUP BY 1
      UNION ALL SELECT 'entries', count(*) FROM cache
      UNION ALL SELECT 'record bytes', sum(length(record)) FROM cache
      UNION ALL SELECT 'entry bytes', sum(bytes) FROM images WHERE cached > 0
    ), kept (name, n) AS (SELECT encode(name, 'escape'), sum(n) FROM tallies GROUP BY 1)
    SELECT * FROM counted FULL JOIN kept USING (name) WHERE coalesce(counted.n, 0) <> coalesce(kept.n, 0)
      AND name NOT LIKE 'stored %'
    """

  private static let wrongEntries = """
    SELECT digest FROM images WHERE cached <> (SELECT count(*) FROM cache WHERE cache.digest = images.digest)
    """

  private static let lostImages = """
    SELECT digest FROM images WHERE NOT leaving AND NOT (\(Transaction.isReferredTo("images.digest")))
      AND digest NOT IN (SELECT digest FROM candidates)
    """
}
