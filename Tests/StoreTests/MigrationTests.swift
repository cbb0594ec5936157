import Foundation
import GRDB
import Jobs
import Testing

@testable import Store

@Suite("A database of the first release")
struct MigrationTests {
  /// What the first release left: a queued job, one that failed, an image held by a claim that is gone.
  private static func write(_ folder: TemporaryFolder, _ queued: Job, _ failed: Job) throws {
    let database = try DatabasePool(path: folder.path + "/jobs.sqlite")
    try Schema.migrator.migrate(database, upTo: "1 jobs and images")
    try database.write { db in
      for (rank, job) in [queued, failed].enumerated() {
        try db.execute(
          sql: """
            INSERT INTO jobs (id, owner, phase, priority, rank, waiting, finished_at, expires_at, record)
            VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?)
            """,
          arguments: [
            job.id.data, job.owner.data, job.phase.code, job.priority.rawValue, rank + 1,
            job.finishedAt?.milliseconds, job.expiresAt?.milliseconds, JobRecord.data(of: job),
          ])
      }
      try db.execute(sql: "INSERT INTO sequences (name, bound) VALUES ('rank', 10000)")
      try db.execute(
        sql: "INSERT INTO images VALUES (?, 10, 1, 0, NULL, 0)",
        arguments: [ImageDigest.sample(1).data])
      try db.execute(
        sql: "INSERT INTO reservations VALUES (?, 5, ?)",
        arguments: [queued.id.data, ImageDigest.sample(1).data])
    }
    try database.close()
  }

  @Test("is brought up to date, its jobs are worked on, its reservations are gone")
  func migrated() async throws {
    let folder = try TemporaryFolder()
    let queued = Job.sample(1, tags: ["t"])
    var failed = Job.sample(2)
    failed.fail(.notCached, at: .at(3), keptFor: .seconds(9))
    try Self.write(folder, queued, failed)
    let store = try folder.openJobs()
    #expect(try await store.recover() == 0)
    #expect(try await store.job(queued.id) == queued)
    #expect(try await store.job(failed.id) == failed)
    #expect(try await store.abandonedImages(9) == [.sample(1)])
    // Its origin is not known to the table yet: it is not held back.
    let claimed = try await store.claim(9, at: .at(5), room: OriginRoom(usual: 0)).jobs
    #expect(claimed.map(\.job.id) == [queued.id])
    let claim = try #require(claimed.first?.claim)
    _ = try await store.update(queued.id, under: claim) {
      $0.requeue()
      return true
    }
    #expect(try await store.claim(9, at: .at(5), room: OriginRoom(usual: 0)).jobs.isEmpty)
    try await store.audit()
    await store.close()
  }

  @Test("small images keep their bytes when these are found by number")
  func contents() async throws {
    let folder = try TemporaryFolder()
    let database = try DatabasePool(path: folder.path + "/jobs.sqlite")
    try Schema.migrator.migrate(database, upTo: "6 leases")
    try await database.write { db in
      for number in 1...3 {
        let digest = ImageDigest.sample(number).data
        try db.execute(
          sql: "INSERT INTO images (digest, bytes, hard, soft, embedded) VALUES (?, 2, 0, 1, ?)",
          arguments: [digest, number < 3])
        guard number < 3 else { continue }
        try db.execute(
          sql: "INSERT INTO contents (number, digest, bytes) VALUES (?, ?, ?)",
          arguments: [10 - number, digest, Data([7, UInt8(number)])])
      }
    }
    try database.close()

    let store = try folder.openJobs()
    let sqlite = try #require(store.base as? SQLiteJobStore)
    #expect(try await sqlite.embeddedImage(.sample(1)) == [7, 1])
    #expect(try await sqlite.embeddedImage(.sample(2)) == [7, 2])
    #expect(try await sqlite.embeddedImage(.sample(3)) == nil, "a file")
    #expect(try await store.lose(.sample(1)) == [])
    #expect(try await sqlite.embeddedImage(.sample(1)) == nil)
    #expect(try await sqlite.embeddedImage(.sample(2)) == [7, 2])
    await store.close()
  }

