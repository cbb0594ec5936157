import GRDB
import Testing

@testable import Store

@Suite("SQLite's query plans")
struct SQLitePlanTests {
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
      WriteTransaction.makeReadyStatement(notBefore: "<= 5").replacing("?", with: "9"):
        "jobs_waiting (not_before<?)",
      WriteTransaction.makeReadyStatement(notBefore: "> 5").replacing("?", with: "9"):
        "jobs_waiting (not_before>?)",
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
