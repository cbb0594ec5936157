internal import CSQLite
internal import Jobs
internal import SQL
internal import Synchronization

/// One connection to an SQLite database. Only one thread uses it at a time.
///
/// Statements are written for PostgreSQL and rewritten by ``SQLiteDialect`` when they are first used.
final class SQLiteConnection: SQLConnection {
  private let handle: OpaquePointer
  private let functions: SQLiteFunctions
  private var prepared: [String: OpaquePointer] = [:]
  /// Statements for arrays that all have one element; see ``SQLiteDialect/rewritten(_:forSingles:)``.
  private var preparedForSingles: [String: OpaquePointer] = [:]
  /// The log of the database, if this connection has to sync it.
  private var log: DatabaseLog?
  /// Whether a commit is synced before it returns.
  private var syncs = true

  /// Opens the database.
  /// - Parameters:
  ///   - log: nil if nothing has to survive a crash of the machine.
  ///   - clock: the clock of the SQL function `moment`.
  ///   - leaseClock: the clock of the SQL function `lease_moment`.
  init(
    _ path: String, mayWrite: Bool, log: DatabaseLog?, clock: @escaping WallClock,
    leaseClock: @escaping WallClock
  ) throws(Fault) {
    SQLiteLibrary.configure
    var handle: OpaquePointer?
    let access = mayWrite ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY
    let code = sqlite3_open_v2(
      path, &handle, access | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nil)
    guard let handle else { throw .refused("SQLite: there is no memory for a connection") }
    self.handle = handle
    self.log = log
    functions = SQLiteFunctions(clock, leaseClock)
    guard code == SQLITE_OK else { throw fault(code) }
    functions.add(to: handle)
    guard csqlite_add_elements(handle) == SQLITE_OK, csqlite_keep_plans(handle) == SQLITE_OK else {
      throw fault(sqlite3_errcode(handle))
    }
  }

  deinit {
    for statement in [prepared, preparedForSingles].joined() { sqlite3_finalize(statement.value) }
    sqlite3_close_v2(handle)
  }

  /// Always true: the database is in this process.
  var isUsable: Bool { true }

  var isInTransaction: Bool { sqlite3_get_autocommit(handle) == 0 }

  /// The number that the next ranks of this process begin with.
  func setRun(_ number: Int64) { functions.setRun(number) }

  /// Rewrites the log first if a sync has failed, so that no commit is promised on top of a damaged log. Sets whether the
  /// commit is synced before it returns (https://www.sqlite.org/pragma.html#pragma_synchronous).
  func begin(isSynced: Bool, by deadline: Deadline) throws(Fault) {
    try log?.repair()
    if log != nil, isSynced != syncs {
      _ = try execute(
        SQLStatement("PRAGMA synchronous = \(isSynced ? "FULL" : "NORMAL")"), by: deadline)
      syncs = isSynced
    }
    _ = try execute(SQLStatement("BEGIN IMMEDIATE"), by: deadline)
  }

  func beginSnapshot(by deadline: Deadline) throws(Fault) {
    _ = try execute(SQLStatement("BEGIN"), by: deadline)
  }

  func executeAll(_ statements: [SQLStatement], by deadline: Deadline) throws(Fault) -> [Rows] {
    var all: [Rows] = []
    for statement in statements { all.append(try execute(statement, by: deadline)) }
    return all
  }

  /// Runs the statement at once.
  func enqueue(_ statement: SQLStatement, by deadline: Deadline) throws(Fault) {
    _ = try execute(statement, by: deadline)
  }

  func discardQueued() {}

  /// Does nothing: a write transaction excludes all others.
  func lock(_ lock: TransactionLock, by deadline: Deadline) throws(Fault) {}

  func hasTable(_ name: String, by deadline: Deadline) throws(Fault) -> Bool {
    try execute(
      SQLStatement("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '\(name)'"),
      by: deadline
    ).count > 0
  }

  func run(_ script: String, by deadline: Deadline) throws(Fault) {
    let code = sqlite3_exec(handle, SQLiteDialect.rewritten(script), nil, nil, nil)
    guard code == SQLITE_OK else { throw fault(code) }
  }

