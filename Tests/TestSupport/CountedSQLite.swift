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
    /// Statements that SQLite parsed again, although the connection keeps them.
    package var reparses = 0

    package static func - (later: Work, earlier: Work) -> Work {
      Work(
        transactions: later.transactions - earlier.transactions,
        syncedTransactions: later.syncedTransactions - earlier.syncedTransactions,
        statements: later.statements - earlier.statements, steps: later.steps - earlier.steps,
        changes: later.changes - earlier.changes, reparses: later.reparses - earlier.reparses)
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
  private var counted = (steps: 0, changes: 0, reparses: 0)

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
      $0.reparses += work.reparses - counted.reparses
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
    let wrong = steps.filter { FullScan.isFullScan($0, in: steps, of: statement.sql, partial) }
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
