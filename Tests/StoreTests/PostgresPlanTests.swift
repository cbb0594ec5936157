import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

/// Tests statements that run once a second or in each request.
@Suite("Query plans in PostgreSQL")
struct PostgresPlanTests {
  static let statements: [(sql: String, values: [SQLValue], condition: String)] = [
    (Transaction.expired, [.int(nil), .int(9)], "Index Cond: (expires_at <="),
    (Transaction.forgetKeys, [.int(nil), .int(60), .int(9)], "Index Cond: (created_at <"),
    (Transaction.deleteIdleOrigins, [.int(nil), .int(9)], "Index Cond: (next_at <="),
    (
      Transaction.batchesToMaintain, [.int(nil)],
      "Index Cond: ((stage = ANY ('{2,3}'::integer[])) AND (expires_at <="
    ),
    (
      Transaction.deleteRejectedLines, [.int(1), .int(9)],
      "Index Cond: ((batch = '1'::bigint) AND (line <="
    ),
    (
      Transaction.failedJobs, [.int(1), .int(5), .bytes([97]), .int(9)],
      "Index Cond: ((batch = '1'::bigint) AND (code = '\\x61'::bytea) AND (line > '5'::bigint))"
    ),
    (Transaction.pinnedBytes, [.bytes([1])], "jobs_pinned"),
    (
      Transaction.pruneMessages, [.id(JobID(at: .at(1))), .int(16)],
      "Index Scan using messages_told on messages"
    ),
    (
      Transaction.ofBatch,
      [
        .id(JobID(at: .at(1))), .int(1), .int(9), .int(1), .int(9), .ints([3]), .bytes(nil),
        .int(9), .bool(true),
      ], "Index Cond: ((batch = '1'::bigint) AND (line <= "
    ),
    (
      Transaction.readyQueues,
      [.ints([0]), .byteStrings([[]]), .ints([-1]), .byteStrings([]), .bool(false)],
      "Index Cond: ((priority = priority) AND (owner = owner) AND (batch > batch))"
    ),
    (
      Transaction.parkedQueues,
      [
        .byteStrings([]), .bool(true), .byteStrings([]), .ints([0]), .bytes([97]), .int(0),
        .byteStrings([]), .bool(false),
      ], "AND (priority = priority) AND (owner = '\\x61'::bytea) AND (batch > '0'::bigint))"
    ),
    (
      Transaction.readyJobs, [.int(0), .bytes([97]), .int(0), .int(5), .int(9)],
      "Index Scan using queue_ready on queue"
    ),
    (
      Transaction.parkedJobs, [.int(0), .bytes([97]), .int(0), .bytes([98]), .int(9)],
      "Index Scan using queue_parked on queue"
    ),
    (Transaction.loadingQueues, [], "Index Only Scan using queue_loading on queue"),
  ]

  @Test("frequent statements read only the matching part of an index")
  func indexes() async throws {
    let database = try TestDatabase(in: .shared)
    let store = try SQLJobStore(SQLJobStore.Configuration(url: database.url))
    for (sql, values, condition) in Self.statements {
      let plan = try await store.read { transaction in
        // The tables are empty, so force the plans of large tables.
        for way in ["seqscan", "bitmapscan"] {
          try transaction.run("SET LOCAL enable_\(way) = off")
        }
        let rows = try transaction.execute("EXPLAIN " + sql, values)
        return rows.all.compactMap { rows.bytes($0, 0) }.map { String(decoding: $0, as: UTF8.self) }
      }.map { $0.replacing(/\b[a-z]+\./, with: "") }
      #expect(plan.contains { $0.contains(condition) }, "\(plan.joined(separator: "\n"))")
    }
    await store.close()
  }
}
