import GRDB
import Jobs
import TestSupport
import Testing

@testable import Store

@Suite("A store's tables")
struct TableVersionTests {
  private static let identifiers = Schema.migrator.migrations

  @Test(
    "of SQLite are brought up to date from every earlier number", arguments: 0...identifiers.count)
  func sqlite(from number: Int) async throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/jobs.sqlite"
    if number > 0 {
      let database = try DatabasePool(path: path)
      try Schema.migrator.migrate(database, upTo: Self.identifiers[number - 1])
      try database.close()
    }
    let latest = Self.identifiers.count
    #expect(try SQLiteJobStore.versions(at: path) == TableVersions(found: number, latest: latest))
    let store = try folder.openJobs()
    #expect(try await store.submit(.sample(1)) == .accepted)
    #expect(try await store.claim(9, at: .at(5)).jobs.count == 1)
    #expect(try SQLiteJobStore.versions(at: path) == TableVersions(found: latest, latest: latest))
    try await store.audit()
    await store.close()
  }
}
