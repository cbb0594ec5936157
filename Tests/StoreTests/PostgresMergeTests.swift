import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

@Suite("Merged transactions in PostgreSQL", .timeLimit(.minutes(15)))
struct PostgresMergeTests {
  private let database: TestDatabase
  private let postgres: SQLJobStore
  private let store: StoreUnderTest

  init() throws {
    let database = try TestDatabase(in: .shared)
    let store = try StoreUnderTest(in: database, ManualClock(.at(0)))
    postgres = store.sql
    (self.database, self.store) = (database, store)
  }

  /// Calls the body concurrently. No write starts before all of them wait.
  private func together<Value: Sendable>(
    _ count: Int, _ body: @escaping @Sendable (Int) async throws -> Value
  ) async throws -> [Value] {
    let (begun, continuation) = AsyncStream<Void>.makeStream()
    async let held: Void = postgres.write { [postgres] transaction in
      defer { continuation.finish() }
      continuation.yield()
      while postgres.writing.waiting < count { try transaction.execute("SELECT pg_sleep(0.005)") }
    }
    for await _ in begun { break }
    let values = try await withThrowingTaskGroup(of: (Int, Value).self) { group in
      for number in 0..<count { group.addTask { (number, try await body(number)) } }
      return try await group.reduce(into: [Int: Value]()) { $0[$1.0] = $1.1 }
    }
    try await held
    return (0..<count).compactMap { values[$0] }
  }

  @Test("concurrent variants are stored in one transaction as if each were stored alone")
  func variants() async throws {
    let variants = (0..<8).map { StoredVariant.sample(1, $0, .sample($0), bytes: 10) }
    let holders = (0..<8).map { JobID(at: .at(Int64($0))) }
    // The last one's image is not stored.
    for (variant, holder) in zip(variants, holders).prefix(7) {
      _ = try await store.reserve(variant.digest, bytes: 10, as: holder, limit: .max / 2)
    }
    _ = try await together(8) { [store] number in
      // This variant is too large.
      try await store.save(
        variants[number], within: number == 6 ? 9 : .max, releasing: holders[number])
    }
    for variant in variants[..<6] { #expect(try await store.variant(variant.id) == variant) }
    for variant in variants[6...] { #expect(try await store.variant(variant.id) == nil) }
    let count = try database.server.run(
      "SELECT count(DISTINCT xmin::text) FROM cache", in: database.name)
    #expect(Int(count.filter(\.isNumber)) == 1)
    #expect(try await store.unreferencedImages(9) == [.sample(6)])
    try await store.audit()
    await store.close()
  }

  @Test("one of several concurrent variants with one name is stored with its image")
  func oneName() async throws {
    let variants = (0..<4).map { StoredVariant.sample(1, 1, .sample($0), bytes: 10) }
    let holders = (0..<4).map { JobID(at: .at(Int64($0))) }
    for (variant, holder) in zip(variants, holders) {
      _ = try await store.reserve(variant.digest, bytes: 10, as: holder, limit: .max / 2)
    }
    _ = try await together(4) { [store] number in
      try await store.save(variants[number], within: 99, releasing: holders[number])
    }
    let kept = try #require(try await store.variant(variants[0].id))
    let abandoned = try await store.unreferencedImages(9)
    #expect(abandoned.count == 3 && !abandoned.contains(kept.digest))
    #expect(try await store.cacheCounts() == (1, 10))
    try await store.audit()
    await store.close()
  }

  @Test("concurrent removals run in one transaction, and an unreadable job fails alone")
  func removals() async throws {
    let jobs = (1...6).map { Job.sample($0) }
    _ = try await store.submit(jobs, key: nil, capacity: 9)
    try database.server.run(
      """
      CREATE TABLE gone (id uuid, tx xid8);
      CREATE FUNCTION note_gone() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO gone VALUES (OLD.id, pg_current_xact_id()); RETURN OLD; END';
      CREATE TRIGGER note_gone AFTER DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION note_gone();
      CREATE TABLE whole AS SELECT id, record FROM jobs;
      UPDATE jobs SET record = '\\x7b' WHERE id = (SELECT id FROM jobs ORDER BY id LIMIT 1)
      """, in: database.name)
    // The last id is used twice, and one id does not exist.
    let asked = jobs.map(\.id) + [jobs[5].id, JobID(at: .at(99))]
    let spared = jobs[1].id
    let found = try await together(8) { [store] number -> Result<Removal, StoreError> in
      do throws(StoreError) {
        return .success(try await store.base.remove(asked[number]) { $0.id != spared })
      } catch {
        return .failure(error)
      }
    }
    guard case .failure(.unreadable) = found[0] else {
      Issue.record("\(found[0])")
      return
    }
    #expect(found[1] == .success(.kept(jobs[1])))
    for number in 2...4 { #expect(found[number] == .success(.removed(jobs[number]))) }
    let twice = found[5...6]
    #expect(twice.contains(.success(.removed(jobs[5]))) && twice.contains(.success(.unknown)))
    #expect(found[7] == .success(.unknown))
    let counts = try database.server.run(
      "SELECT count(*), count(DISTINCT tx::text) FROM gone", in: database.name)
    #expect(counts.split { !$0.isNumber }.map(String.init) == ["4", "1"])
    try database.server.run(
      "UPDATE jobs SET record = whole.record FROM whole WHERE whole.id = jobs.id",
      in: database.name)
    #expect(try await store.counts().jobs[.queued] == 2)
    try await store.audit()
    await store.close()
  }
}