  @Test(
    "what a lost run of the release before held is nobody's: jobs, reservations, images to remove")
  func leases() async throws {
    let folder = try TemporaryFolder()
    let database = try DatabasePool(path: folder.path + "/jobs.sqlite")
    try Schema.migrator.migrate(database, upTo: "5 partitions of the cache")
    let (job, holder) = (Job.sample(1), JobID(at: .at(2)))
    try await database.write { db in
      try db.execute(sql: "INSERT INTO sequences (name, bound) VALUES ('run', 7)")
      try db.execute(
        sql: """
          INSERT INTO jobs (id, owner, phase, priority, rank, waiting, claim, claimed_at, record, origin, request)
          VALUES (?, ?, 1, ?, 1, 0, ?, 5, ?, ?, ?)
          """,
        arguments: [
          job.id.data, job.owner.data, job.priority.rawValue, 7 << 32 | 3, JobRecord.data(of: job),
          job.origin.map { Data($0.utf8) }, job.request?.data,
        ])
      for (number, (hard, leaving)) in [(1, 0), (0, 1)].enumerated() {
        try db.execute(
          sql: "INSERT INTO images (digest, bytes, hard, soft, leaving) VALUES (?, 10, ?, 0, ?)",
          arguments: [ImageDigest.sample(number).data, hard, leaving])
      }
      try db.execute(
        sql: "INSERT INTO reservations VALUES (?, ?)",
        arguments: [holder.data, ImageDigest.sample(0).data])
    }
    try database.close()

    let store = try folder.openJobs()
    let instance = try await store.instance
    #expect(instance.number == 8)
    let lost = Claim(job: job.id, instance: Instance(number: 7), number: 7 << 32 | 3)
    #expect(
      try await store.update(job.id, under: lost) { _ in false } != nil, "until it is taken over")
    #expect(try await store.recover() == 1)
    #expect(try await store.update(job.id, under: lost) { _ in false } == nil)
    let queued = try #require(await store.job(job.id))
    #expect(queued.phase == .queued && queued.version > 7 << 20)
    #expect(try await store.claimOne()?.job.id == job.id)
    #expect(try await Set(store.abandonedImages(9)) == [.sample(0), .sample(1)])
    try await store.audit()
    await store.close()
  }

  @Test("its idempotency keys still name their jobs, in the order given, and now outlive them")
  func migratedKeys() async throws {
    let folder = try TemporaryFolder()
    // In the order given, which is neither that of their ids nor of their keys' rows.
    let jobs = [3, 1, 2].map { Job.sample($0) } + [Job.sample(9)]
    let database = try DatabasePool(path: folder.path + "/jobs.sqlite")
    try Schema.migrator.migrate(database, upTo: "2 origins, equal requests and the cache")
    try await database.write { db in
      for (number, key) in ["k", "other"].enumerated() {
        try db.execute(
          sql: "INSERT INTO keys VALUES (?, ?, ?, ?)",
          arguments: [
            number + 1, jobs[0].owner.data, Data(key.utf8), ImageDigest.sample(1).data,
          ])
      }
      for (rank, (job, key)) in zip(jobs, [1, 1, 2, 1]).enumerated() {
        try db.execute(
          sql: """
            INSERT INTO jobs (id, owner, phase, priority, rank, waiting, key, record, origin, request)
            VALUES (?, ?, 0, ?, ?, 0, ?, ?, ?, ?)
            """,
          arguments: [
            job.id.data, job.owner.data, job.priority.rawValue, rank + 1, key,
            JobRecord.data(of: job), job.origin.map { Data($0.utf8) }, job.request?.data,
          ])
      }
      try db.execute(sql: "INSERT INTO sequences (name, bound) VALUES ('rank', 10000)")
    }
    try database.close()

    let store = try folder.openJobs()
    var key = IdempotencyKey(owner: jobs[0].owner, key: "k", fingerprint: .sample(1))
    #expect(try await store.remove(jobs[1].id))
    let known = SubmitOutcome.repeated([.kept(jobs[0]), .gone(jobs[1].id), .kept(jobs[3])])
    #expect(try await store.submit([.sample(20)], key: key, capacity: 99) == known)
    key.fingerprint = .sample(2)
    #expect(try await store.submit([.sample(20)], key: key, capacity: 99) == .keyReused)
    try await store.audit()
    // As old as their first jobs.
    #expect(try await store.forgetKeys(before: .at(3), count: 9) == 1)
    key.key = "other"
    #expect(try await store.submit([.sample(20)], key: key, capacity: 99) == .accepted)
    #expect(try await store.forgetKeys(before: .at(4), count: 9) == 1)
    #expect(try await store.counts().jobs[.queued] == 4)
    await store.close()
  }

  @Test(
    "the cache's entries of the release before are found, and how they were come by is not known")
  func entries() async throws {
    let folder = try TemporaryFolder()
    let plain = try CacheEntry.sample(1, .sample(1), bytes: 10)
    let entry = CacheEntry(id: plain.id, response: plain.response, path: nil, image: plain.image)
    let record = try CacheRecord.data(of: entry)
    #expect(!String(decoding: record, as: UTF8.self).contains("path"))
    let database = try DatabasePool(path: folder.path + "/jobs.sqlite")
    try Schema.migrator.migrate(database, upTo: "2 origins, equal requests and the cache")
    try await database.write { db in
      try db.execute(
        sql: "INSERT INTO images VALUES (?, 10, 0, 1, 5, 0)",
        arguments: [ImageDigest.sample(1).data])
      try db.execute(
        sql: """
          INSERT INTO cache (key, selector, digest, bytes, stored, used, record)
          VALUES (?, ?, ?, 10, 5, 5, ?)
          """,
        arguments: [entry.id.key.data, entry.id.selector.data, ImageDigest.sample(1).data, record])
    }
    try database.close()
    let store = try folder.openJobs()
    _ = try await store.recover()
    let found = try await store.entries(for: [entry.id.key])
    #expect(found == [[entry]] && found[0].first?.path == nil)
    #expect(try await store.cacheCounts() == (1, 10))
    try await store.audit()
    #expect(try await store.drop(resource: entry.id.key, count: 9) == [.sample(1)])
    try await store.audit()
    await store.close()
  }

  @Test("each question of the hot path has its index")
  func indexes() async throws {
    let jobs = try OpenJobs()
    let questions = [
      """
      SELECT * FROM jobs WHERE phase = 0 AND waiting = 0 AND priority = 1 AND owner = x'61' AND batch = 0
      ORDER BY rank LIMIT 1
      """: "jobs_queue",
      "SELECT max(line) FROM jobs WHERE batch = 5 AND line > 5": "jobs_batch",
      WriteTransaction.failedLines.replacing("?", with: "5"):
        "jobs_failed (batch=? AND code=? AND line>? AND line<?)",
      """
      SELECT rank, number, id FROM jobs
      WHERE phase = 0 AND waiting = 2 AND origin = x'61' AND priority = 1 AND owner = x'61' AND batch = 0
      ORDER BY rank LIMIT 1
      """: "jobs_parked",
      """
      SELECT * FROM jobs
      WHERE \(QueuedRequests.condition.replacing("?1", with: "x'61'").replacing("?2", with: "5"))
      ORDER BY priority DESC, rank LIMIT 1
      """: "jobs_request",
      "SELECT * FROM jobs WHERE low = 1 AND id > x'61' ORDER BY id LIMIT 1": "jobs_low",
      WriteTransaction.wake(whose: "<= 5").replacing("?", with: "9"): "jobs_waiting (not_before<?)",
      WriteTransaction.wake(whose: "> 5").replacing("?", with: "9"): "jobs_waiting (not_before>?)",
      "SELECT min(not_before) FROM jobs WHERE phase = 0 AND waiting = 1": "jobs_waiting",
      """
      SELECT origin, priority, min(rank) FROM jobs WHERE phase = 0 AND waiting = 2
      GROUP BY origin, priority, owner, batch
      """: "jobs_parked",
      "SELECT number FROM cache ORDER BY used, number LIMIT 1": "cache_used",
      "SELECT min(stored) FROM cache WHERE digest = x'61'": "cache_image",
      "SELECT fingerprint, jobs FROM keys WHERE owner = x'61' AND key = x'61'":
        "sqlite_autoindex_keys_1",
      "SELECT number FROM keys WHERE created_at < 5 ORDER BY created_at LIMIT 9": "keys_created",
      // What SQLite asks when a key goes, for the sake of an earlier release's jobs.
      "SELECT number FROM jobs WHERE key = 5": "jobs_key",
      "SELECT 1 FROM cache WHERE digest = x'61' LIMIT 1": "cache_image",
      "SELECT number FROM cache WHERE number IS NOT 5 ORDER BY used, number LIMIT 1": "cache_used",
      "SELECT number FROM cache WHERE resource = x'61' LIMIT 5": "cache_resource",
      WriteTransaction.pruneMessages.replacing("?1", with: "x'61'").replacing("?2", with: "5"):
        "messages_told (subject=? AND number<?);",
      """
      SELECT number, record FROM batches
      WHERE \(BatchListing.condition(isOfOwner: true, stages: "3").replacing("?", with: "5"))
      """: "batches_owner",
      WriteTransaction.openBatches.replacing("?", with: "5"): "batches_stage (stage=?);",
    ]
    for (question, index) in questions {
      let plan = try jobs.store.onWriter { db in
        try Row.fetchAll(db, sql: "EXPLAIN QUERY PLAN " + question).map { $0["detail"] as String }
      }.joined(separator: "; ")
      #expect((plan + " ").contains("INDEX \(index) "), "\(plan)")
      #expect(!plan.contains("TEMP B-TREE"), "\(plan)")
    }
    await jobs.store.close()
  }
}