  func execute(_ statement: SQLStatement, by deadline: Deadline) throws(Fault) -> Rows {
    let singles = Self.singles(statement.values)
    let prepared = try prepare(statement.sql, forSingles: singles != nil)
    defer {
      sqlite3_reset(prepared)
      // Large arguments are not kept until the next use.
      sqlite3_clear_bindings(prepared)
    }
    for (index, value) in (singles ?? statement.values).enumerated() {
      bind(value, to: prepared, Int32(index + 1))
    }
    var cells = SQLiteCells(columns: Int(sqlite3_column_count(prepared)))
    while true {
      switch sqlite3_step(prepared) {
      case SQLITE_ROW: cells.append(prepared)
      case SQLITE_DONE:
        cells.changes = cells.columns == 0 ? Int(sqlite3_changes(handle)) : cells.count
        return Rows(cells)
      case let code: throw fault(code)
      }
    }
  }

  /// Returns the elements of the arrays if each array has one element; nil if not, or if there is no array.
  private static func singles(_ values: [SQLValue]) -> [SQLValue]? {
    guard values.contains(where: \.isArray) else { return nil }
    let elements = values.compactMap(\.onlyElement)
    return elements.count == values.count ? elements : nil
  }

  private func prepare(_ sql: String, forSingles: Bool) throws(Fault) -> OpaquePointer {
    if let statement = forSingles ? preparedForSingles[sql] : prepared[sql] { return statement }
    var statement: OpaquePointer?
    let code = sqlite3_prepare_v3(
      handle, SQLiteDialect.rewritten(sql, forSingles: forSingles), -1,
      UInt32(SQLITE_PREPARE_PERSISTENT), &statement, nil)
    guard code == SQLITE_OK, let statement else { throw fault(code) }
    if forSingles { preparedForSingles[sql] = statement } else { prepared[sql] = statement }
    return statement
  }

  private func bind(_ value: SQLValue, to statement: OpaquePointer, _ index: Int32) {
    switch value {
    case .int(let number?): sqlite3_bind_int64(statement, index, number)
    case .bool(let flag): sqlite3_bind_int(statement, index, flag ? 1 : 0)
    default:
      guard let bytes = value.encoded else {
        sqlite3_bind_null(statement, index)
        return
      }
      _ = bytes.withUnsafeBytes {
        csqlite_bind_blob(statement, index, $0.baseAddress, Int32($0.count))
      }
    }
  }

  private func fault(_ code: Int32) -> Fault {
    let text = "SQLite: \(String(cString: sqlite3_errmsg(handle))) (\(code))"
    switch code & 0xFF {
    case SQLITE_FULL: return .full
    case SQLITE_BUSY, SQLITE_LOCKED: return .conflict(text)
    // SQLite reports ENOSPC as SQLITE_FULL, except for the shared memory file, which grows with the log.
    case SQLITE_IOERR where code == SQLITE_IOERR | 19 << 8: return .full
    default: return .refused(text)
    }
  }

  /// See ``SQLiteDatabase/work(of:)``.
  var work: (steps: Int, changes: Int, reparses: Int) {
    func sum(_ counter: Int32) -> Int {
      [prepared, preparedForSingles].joined().reduce(0) {
        $0 + Int(sqlite3_stmt_status($1.value, counter, 0))
      }
    }
    return (
      sum(SQLITE_STMTSTATUS_VM_STEP), Int(sqlite3_total_changes(handle)),
      sum(SQLITE_STMTSTATUS_REPREPARE)
    )
  }
}

/// The cells of a result, copied.
private struct SQLiteCells: ResultCells {
  private enum Cell {
    case null
    case int(Int64)
    /// A range of ``bytes``.
    case bytes(Range<Int>)
  }

  let columns: Int
  private(set) var count = 0
  var changes = 0
  private var cells: [Cell] = []
  private var bytes: [UInt8] = []

  init(columns: Int) { self.columns = columns }

