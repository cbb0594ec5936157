package import Jobs
package import SQL
package import SQLite
internal import Synchronization

/// An SQLite database that counts what a store does with it.
package final class CountedSQLite: SQLDatabase {
  /// The work of all connections so far.
  package struct Work: Sendable, Equatable {
    package var transactions = 0
    /// Transactions that survive a crash of the machine.
    package var syncedTransactions = 0
    package var statements = 0
    /// Steps of SQLite's virtual machine.
    package var steps = 0
    /// Rows that statements inserted, updated or deleted.
    package var changes = 0

    package static func - (later: Work, earlier: Work) -> Work {
      Work(
        transactions: later.transactions - earlier.transactions,
        syncedTransactions: later.syncedTransactions - earlier.syncedTransactions,
        statements: later.statements - earlier.statements, steps: later.steps - earlier.steps,
        changes: later.changes - earlier.changes)
    }
  }

  fileprivate static let checked = Mutex<Set<String>>([])
  private let base: SQLiteDatabase
  fileprivate let counts = Mutex(Work())

  package init(_ configuration: SQLiteDatabase.Configuration) throws(StoreError) {
    base = try SQLiteDatabase(configuration)
  }

  /// The beginning of a statement that may read whole tables.
  package static let scans = "/* may read whole tables */ "

  package var work: Work { counts.withLock(\.self) }

  package var hasOneWriter: Bool { base.hasOneWriter }
  package var losesAnswers: Bool { base.losesAnswers }
  package var additions: String { base.additions }
  package var isLow: Bool { base.isLow }

  package func connect(
    for thread: String, mayWrite: Bool, timeout: Duration
  ) throws(Fault) -> any SQLConnection {
    CountedConnection(
      try base.connect(for: thread, mayWrite: mayWrite, timeout: timeout), of: self)
  }

  package func connectForSchema() throws(Fault) -> any SQLConnection {
    try base.connectForSchema()
  }

  package func openChannel(
    _ settings: Session.Settings, _ bus: InstanceEventBus
  ) -> (any EventChannel)? { base.openChannel(settings, bus) }

  package func freeReserve() -> Bool { base.freeReserve() }

  package func hasRoom(_ store: SQLJobStore) async -> Bool { await base.hasRoom(store) }

  package func close() { base.close() }
}

private final class CountedConnection: SQLConnection {
  private let base: any SQLConnection
  private let database: CountedSQLite
  private var counted = (steps: 0, changes: 0)

  init(_ base: any SQLConnection, of database: CountedSQLite) {
    (self.base, self.database) = (base, database)
  }

  var isUsable: Bool { base.isUsable }
  var isInTransaction: Bool { base.isInTransaction }

  func begin(isSynced: Bool, by deadline: Deadline) throws(Fault) {
    try base.begin(isSynced: isSynced, by: deadline)
    database.counts.withLock {
      $0.transactions += 1
      $0.syncedTransactions += isSynced ? 1 : 0
    }
  }

  func beginSnapshot(by deadline: Deadline) throws(Fault) {
    try base.beginSnapshot(by: deadline)
  }

  func execute(_ statement: SQLStatement, by deadline: Deadline) throws(Fault) -> Rows {
    try refuseFullScan(statement, by: deadline)
    let rows = try base.execute(statement, by: deadline)
    let work = SQLiteDatabase.work(of: base) ?? counted
    database.counts.withLock {
      $0.statements += 1
      $0.steps += work.steps - counted.steps
      $0.changes += work.changes - counted.changes
    }
    counted = work
    return rows
  }

  /// Fails if the statement reads a whole table, or a whole index, that may have millions of rows. Tests begin a statement
  /// that may with ``CountedSQLite/scans``. The two forms of a statement have different plans (`SQLiteDialect.rewritten`).
  private func refuseFullScan(_ statement: SQLStatement, by deadline: Deadline) throws(Fault) {
    let isForSingles = !statement.values.contains { $0.onlyElement == nil }
    let form = "\(isForSingles) \(statement.sql)"
    guard !statement.sql.hasPrefix(CountedSQLite.scans),
      ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"].contains(where: statement.sql.hasPrefix),
      !CountedSQLite.checked.withLock({ $0.contains(form) })
    else { return }
    let plan = try base.execute(
      SQLStatement("EXPLAIN QUERY PLAN " + statement.sql, statement.values), by: deadline)
    let steps = plan.all.map { String(decoding: plan.bytes($0, 3) ?? [], as: UTF8.self) }
    let partial = try partialIndexes(by: deadline)
    let wrong = steps.filter { FullScan.isFullScan($0, of: statement.sql, partial) }
    guard wrong.isEmpty else {
      throw .refused("this statement reads a whole table: \(statement.sql)\n\(steps)")
    }
    CountedSQLite.checked.withLock { _ = $0.insert(form) }
  }

