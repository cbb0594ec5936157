import GRDB
import GRDBSQLite
import Jobs
import Testing

@testable import Store

extension SQLiteJobStore {
  /// Runs a body on the writing connection, between transactions.
  func onWriter<Value>(_ body: (Database) throws -> Value) throws -> Value {
    try database.writeWithoutTransaction(body)
  }

  /// The work of the database engine since it was opened: steps of its virtual machine, and changed
  /// rows.
  func work() async throws -> (steps: Int, changes: Int) {
    try await writer.perform { ($0.db.steps, $0.db.totalChangesCount) }
  }

  /// Returns whether a job, a cache entry or a reservation refers to the image.
  func refers(to image: ImageDigest) async throws -> Bool {
    try await read { db in
      try Bool.fetchOne(
        db, sql: "SELECT 1 FROM images WHERE digest = ? AND hard + soft > 0",
        arguments: [image.data]) != nil
    }
  }

  /// Returns the number of jobs that have the image.
  func jobs(having image: ImageDigest) async throws -> Int {
    try await read { db in
      try Int.fetchOne(
        db, sql: "SELECT count(*) FROM jobs WHERE image = ?", arguments: [image.data]) ?? 0
    }
  }

  /// Recomputes the store's counters and expects them to be correct.
  func audit(_ location: SourceLocation = #_sourceLocation) throws {
    let counts = writer.counts
    try database.read { db in
      for phase in Phase.allCases {
        let count = try Int.fetchOne(
          db, sql: "SELECT count(*) FROM jobs WHERE phase = ?", arguments: [phase.code])
        #expect(counts.jobs[phase] == count, "\(phase)", sourceLocation: location)
      }
      let sums = try Row.fetchOne(
        db, sql: "SELECT count(*), ifnull(sum(bytes), 0) FROM images WHERE leaving = 0")
      #expect(sums?[0] == counts.images, sourceLocation: location)
      #expect(sums?[1] == counts.imageBytes, sourceLocation: location)
      let entries = try Int.fetchOne(db, sql: "SELECT count(*) FROM cache")
      #expect(entries == writer.cacheCounts.entries, sourceLocation: location)
      let cached = try Int.fetchOne(
        db, sql: "SELECT ifnull(sum(bytes), 0) FROM (SELECT DISTINCT digest, bytes FROM cache)")
      #expect(cached == writer.cacheCounts.bytes, sourceLocation: location)
      try auditRows(db, location)
      for (name, sql) in Self.wrongRows {
        #expect(try Row.fetchAll(db, sql: sql).isEmpty, "\(name)", sourceLocation: location)
      }
    }
  }

  /// Expects the queue state in memory to match the database.
  func auditWaiting(_ location: SourceLocation = #_sourceLocation) async throws {
    let wrong = try await writer.perform { transaction in
      var wrong: [String] = []
      let counted = try StoreCounters(counting: transaction.db)
      for held in transaction.held.rows.values {
        let row = try JobRow.fetch(held.id, transaction.db)
        if try row?.hasSameColumns(as: held) != true || row?.record != held.record
          || row?.number != held.number || row?.job() != held.job()
        {
          wrong.append("the cached row of job \(held.number)")
        }
      }
      if counted.cacheRecordBytes != transaction.counters.cacheRecordBytes {
        wrong.append("the bytes of cache records")
      }
      var next = NextDue()
      if try next.moment(transaction.db) != transaction.counters.nextDue.moment(transaction.db) {
        wrong.append("the next due time")
      }
      let deferred = counted.queues.deferred
      for origin in Set(deferred.origins).union(transaction.counters.queues.deferred.origins) {
        func places(_ jobs: DeferredJobs) -> Set<QueuePosition> {
          Set(jobs.positions(of: origin, ownedBy: { _ in true }, last: false) { _ in true })
        }
        for place in places(deferred).union(places(transaction.counters.queues.deferred)) {
          try transaction.counters.queues.deferred.readFirst(origin, place, transaction.db)
          let known = transaction.counters.queues.deferred.first(of: origin, at: place)
          if deferred.first(of: origin, at: place) != known {
            wrong.append("\(origin) at \(place)")
          }
        }
      }
      if !counted.queues.ready.hasSameReadyJobs(as: transaction.counters.queues.ready) {
        wrong.append("the ready jobs")
      }
      wrong += Self.imageOwners(counted, transaction.counters)
      if counted.lines.held != transaction.counters.lines.held {
        wrong.append("the slots of batch lines")
      }
      let stored = transaction.counters.records
      if try counted.records.held != stored.held
        || !JobListing.owners(transaction.db).allSatisfy({
          counted.records.share(of: $0) == stored.share(of: $0)
        })
      {
        wrong.append("the bytes of records: \(stored.held), not \(counted.records.held)")
      }
      let places = try StoreCounters(counting: transaction.db).queue
      let queue = transaction.counters.queue
      let owners = try JobListing.owners(transaction.db)
      if queue.held != places.held
        || !owners.allSatisfy({ queue.share(of: $0) == places.share(of: $0) })
      {
        wrong.append("the slots of the queue: \(queue.held), not \(places.held)")
      }
      return wrong
    }
    #expect(wrong == [], sourceLocation: location)
  }

