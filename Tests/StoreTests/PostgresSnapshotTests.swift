import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

@Suite("Snapshots in PostgreSQL", .timeLimit(.minutes(15)))
struct PostgresSnapshotTests {
  /// Selects the transactions that wait for the queue table.
  private static let waiting = """
    SELECT FROM pg_locks WHERE NOT granted AND relation = 'queue'::regclass
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    """

  @Test("a line that is retried while results are read is still returned as finished")
  func results() async throws {
    let database = try TestDatabase(in: .shared)
    let store = try StoreUnderTest(in: database, ManualClock(.at(0)))
    let postgres = store.sql
    let batch = Batch.sample(1)
    _ = try await store.base.open(batch, key: nil)
    let lines = BatchLines.sample(batch, after: 0, lines: [1, 2])
    _ = try await store.base.add(lines, to: batch.id, capacity: 9)
    for job in try await store.claim(9, at: .at(10)).jobs {
      _ = try await store.complete(
        Completion([job.claim]) {
          $0.fail(.fetch(.timeout(seconds: 1)), at: .at(30), keptFor: .seconds(60))
          return true
        })
    }
    var query = ResultQuery(batch.id, after: 0, through: 9)
    query.isInOrder = true
    let before = try #require(try await store.base.results(query))
    #expect(before.lines.count == 2 && before.through == 2)

    let (isLocked, continuation) = AsyncStream<Void>.makeStream()
    let again = RetryQuery(batch.id, codes: [.timeout], count: 9)
    let room = postgres.queueRoom(within: .max)
    async let retried = postgres.write { transaction -> BatchRetry? in
      defer { continuation.finish() }
      try transaction.run("LOCK TABLE queue IN ACCESS EXCLUSIVE MODE")
      continuation.yield()
      // Wait until the results have been selected and the jobs are to be read.
      while try transaction.execute(Self.waiting).isEmpty {
        try transaction.execute("SELECT pg_sleep(0.005)")
      }
      return try transaction.retry(again, in: room) { $0.fetchAgain(at: .at(40), from: .regular) }
    }
    for await _ in isLocked { break }
    #expect(try await store.base.results(query) == before)
    let retry = try await retried
    #expect(retry?.jobs.count == 2)
    let after = try #require(try await store.base.results(query))
    #expect(after.lines.isEmpty && after.through == 0)
    try await store.audit()
    await store.close()
    withExtendedLifetime(database) {}
  }
}
