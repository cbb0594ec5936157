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

  @Test("a statement is parsed once, whatever its arguments are")
  func parsedOnce() async throws {
    let jobs = try OpenJobs(.sqlite)
    func run(_ place: Int64) async throws {
      try await jobs.store.onWriter {
        _ = try $0.execute(
          "SELECT id FROM queue WHERE state = 2 AND origin = $1 AND priority = $2",
          [.bytes([UInt8(place)]), .int(place)])
      }
    }
    for number in 0..<30 {
      _ = try await jobs.store.submit(.sample(Int64(number), url: "https://a.example/\(number)"))
    }
    try await run(1)
    let before = jobs.store.work
    for place in 2...9 { try await run(Int64(place)) }
    #expect((jobs.store.work - before).reparses == 0)
    // A whole job: its second time costs no parsing, except for two settings.
    for number in 0..<2 {
      let digest = ImageDigest.sample(number)
      let before = jobs.store.work
      #expect(try await jobs.store.succeed(100 + Int64(number), with: digest, bytes: 9) != nil)
      if number > 0 { #expect((jobs.store.work - before).reparses <= 4) }
    }
    await jobs.store.close()
  }
}
