import GRDB
import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL
@testable import Store

@Suite("The steps of a store's schema")
struct SchemaStepTests {
  private let job = Job.sample(1)

  @Test("SQLite runs a new step once and keeps the jobs; a release without that step refuses them")
  func sqlite() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/jobs.sqlite"
    let latest = Store.Schema.migrator.migrations.count
    #expect(try SQLiteJobStore.versions(at: path) == TableVersions(found: 0, latest: latest))
    let store = try folder.openJobs()
    #expect(try await store.submit(job) == .accepted)
    #expect(try SQLiteJobStore.versions(at: path) == TableVersions(found: latest, latest: latest))
    await store.close()

    var newer = Store.Schema.migrator
    newer.registerMigration("next") { db in
      try db.execute(sql: "ALTER TABLE jobs ADD COLUMN extra INTEGER NOT NULL DEFAULT 7")
    }
    let database = try DatabasePool(path: path)
    for _ in 0..<2 { try newer.migrate(database) }
    let extra = try await database.read { db in
      try Int.fetchAll(db, sql: "SELECT extra FROM jobs WHERE id = ?", arguments: [job.id.data])
    }
    #expect(extra == [7])
    try database.close()
    let refusal = StoreError.unavailable(detail: "\(path) was written by a newer release")
    #expect(throws: refusal) { try folder.openJobs() }
    #expect(throws: refusal) { try SQLiteJobStore.versions(at: path) }
  }

  @Test("SQLite undoes a step that fails; the database stays as it was")
  func failedSQLite() async throws {
    let folder = try TemporaryFolder()
    let store = try folder.openJobs()
    #expect(try await store.submit(job) == .accepted)
    await store.close()
    var newer = Store.Schema.migrator
    newer.registerMigration("next") { db in
      try db.execute(sql: "DROP TABLE jobs; SELECT * FROM missing")
    }
    let database = try DatabasePool(path: folder.path + "/jobs.sqlite")
    #expect(throws: DatabaseError.self) { try newer.migrate(database) }
    try database.close()
    let reopened = try folder.openJobs()
    #expect(try await reopened.job(job.id) == job)
    try await reopened.audit()
    await reopened.close()
  }

  @Test(
    "PostgreSQL runs a new step once and keeps the jobs; a release without that step refuses them")
  func postgres() async throws {
    let database = try TestDatabase(in: .shared)
    let configuration = SQLJobStore.Configuration(url: database.url)
    let latest = SQLSchema.steps.count
    #expect(
      try SQLJobStore.versions(configuration) == TableVersions(found: 0, latest: latest))
    try SQLJobStore.migrate(configuration)
    #expect(
      try SQLJobStore.versions(configuration) == TableVersions(found: latest, latest: latest))
    let store = try StoreUnderTest(in: database, ManualClock(.at(0)))
    #expect(try await store.submit(job) == .accepted)
    await store.close()

    let session = Session(Session.Settings(configuration), named: "test")
    let newer = SQLSchema.steps + ["ALTER TABLE jobs ADD COLUMN extra int DEFAULT 7"]
    for _ in 0..<2 { try SQLSchema.migrate(session, by: newer) }
    let rows = try session.read { try $0.execute("SELECT id, extra FROM jobs") }
    #expect(rows.all.map { rows.id($0, 0) } == [job.id] && rows.int(0, 1) == 7)
    let refusal = StoreError.unavailable(
      detail: "the database was written by a newer release: it has version \(latest + 1)")
    #expect(throws: refusal) { try SQLJobStore(configuration) }
    #expect(throws: refusal) { try SQLJobStore.migrate(configuration) }
    #expect(throws: refusal) { try SQLJobStore.versions(configuration) }
    withExtendedLifetime(database) {}
  }

  @Test("tables of a build before the first release are refused, and stay as they were")
  func unversioned() throws {
    let folder = try TemporaryFolder()
    let database = try DatabaseQueue(path: folder.path + "/jobs.sqlite")
    try database.write { try $0.execute(sql: "CREATE TABLE jobs (number INTEGER PRIMARY KEY)") }
    let refusal = StoreError.unavailable(
      detail: "the database has tables of a build before the first release")
    #expect(throws: refusal) { try folder.openSQL(ManualClock(.at(0))) }
    #expect(try database.read { try $0.tableExists("versions") } == false)
    try database.close()
  }

  @Test("PostgreSQL undoes a step that fails; the database stays as it was")
  func failedPostgres() async throws {
    let database = try TestDatabase(in: .shared)
    let configuration = SQLJobStore.Configuration(url: database.url)
    let store = try StoreUnderTest(in: database, ManualClock(.at(0)))
    #expect(try await store.submit(job) == .accepted)
    let session = Session(Session.Settings(configuration), named: "test")
    let newer = SQLSchema.steps + ["DROP TABLE jobs", "SELECT * FROM missing"]
    #expect(throws: Fault.self) { try SQLSchema.migrate(session, by: newer) }
    let latest = SQLSchema.steps.count
    #expect(
      try SQLJobStore.versions(configuration) == TableVersions(found: latest, latest: latest))
    #expect(try await store.job(job.id) == job)
    try await store.audit()
    await store.close()
    withExtendedLifetime(database) {}
  }
}