  /// The indexes that contain only some rows of their table.
  private func partialIndexes(by deadline: Deadline) throws(Fault) -> Set<String> {
    let rows = try base.execute(
      SQLStatement("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql LIKE '% WHERE %'"),
      by: deadline)
    return Set(rows.all.map { String(decoding: rows.bytes($0, 0) ?? [], as: UTF8.self) })
  }

  func executeAll(_ statements: [SQLStatement], by deadline: Deadline) throws(Fault) -> [Rows] {
    var all: [Rows] = []
    for statement in statements { all.append(try execute(statement, by: deadline)) }
    return all
  }

  func enqueue(_ statement: SQLStatement, by deadline: Deadline) throws(Fault) {
    _ = try execute(statement, by: deadline)
  }

  func discardQueued() { base.discardQueued() }

  func run(_ script: String, by deadline: Deadline) throws(Fault) {
    try base.run(script, by: deadline)
  }

  func lock(_ lock: TransactionLock, by deadline: Deadline) throws(Fault) {
    try base.lock(lock, by: deadline)
  }

  func hasTable(_ name: String, by deadline: Deadline) throws(Fault) -> Bool {
    try base.hasTable(name, by: deadline)
  }
}

/// Finds steps of a query plan that read a whole large table (https://www.sqlite.org/eqp.html).
private enum FullScan {
  private static let tables: Set<String> = [
    "jobs", "queue", "cache", "images", "contents", "tags", "keys", "messages", "rejected_lines",
    "batches",
  ]

  /// - Parameter partial: The indexes that contain only some rows. Reading one of them is not a full scan.
  static func isFullScan(_ step: String, of sql: String, _ partial: Set<String>) -> Bool {
    guard
      let match = step.wholeMatch(
        of:
          /(SCAN|SEARCH) (\w+)(?: USING (.*?INDEX|PRIMARY KEY|INTEGER PRIMARY KEY)(?: (\w+))?)?(.*)/
      ),
      names(of: sql).contains(String(match.2))
    else { return false }
    let (isSearch, how, index) = (match.1 == "SEARCH", match.3, match.4.map { String($0) })
    // A search without an index looks for the smallest or greatest value of a column; `number` is the rowid.
    guard let how else {
      return isSearch ? !sql.contains("max(number)") : !readsFirstRows(of: String(match.2), sql)
    }
    if how.contains("AUTOMATIC") { return true }
    return !isSearch && !(index.map(partial.contains) ?? false) && !sql.contains("LIMIT")
  }

  /// The rowids of `cache` are in order of age.
  private static func readsFirstRows(of table: String, _ sql: String) -> Bool {
    table == "cache" && sql.contains("ORDER BY number LIMIT")
  }

  /// The names and aliases of large tables in a statement.
  private static func names(of sql: String) -> Set<String> {
    var names = tables
    for match in sql.matches(of: /\b(\w+) (?:AS )?(\w+)/) where tables.contains(String(match.1)) {
      names.insert(String(match.2))
    }
    return names
  }
}

/// Another program's connection to an SQLite database.
package final class SQLiteFile {
  private let connection: any SQLConnection

  /// Opens the database, or creates it.
  package init(_ path: String) throws {
    var configuration = SQLiteDatabase.Configuration(path: path)
    (configuration.locksFolder, configuration.isDurable) = (false, false)
    connection = try SQLiteDatabase(configuration).connectForSchema()
  }

  /// Runs statements without results.
  package func run(_ script: String) throws {
    try connection.run(script, by: .now + .seconds(60))
  }

  /// Runs a query.
  package func rows(_ query: String) throws -> Rows {
    try connection.execute(SQLStatement(query), by: .now + .seconds(60))
  }

  /// The first column of the first row, as a number.
  package func int(_ query: String) throws -> Int? { try rows(query).int(0, 0).map { Int($0) } }
}
