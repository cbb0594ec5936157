import Jobs
import TestSupport
import Testing

@testable import SQL

@Suite("Query plans in SQLite")
struct SQLitePlanTests {
  /// Every test of a store over SQLite runs its statements through this check.
  @Test("a statement that reads a whole large table fails in tests")
  func scans() async throws {
    let jobs = try OpenJobs(.sqlite)
    let store = jobs.store.sql
    let error = await #expect(throws: StoreError.self) {
      try await store.read { _ = try $0.execute("SELECT id FROM queue WHERE places = 7") }
    }
    #expect(error.map { "\($0)".contains("reads a whole table") } == true)
    try await store.read { _ = try $0.execute("SELECT id FROM queue WHERE state = 2") }
    await jobs.store.close()
  }

  @Test("frequent statements search an index")
  func indexes() async throws {
    let jobs = try OpenJobs(.sqlite)
    for (sql, values, _) in PostgresPlanTests.statements {
      try await jobs.store.onWriter { _ = try $0.execute(sql, values) }
    }
    await jobs.store.close()
  }
}