  mutating func append(_ statement: OpaquePointer) {
    count += 1
    for column in 0..<Int32(columns) {
      switch sqlite3_column_type(statement, column) {
      case SQLITE_NULL: cells.append(.null)
      case SQLITE_INTEGER: cells.append(.int(sqlite3_column_int64(statement, column)))
      default:
        let start = bytes.count
        if let blob = sqlite3_column_blob(statement, column) {
          let size = Int(sqlite3_column_bytes(statement, column))
          bytes.append(contentsOf: UnsafeRawBufferPointer(start: blob, count: size))
        }
        cells.append(.bytes(start..<bytes.count))
      }
    }
  }

  private func cell(_ row: Int, _ column: Int) -> Cell { cells[row * columns + column] }

  func int(_ row: Int, _ column: Int) -> Int64? {
    if case .int(let number) = cell(row, column) { number } else { nil }
  }

  func withBytes<Value>(
    _ row: Int, _ column: Int, _ body: (UnsafeRawBufferPointer) -> Value?
  ) -> Value? {
    guard case .bytes(let range) = cell(row, column) else { return nil }
    return bytes.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[range])) }
  }
}

/// The SQL functions that the statements use and SQLite does not have: the clocks and the sequences.
private final class SQLiteFunctions {
  private let clock, leaseClock: WallClock
  /// The upper bits of the numbers, so that no number of an earlier process is used again.
  private var run: Int64 = 0
  private var numbers: [String: Int64] = [:]

  init(_ clock: @escaping WallClock, _ leaseClock: @escaping WallClock) {
    (self.clock, self.leaseClock) = (clock, leaseClock)
  }

  func setRun(_ number: Int64) { (run, numbers) = (number, [:]) }

  private func next(_ name: String) -> Int64 {
    let number = numbers[name, default: 0] + 1
    numbers[name] = number
    return run << 40 | number
  }

  /// The connection must not outlive this object.
  func add(to handle: OpaquePointer) {
    let context = Unmanaged.passUnretained(self).toOpaque()
    sqlite3_create_function(
      handle, "moment", 1, SQLITE_UTF8, context,
      { context, _, arguments in
        SQLiteFunctions.answer(context, arguments, SQLiteFunctions.of(context).clock)
      }, nil, nil)
    sqlite3_create_function(
      handle, "lease_moment", 1, SQLITE_UTF8, context,
      { context, _, arguments in
        SQLiteFunctions.answer(context, arguments, SQLiteFunctions.of(context).leaseClock)
      }, nil, nil)
    sqlite3_create_function(
      handle, "nextval", 1, SQLITE_UTF8, context,
      { context, _, arguments in
        guard let name = arguments.flatMap({ sqlite3_value_text($0[0]) }) else { return }
        sqlite3_result_int64(context, SQLiteFunctions.of(context).next(String(cString: name)))
      }, nil, nil)
  }

  /// Returns the given time, or that of the clock.
  private static func answer(
    _ context: OpaquePointer?, _ arguments: UnsafeMutablePointer<OpaquePointer?>?,
    _ clock: WallClock
  ) {
    guard let given = arguments?[0] else { return }
    guard sqlite3_value_type(given) == SQLITE_NULL else {
      return sqlite3_result_value(context, given)
    }
    sqlite3_result_int64(context, clock().milliseconds)
  }

  private static func of(_ context: OpaquePointer?) -> SQLiteFunctions {
    Unmanaged<SQLiteFunctions>.fromOpaque(sqlite3_user_data(context)).takeUnretainedValue()
  }
}

