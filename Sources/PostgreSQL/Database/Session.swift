internal import CPQ
internal import Jobs
internal import Synchronization

/// One thread's connection. A broken connection is replaced at once the first time, and after a
/// doubling pause (50 ms to 1 s) if that fails.
final class Session {
  /// Settings shared by all sessions of a store.
  struct Settings: Sendable {
    var address: Connection.Address
    /// The maximum duration of a transaction or a read.
    var timeout: Duration
    /// Replaces the server's clock in tests.
    var now: WallClock?
    /// Receives the batches that a committed transaction may have finished.
    let endingBatches = PossiblyFinishedBatches()

    /// Returns the settings for a thread, whose name appears in the connection's application name.
    func named(_ thread: String) -> Settings {
      var settings = self
      settings.address.application = "imagefetch \(thread)"
      return settings
    }

    /// All statements search by an index. The table statistics lag behind a queue that fills and
    /// empties, so other plans are disabled. Each plan is made once.
    static let plans = """
      SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; \
      SET plan_cache_mode = force_generic_plan; \
      SET default_transaction_isolation = 'read committed';
      """
  }

  let settings: Settings
  private var connection: Connection?
  /// The rows of counters to which this thread adds; see ``Counters/slots``.
  private let slot = Int.random(in: 0..<Counters.slots)
  private var retry: (after: ContinuousClock.Instant, pause: Duration, fault: Fault)?
  /// In milliseconds.
  private static let longestSilence: Int64 = 3_000
  private static let pauses = (first: Duration.milliseconds(50), longest: Duration.seconds(1))

  init(_ settings: Settings) { self.settings = settings }

  /// Returns a working connection; connects if necessary.
  func connected() throws(Fault) -> Connection {
    if let connection, connection.isUsable { return connection }
    connection = nil
    if let retry, retry.after > .now { throw retry.fault }
    do throws(Fault) {
      let new = try Connection(settings.address)
      try new.run(
        Self.preparation(settings), by: .now + settings.timeout)
      (connection, retry) = (new, nil)
      return new
    } catch {
      let pause = retry.map { min($0.pause * 2, Self.pauses.longest) } ?? Self.pauses.first
      retry = (.now + pause, pause, error)
      throw error
    }
  }

  private static func preparation(_ settings: Settings) -> String {
    // The server cancels a statement that the client no longer waits for. It ends a transaction
    // sooner if the client stalls within it, because other instances wait for its locks.
    let timeout = max(1, settings.timeout.inMilliseconds)
    return """
      SET statement_timeout = \(timeout); \
      SET idle_in_transaction_session_timeout = \(min(timeout, Self.longestSilence)); \
      \(Settings.plans)
      """
  }

  /// Closes the connection. The server rolls back an open transaction.
  func disconnect() { connection = nil }

  /// Runs a body within a transaction.
  /// - Parameters:
  ///   - isSynced: `false` if a crash of the server may undo the transaction.
  ///   - isCommitting: set before the commit is sent. If the connection breaks after that, the
  ///     result of the commit is unknown.
  func transaction<Value>(
    isSynced: Bool, isCommitting: inout Bool, _ body: (Transaction) throws -> Value
  ) throws -> Value {
    let connection = try connected()
    let mayBeCommitted = isCommitting
    let transaction = Transaction(
      connection, settings, slot: slot, isRepeated: mayBeCommitted)
    do {
      try transaction.add("BEGIN")
      if !isSynced { try transaction.add("SET LOCAL synchronous_commit = off") }
      let value = try body(transaction)
      try transaction.writeBatchCounters()
      try transaction.writeCounters()
      try transaction.checkBatchesOfResults()
      isCommitting = true
      try transaction.execute("COMMIT")
      settings.endingBatches.insert(transaction.batches.touched)
      return value
    } catch {
      if connection.isUsable {
        // The server has rejected the transaction, so it is not committed.
        isCommitting = mayBeCommitted
        rollBack(transaction, on: connection)
      }
      throw error
    }
  }

  /// Runs a body that only reads. Each statement sees its own snapshot, except within
  /// ``Transaction/withSnapshot(_:)``.
  func read<Value>(_ body: (Transaction) throws -> Value) throws -> Value {
    let connection = try connected()
    let transaction = Transaction(connection, settings, slot: slot)
    do { return try body(transaction) } catch {
      if connection.isUsable { rollBack(transaction, on: connection) }
      throw error
    }
  }

  /// Rolls back an open transaction and discards unsent statements.
  private func rollBack(_ transaction: Transaction, on connection: Connection) {
    connection.discardQueued()
    guard connection.isInTransaction else { return }
    do { try transaction.run("ROLLBACK") } catch { disconnect() }
  }
}

/// A transaction, or a group of reads. Only the thread that owns the connection uses it.
final class Transaction {
  private let connection: Connection
  private let deadline: Connection.Deadline
  private let enough: Connection.Deadline
  private let now: WallClock?
  /// The rows of counters to which the transaction adds.
  let slot: Int
  /// Whether an earlier try of the same transaction may have been committed.
  let isRepeated: Bool
  /// The changes to the database's counters.
  var tallies = Counters()
  /// The state of evictions in this transaction.
  var evictions = EvictionState()
  /// The changes to jobs of batches.
  var batches = BatchChanges()
  /// The deleted batches and rejected lines.
  var forgetting = BatchDeletions()
  /// The number of jobs that became ready because the job or load that they waited for ended.
  var readyCount = 0

  init(
    _ connection: Connection, _ settings: Session.Settings, slot: Int, isRepeated: Bool = false
  ) {
    self.connection = connection
    self.slot = slot
    self.isRepeated = isRepeated
    let begun = Connection.Deadline.now
    deadline = begun + settings.timeout
    enough = begun + settings.timeout / 50
    now = settings.now
  }

  /// The argument of the SQL function `moment`: the time set by a test; normally NULL, which means
  /// the server's clock.
  var moment: SQLValue { .int(now?().milliseconds) }

  /// Whether there is time for optional work. Later transactions can do that work too, and this one
  /// must not hold up other callers or miss its deadline. True for the first 200 ms by default.
  var hasTime: Bool { .now < enough }

  @discardableResult
  func execute(_ sql: String, _ values: [SQLValue] = []) throws(Fault) -> Rows {
    try connection.execute(sql, values, by: deadline)
  }

  /// Queues a statement that is sent with the next one in the same round trip. If it fails, the
  /// next one throws the error.
  func add(_ sql: String, _ values: [SQLValue] = []) throws(Fault) {
    try connection.enqueue(sql, values, by: deadline)
  }

  /// Runs statements in one round trip.
  /// - Returns: the rows of each statement.
  func executeAll(_ statements: [SQLStatement]) throws(Fault) -> [Rows] {
    try connection.executeAll(statements, by: deadline)
  }

  @discardableResult
  func run(_ script: String) throws(Fault) -> Rows { try connection.run(script, by: deadline) }

  /// Runs reads that share one snapshot. If a statement fails, the enclosing read rolls back.
  func withSnapshot<Value>(_ body: () throws -> Value) throws -> Value {
    try add("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    let value = try body()
    try execute("COMMIT")
    return value
  }
}