  private static func imageOwners(_ counted: StoreCounters, _ known: StoreCounters) -> [String] {
    counted.imageOwners == known.imageOwners ? [] : ["the bytes of owners' images"]
  }

  /// Expects the columns of each job to match its record.
  private func auditRows(_ db: Database, _ location: SourceLocation) throws {
    for row in try JobRow.fetchAll("TRUE", [], db) {
      let job = try row.job()
      let isFinished = job.phase.isFinished
      #expect(row.origin == (isFinished ? nil : job.origin), sourceLocation: location)
      #expect(row.request == (isFinished ? nil : job.request?.data), sourceLocation: location)
      #expect(row.low == (job.hasLowDataImage ? 1 : nil), sourceLocation: location)
    }
  }

  private static let wrongRows = [
    "images' references": wrongReferences,
    "small images' bytes": wrongContents,
    "tags": wrongTags,
    "claims of jobs that aren't loading":
      "SELECT id FROM jobs WHERE (phase = 1) <> (claim IS NOT NULL)",
    "keys with no job ids, or incomplete ones":
      "SELECT number FROM keys WHERE length(jobs) = 0 OR length(jobs) % 16 <> 0",
    "defaults without a batch":
      "SELECT batch FROM batch_defaults WHERE batch NOT IN (SELECT number FROM batches)",
    "rejected lines without a batch":
      "SELECT batch FROM rejected_lines WHERE batch NOT IN (SELECT number FROM batches)",
    "parked jobs without an origin":
      "SELECT id FROM jobs WHERE phase = 0 AND waiting = 2 AND origin IS NULL",
    "origins or requests of finished jobs":
      "SELECT id FROM jobs WHERE phase > 1 AND (origin IS NOT NULL OR request IS NOT NULL)",
  ]

  /// Images with counts that differ from the number of rows that refer to them.
  private static let wrongReferences = """
    WITH refs (digest, hard, finished_at) AS (
      SELECT image, phase < 2, finished_at FROM jobs WHERE image IS NOT NULL
      UNION ALL SELECT source, phase < 2, finished_at FROM jobs WHERE source IS NOT NULL
      UNION ALL SELECT digest, 1, NULL FROM reservations
      UNION ALL SELECT digest, 0, stored FROM cache
    ), sums AS (
      SELECT digest, sum(hard) AS hard, sum(1 - hard) AS soft, min(finished_at) AS finished_at
      FROM refs GROUP BY digest
    )
    SELECT images.digest FROM images LEFT JOIN sums USING (digest)
    WHERE images.hard <> ifnull(sums.hard, 0) OR images.soft <> ifnull(sums.soft, 0)
      OR images.finished_at IS NOT sums.finished_at
      OR (images.leaving AND images.hard + images.soft > 0)
    UNION ALL SELECT digest FROM sums WHERE digest NOT IN (SELECT digest FROM images)
    """

  /// Small images without bytes, and bytes without an image.
  private static let wrongContents = """
    SELECT digest FROM images WHERE embedded AND embedded NOT IN (SELECT number FROM contents)
    UNION ALL SELECT CAST(number AS BLOB) FROM contents
      WHERE number NOT IN (SELECT embedded FROM images WHERE NOT leaving)
    UNION ALL SELECT digest FROM images JOIN contents ON number = embedded
      WHERE images.bytes <> length(contents.bytes)
    """

  /// Tags that differ from their jobs.
  private static let wrongTags = """
    SELECT tags.id FROM tags LEFT JOIN jobs USING (id)
    WHERE jobs.id IS NULL OR jobs.phase <> tags.phase OR jobs.expires_at IS NOT tags.expires_at
      OR jobs.owner <> tags.owner
    """
}

extension Database {
  /// The number of steps executed by the cached statements.
  fileprivate var steps: Int {
    var sum = 0
    var statement = sqlite3_next_stmt(sqliteConnection, nil)
    while let current = statement {
      sum += Int(sqlite3_stmt_status(current, SQLITE_STMTSTATUS_VM_STEP, 0))
      statement = sqlite3_next_stmt(sqliteConnection, current)
    }
    return sum
  }
}
