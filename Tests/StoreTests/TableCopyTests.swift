import Jobs
import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

@Suite("The copy of a database")
struct TableCopyTests {
  /// A store with rows in most tables.
  private static func filled() async throws -> TwoStores {
    var pair = try TwoStores(.sqlite, seed: 3)
    for step in 0..<300 { try await pair.step(step) }
    for number in 1...3 {
      let batch = Batch.sample(Int64(number))
      #expect(try await pair.store.base.open(batch, key: nil) == .opened)
    }
    return pair
  }

  @Test("the schema's list of tables has all tables and columns of the database")
  func listed() async throws {
    let jobs = try OpenJobs()
    for table in Schema.tables {
      let rows = try jobs.file.rows(
        "SELECT name FROM pragma_table_info('\(table.name)') ORDER BY cid")
      let names = rows.all.map { String(decoding: rows.bytes($0, 0) ?? [], as: UTF8.self) }
      #expect(table.columns.map(\.name) == names && !table.key.isEmpty)
    }
    // One table numbers the schema's steps, the other the processes that used the database.
    let count = try jobs.file.int(
      """
      SELECT count(*) FROM sqlite_schema
      WHERE type = 'table' AND name NOT IN ('versions', 'runs') AND name NOT LIKE 'sqlite%'
      """)
    #expect(count == Schema.tables.count)
    #expect(
      Set(Schema.tables.map(\.name)).subtracting(SQLJobStore.copiedTables.map(\.name)) == [
        "settings", "instances", "reservations",
      ])
    await jobs.store.close()
  }

  @Test("every row is copied, a second copy changes nothing, and new rows get new numbers")
  func copied() async throws {
    let pair = try await Self.filled()
    _ = try await pair.store.recover()
    let (source, database) = (pair.store.sql, try TestDatabase(in: .shared))
    let target = try StoreUnderTest(in: database, pair.store.clock) { $0.isCopied = true }
    let mark = try await source.markForCopy()
    #expect(try await target.sql.beginCopy(of: mark) == nil)
    for isNew in [true, false] {
      for table in SQLJobStore.copiedTables {
        var last: [SQLValue]?
        while let page = try await source.page(of: table, after: last, count: 7) {
          last = page.last
          #expect(try await target.sql.insert(page) == (isNew ? page.count : 0))
        }
      }
    }
    try await target.sql.endCopy(of: mark)

    var filled: Set<String> = []
    for table in SQLJobStore.copiedTables {
      let rows = try await source.page(of: table, after: nil, count: 10_000)
      let copy = try await target.sql.page(of: table, after: nil, count: 10_000)
      #expect(rows?.columns.map(\.encoded) == copy?.columns.map(\.encoded), "\(table.name)")
      if rows != nil { filled.insert(table.name) }
    }
    #expect(
      filled.isSuperset(of: [
        "jobs", "tags", "queue", "tallies", "batches", "images", "cache", "keys",
      ]))
    try await target.audit()
    #expect(try await target.sql.beginCopy(of: mark)?.contains("already") == true)
    // An instance that uses the source changes the mark. It gets a number that no instance of the source had.
    #expect(try await source.markForCopy() == mark)
    let other = try await source.register(for: .seconds(60))
    #expect(try await source.markForCopy() != mark)
    #expect(try await target.sql.register(for: .seconds(60)).number >= other.number)

    // The copy is a working store. A new batch, job and cache entry get numbers that no copied one has.
    let batch = Batch.sample(9)
    #expect(try await target.base.open(batch, key: nil) == .opened)
    let last = Job.sample(900)
    #expect(try await target.submit(last) == .accepted)
    let newest = try await target.sql.read { transaction in
      let rows = try transaction.execute("SELECT id FROM queue ORDER BY rank DESC LIMIT 2")
      return rows.all.map { rows.id($0, 0) }
    }
    #expect(newest.count == 2 && newest[0] == last.id)
    try await target.audit()
    await target.close()
    await pair.store.close()
  }
}
