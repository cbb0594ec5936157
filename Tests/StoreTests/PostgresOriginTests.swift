import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

@Suite("Request rates of origins in PostgreSQL")
struct PostgresOriginTests {
  @Test("the row of an origin is deleted when its rate allows the next request")
  func forgotten() async throws {
    let clock = ManualClock(.at(0))
    let database = try TestDatabase(in: .shared)
    let store = try StoreUnderTest(in: database, clock) { $0.isShared = true }
    let jobs = (0..<3).map { Job.sample($0, url: "https://\($0).example/x") }
    _ = try await store.submit(jobs, key: nil, capacity: 9)
    let room = OriginCapacity(usual: 9, overall: OriginCapacity.Overall(requestsPerSecond: 10))
    #expect(try await store.claim(2, at: .at(1_000), room: room).jobs.count == 2)
    #expect(try await store.claim(2, at: .at(1_050), room: room).jobs.count == 1)
    func origins() throws -> Int? {
      let count = try database.server.run("SELECT count(*) FROM origins", in: database.name)
      return Int(count.filter(\.isNumber))
    }
    for (moment, count): (Int64, Int) in [(1_099, 3), (1_100, 1), (1_150, 0)] {
      clock.set(.at(moment))
      _ = try await store.base.deleteKeys(olderThan: .seconds(9), count: 9)
      #expect(try origins() == count, "\(moment)")
    }
    try await store.audit()
    await store.close()
  }
}
