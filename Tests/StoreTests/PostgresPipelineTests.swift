import TestSupport
import Testing

@testable import PostgreSQL
@testable import SQL

@Suite("Pipelined statements in PostgreSQL")
struct PostgresPipelineTests {
  private let database: TestDatabase
  private let session: Session
  private var deadline: ContinuousClock.Instant { .now + patience }

  init() throws {
    database = try TestDatabase(in: .shared)
    var configuration = SQLJobStore.Configuration(url: database.url)
    configuration.timeout = patience
    session = Session(Session.Settings(configuration), named: "test")
    try session.connected().run("CREATE TABLE t (n bigint PRIMARY KEY)", by: deadline)
  }

  private func numbers() throws -> [Int64] {
    let rows = try session.connected().execute(
      SQLStatement("SELECT n FROM t ORDER BY n"), by: deadline)
    return rows.all.compactMap { rows.int($0, 0) }
  }

  private func transaction(_ body: (Transaction) throws -> Void) throws -> Bool {
    var isCommitting = false
    do {
      try session.transaction(isSynced: false, isCommitting: &isCommitting, body)
    } catch {
      #expect(!isCommitting, "the server has rejected the transaction")
      throw error
    }
    return isCommitting
  }

  @Test("pipelined statements run in order, and the last one's rows are returned")
  func order() throws {
    let isCommitted = try transaction { transaction in
      for number in 1...3 {
        try transaction.add("INSERT INTO t VALUES ($1)", [.int(Int64(number))])
      }
      let rows = try transaction.execute("SELECT n FROM t WHERE n > $1 ORDER BY n", [.int(1)])
      #expect(rows.all.compactMap { rows.int($0, 0) } == [2, 3])
      try transaction.add("DELETE FROM t WHERE n = $1", [.int(2)])
      #expect(try transaction.execute("SELECT count(*) FROM t").int(0, 0) == 2)
      try transaction.add("INSERT INTO t VALUES ($1)", [.int(9)])
    }
    #expect(isCommitted)
    #expect(try numbers() == [1, 3, 9])
  }

  @Test("a pipeline may be larger than the socket buffers")
  func many() throws {
    // 24 MB; fewer with a sanitizer, which is slow.
    let count: Int64 = Sanitizer.isHere ? 80_000 : 200_000
    _ = try transaction { transaction in
      for number in 0..<Int64(10) {
        let start = number * count
        try transaction.add(
          "INSERT INTO t SELECT unnest($1)", [.ints((start..<start + count).map { $0 })])
      }
      let rows = try transaction.execute("SELECT n FROM t")
      #expect(rows.all.count == 10 * Int(count))
    }
  }

  @Test(
    "a failed statement undoes the whole transaction, and the connection stays usable",
    arguments: [0, 1, 2])
  func failure(at failing: Int) throws {
    #expect(throws: Fault.self) {
      _ = try transaction { transaction in
        for number in 0...2 {
          try transaction.add(
            "INSERT INTO t VALUES ($1)", [.int(number == failing ? nil : Int64(number))])
        }
      }
    }
    #expect(try !session.connected().isInTransaction)
    #expect(try numbers() == [])
    _ = try transaction { try $0.add("INSERT INTO t VALUES (1)") }
    #expect(try numbers() == [1])
  }

  @Test("queued statements are discarded if the caller throws an error")
  func givenUp() throws {
    struct GivenUp: Error {}
    #expect(throws: GivenUp.self) {
      _ = try transaction { transaction in
        try transaction.add("INSERT INTO t VALUES (1)")
        throw GivenUp()
      }
    }
    #expect(try numbers() == [])
  }

  @Test("reads of one snapshot do not see later commits")
  func oneMoment() throws {
    let other = Session(session.settings, named: "test")
    let counts = try session.read { transaction in
      try transaction.withSnapshot { () -> [Int] in
        let first = try transaction.execute("SELECT FROM t").count
        try other.connected().run("INSERT INTO t VALUES (1)", by: deadline)
        let second = try transaction.execute("SELECT FROM t").count
        return [first, second]
      }
    }
    #expect(counts == [0, 0])
    #expect(try !session.connected().isInTransaction)
    #expect(try numbers() == [1])
  }

  @Test(
    "failed reads of a snapshot leave no transaction open, whatever was sent",
    arguments: ["", "SELECT FROM t", "SELECT 1 / 0", "INSERT INTO t VALUES (1)"])
  func failedLook(statement: String) throws {
    struct GivenUp: Error {}
    #expect(throws: (any Error).self) {
      try session.read { transaction in
        try transaction.withSnapshot { () -> Void in
          if !statement.isEmpty { try transaction.execute(statement) }
          throw GivenUp()
        }
      }
    }
    #expect(try !session.connected().isInTransaction)
    #expect(try numbers() == [])
    // No statement of the failed read is sent together with the next one, which is committed at
    // once.
    try session.connected().run("INSERT INTO t VALUES (2)", by: deadline)
    let others = Session(session.settings, named: "test")
    #expect(
      try others.connected().execute(SQLStatement("SELECT n FROM t"), by: deadline).count == 1)
  }
}
