import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

@Suite("The steps of a store's schema")
struct SchemaStepTests {
  private let job = Job.sample(1)
  static let adapters: [StoreAdapter] = [.sqlite, .postgres]

  @Test(
    "a new step runs once and keeps the jobs; a release without that step refuses them",
    arguments: adapters)
  func newer(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    #expect(try await jobs.store.submit(job) == .accepted)
    await jobs.store.close()
    let configuration = try jobs.configuration
    let latest = Schema.steps.count
    #expect(
      try SQLJobStore.versions(configuration) == TableVersions(found: latest, latest: latest))

    let session = Session(Session.Settings(configuration), named: "test")
    let newer = Schema.steps + ["ALTER TABLE jobs ADD COLUMN extra int DEFAULT 7"]
    for _ in 0..<2 { try Schema.migrate(session, by: newer) }
    let rows = try session.read { try $0.execute("SELECT id, extra FROM jobs") }
    #expect(rows.all.map { rows.id($0, 0) } == [job.id] && rows.int(0, 1) == 7)
    let refusal = StoreError.unavailable(
      detail: "the database was written by a newer release: it has version \(latest + 1)")
    #expect(throws: refusal) { try SQLJobStore(configuration) }
    #expect(throws: refusal) { try SQLJobStore.migrate(configuration) }
    #expect(throws: refusal) { try SQLJobStore.versions(configuration) }
  }

  @Test("a step that fails is undone, and the database stays as it was", arguments: adapters)
  func failed(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    #expect(try await jobs.store.submit(job) == .accepted)
    let configuration = try jobs.configuration
    let session = Session(Session.Settings(configuration), named: "test")
    let newer = Schema.steps + ["DROP TABLE jobs", "SELECT * FROM missing"]
    #expect(throws: Fault.self) { try Schema.migrate(session, by: newer) }
    let latest = Schema.steps.count
    #expect(
      try SQLJobStore.versions(configuration) == TableVersions(found: latest, latest: latest))
    #expect(try await jobs.store.job(job.id) == job)
    try await jobs.store.audit()
    await jobs.store.close()
  }

  @Test("an empty database has no version until its tables are created", arguments: adapters)
  func empty(adapter: StoreAdapter) async throws {
    let folder = try TemporaryFolder()
    let database = try TestDatabase(in: .shared)
    let configuration =
      adapter == .sqlite
      ? try folder.configuration : SQLJobStore.Configuration(url: database.url)
    let latest = Schema.steps.count
    #expect(try SQLJobStore.versions(configuration) == TableVersions(found: 0, latest: latest))
    try SQLJobStore.migrate(configuration)
    #expect(
      try SQLJobStore.versions(configuration) == TableVersions(found: latest, latest: latest))
    withExtendedLifetime((folder, database)) {}
  }

  @Test("tables of a build before the first release are refused, and stay as they were")
  func unversioned() throws {
    let folder = try TemporaryFolder()
    let file = try SQLiteFile(folder.path + "/jobs.sqlite")
    try file.run("CREATE TABLE jobs (number INTEGER PRIMARY KEY)")
    let refusal = StoreError.unavailable(
      detail: "the database has tables of a build before the first release")
    #expect(throws: refusal) { try folder.openJobs() }
    #expect(try file.int("SELECT count(*) FROM sqlite_schema WHERE name = 'versions'") == 0)
  }
}