/// Rewrites statements and table definitions from PostgreSQL's SQL to SQLite's.
///
/// The statements of the module SQL use only what both have and what these rules know. The tests of the store run on both
/// databases, so a construct without a rule fails there.
enum SQLiteDialect {
  // Compiled once: compiling takes longer than the search.
  nonisolated(unsafe) private static let lock =
    /\s+FOR (?:NO KEY UPDATE|KEY SHARE|UPDATE|SHARE)(?: OF \w+)?(?: SKIP LOCKED)?/
  nonisolated(unsafe) private static let cast = /::(?:bigint|bytea|uuid|int|text)/
  nonisolated(unsafe) private static let greatest = /\bgreatest\(/
  nonisolated(unsafe) private static let least = /\bleast\(/
  nonisolated(unsafe) private static let anyOf = /= ANY \((\$\d+)\)/
  nonisolated(unsafe) private static let noneOf = /<> ALL \((\$\d+)\)/
  nonisolated(unsafe) private static let unnest = /unnest\(([^)]*)\)\s+AS (\w+) \(([^)]*)\)/
  nonisolated(unsafe) private static let unnestAll = /SELECT \* FROM unnest\(([^)]*)\)/
  nonisolated(unsafe) private static let argument = /\$(\d+)/

  /// Returns the text for SQLite.
  ///
  /// Most transactions concern one job. For arrays with one element, SQLite would fill a temporary table with it, so there is
  /// a second form of each statement.
  /// - Parameter forSingles: Whether each array has one element, and that element is passed in its place.
  static func rewritten(_ sql: String, forSingles: Bool = false) -> String {
    if let text = known.withLock({ $0[forSingles]?[sql] }) { return text }
    let text = rewrite(sql, forSingles: forSingles)
    known.withLock { $0[forSingles, default: [:]][sql] = text }
    return text
  }

  /// The rewritten texts, for further connections. Statements have arguments in place of values, so there are few texts.
  private static let known = Mutex<[Bool: [String: String]]>([:])

  private static func rewrite(_ sql: String, forSingles: Bool) -> String {
    var text = sql
    // Rows are not locked one by one: a write transaction excludes all others.
    text.replace(lock, with: "")
    text.replace(cast, with: "")
    text.replace(greatest, with: "max(")
    text.replace(least, with: "min(")
    if forSingles { replaceArraysByElements(in: &text) }
    // Arrays.
    text.replace(anyOf) { "IN (SELECT c1 FROM elements(\($0.1)))" }
    text.replace(noneOf) { "NOT IN (SELECT c1 FROM elements(\($0.1)))" }
    text.replace(unnest) { match in
      let names = match.3.split(separator: ",").enumerated().map { index, name in
        "c\(index + 1) AS \(name.filter { !$0.isWhitespace })"
      }
      return "(SELECT \(names.joined(separator: ", ")) FROM elements(\(match.1))) AS \(match.2)"
    }
    text.replace(unnestAll) { match in
      let columns = (1...match.1.split(separator: ",").count).map { "c\($0)" }
      return "SELECT \(columns.joined(separator: ", ")) FROM elements(\(match.1))"
    }
    text.replace(argument) { "?\($0.1)" }
    return text.contains("CREATE TABLE") ? tables(text) : text
  }

  private static func replaceArraysByElements(in text: inout String) {
    text.replace(anyOf) { "= \($0.1)" }
    text.replace(noneOf) { "<> \($0.1)" }
    text.replace(unnest) { match in
      let columns = zip(match.1.split(separator: ","), match.3.split(separator: ",")).map {
        "\($0) AS \($1.filter { !$0.isWhitespace })"
      }
      return "(SELECT \(columns.joined(separator: ", "))) AS \(match.2)"
    }
    text.replace(unnestAll) { "SELECT \($0.1)" }
  }

  /// Rewrites table definitions.
  private static func tables(_ sql: String) -> String {
    var text = sql
    text.replace(#/ WITH \([^;]*\);/#, with: ";")
    text.replace(
      "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
      with: "INTEGER PRIMARY KEY AUTOINCREMENT")
    text.replace("bigint PRIMARY KEY", with: "INTEGER PRIMARY KEY")
    text.replace(/\b(?:bigint|smallint|int|boolean)\b/, with: "INTEGER")
    text.replace(/\b(?:bytea|uuid)\b/, with: "BLOB")
    text.replace(/\btext\b/, with: "TEXT")
    // Tables with large values keep them apart from the index of their keys.
    text.replace(/CREATE TABLE ([^;]*)\)(;|$)/) { match in
      let isLarge =
        match.1.contains("INTEGER PRIMARY KEY") || match.1.contains(/\b(record|bytes) BLOB/)
      return "CREATE TABLE \(match.1)) STRICT\(isLarge ? "" : ", WITHOUT ROWID")\(match.2)"
    }
    return text
  }
}
