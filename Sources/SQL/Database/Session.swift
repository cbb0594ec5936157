internal import Jobs
internal import Synchronization

/// One thread's connection. A broken connection is replaced at once the first time, and after a
/// doubling pause (50 ms to 1 s) if that fails.
package final class Session {
  /// Settings shared by all sessions of a store.
  package struct Settings: Sendable {
    var database: any SQLDatabase
    /// The maximum duration of a transaction or a read.
    package var timeout: Duration
    /// Replaces the database's clock in tests.
    var now: WallClock?
    /// Runs the requests in tests.
    let runner: (any RequestRunner)?
    /// Whether no other session ever writes, in this process or another one.
    let isOnlyWriter: Bool
    /// Receives the batches that a committed transaction may have finished.
    let endingBatches = PossiblyFinishedBatches()

    init(_ configuration: SQLJobStore.Configuration) {
      database = configuration.database
      timeout = configuration.timeout
      now = configuration.now
      runner = configuration.runner
      isOnlyWriter = configuration.database.hasOneWriter && !configuration.isShared
    }
  }

  package let settings: Settings
  /// The name of the thread.
  private let name: String
  private let mayWrite: Bool
  private var connection: (any SQLConnection)?
  /// The rows of counters to which this thread adds; see ``Counters/slots``.
  private let slot: Int
  /// See ``Transaction/knownSums``. After a failed transaction none is known.
  private var knownSums: [Counters.Name: Int]?
  private var retry: (after: ContinuousClock.Instant, pause: Duration, fault: Fault)?
  private static let pauses = (first: Duration.milliseconds(50), longest: Duration.seconds(1))

  package init(_ settings: Settings, named name: String, mayWrite: Bool = true) {
    (self.settings, self.name, self.mayWrite) = (settings, name, mayWrite)
    slot = settings.database.hasOneWriter ? 0 : .random(in: 0..<Counters.slots)
    knownSums = settings.isOnlyWriter ? [:] : nil
  }

  /// A session over an open connection.
  init(_ settings: Settings, over connection: any SQLConnection) {
    (self.settings, self.connection) = (settings, connection)
    (name, mayWrite, slot) = ("schema", true, 0)
  }

  /// Returns a working connection; connects if necessary.
  package func connected() throws(Fault) -> any SQLConnection {
    if let connection, connection.isUsable { return connection }
    connection = nil
    if let retry, retry.after > .now { throw retry.fault }
    do throws(Fault) {
      let new = try settings.database.connect(
        for: name, mayWrite: mayWrite, timeout: settings.timeout)
      (connection, retry) = (new, nil)
      return new
    } catch {
      let pause = retry.map { min($0.pause * 2, Self.pauses.longest) } ?? Self.pauses.first
      retry = (.now + pause, pause, error)
      throw error
    }
  }

  /// Closes the connection. The database rolls back an open transaction.
  package func disconnect() { connection = nil }

  /// Runs a body within a transaction.
  /// - Parameters:
  ///   - isSynced: `false` if a crash of the machine may undo the transaction.
  ///   - isCommitting: set before the commit is sent. If the connection breaks after that, the
  ///     result of the commit is unknown.
  func transaction<Value>(
    isSynced: Bool, isCommitting: inout Bool, _ body: (Transaction) throws -> Value
  ) throws -> Value {
    let connection = try connected()
    let mayBeCommitted = isCommitting
    let transaction = Transaction(
      connection, settings, slot: slot, isRepeated: mayBeCommitted)
    transaction.knownSums = exchange(&knownSums, with: settings.isOnlyWriter ? [:] : nil)
    do {
      try transaction.begin(isSynced: isSynced)
      let value = try body(transaction)
      try transaction.writeBatchCounters()
      try transaction.writeCounters()
      try transaction.checkBatchesOfResults()
      isCommitting = true
      try transaction.commit()
      knownSums = transaction.takeSums()
      settings.endingBatches.insert(transaction.batches.touched)
      return value
    } catch {
      if connection.isUsable {
        // The database has rejected the transaction, so it is not committed.
        isCommitting = mayBeCommitted
        rollBack(transaction, on: connection)
      }
      throw error
    }
  }

  /// Runs a body that only reads. Each statement sees its own snapshot, except within
  /// ``Transaction/withSnapshot(_:)``.
  package func read<Value>(_ body: (Transaction) throws -> Value) throws -> Value {
    let connection = try connected()
    let transaction = Transaction(connection, settings, slot: slot)
    do { return try body(transaction) } catch {
      if connection.isUsable { rollBack(transaction, on: connection) }
      throw error
    }
  }

  /// Rolls back an open transaction and discards unsent statements.
  private func rollBack(_ transaction: Transaction, on connection: any SQLConnection) {
    connection.discardQueued()
    guard connection.isInTransaction else { return }
    do { try transaction.execute("ROLLBACK") } catch { disconnect() }
  }
}

/// A transaction, or a group of reads. Only the thread that owns the connection uses it.
package final class Transaction {
  private let connection: any SQLConnection
  private let deadline: ContinuousClock.Instant
  private let enough: ContinuousClock.Instant
  private let now: WallClock?
  /// Whether no other transaction can write until this one ends; see ``SQLDatabase/hasOneWriter``.
  let hasOneWriter: Bool
  /// The rows of counters to which the transaction adds.
  let slot: Int
  /// Whether an earlier try of the same transaction may have been committed.
  let isRepeated: Bool
  /// The changes to the database's counters.
  var tallies = Counters()
  /// Counters as of before this transaction, which need not be read again; nil if other sessions write too.
  var knownSums: [Counters.Name: Int]?
  /// The state of evictions in this transaction.
  var evictions = EvictionState()
  /// The changes to jobs of batches.
  var batches = BatchChanges()
  /// The deleted batches and rejected lines.
  var forgetting = BatchDeletions()
  /// The number of jobs that became ready because the job or load that they waited for ended.
  var readyCount = 0

  fileprivate init(
    _ connection: any SQLConnection, _ settings: Session.Settings, slot: Int,
    isRepeated: Bool = false
  ) {
    self.connection = connection
    self.slot = slot
    self.isRepeated = isRepeated
    hasOneWriter = settings.database.hasOneWriter
    let begun = ContinuousClock.now
    deadline = begun + settings.timeout
    enough = begun + settings.timeout / 50
    now = settings.now
  }

  /// The argument of the SQL function `moment`: the time set by a test; normally NULL, which means
  /// the database's clock.
  var moment: SQLValue { .int(now?().milliseconds) }

  /// Whether there is time for optional work. Later transactions can do that work too, and this one
  /// must not hold up other callers or miss its deadline. True for the first 200 ms by default.
  var hasTime: Bool { .now < enough }

  fileprivate func begin(isSynced: Bool) throws(Fault) {
    try connection.begin(isSynced: isSynced, by: deadline)
  }

  fileprivate func commit() throws(Fault) { try execute("COMMIT") }

  @discardableResult
  package func execute(_ sql: String, _ values: [SQLValue] = []) throws(Fault) -> Rows {
    try connection.execute(SQLStatement(sql, values), by: deadline)
  }

  /// Runs statements, if possible in one round trip.
  /// - Returns: the rows of each statement.
  func executeAll(_ statements: [SQLStatement]) throws(Fault) -> [Rows] {
    try connection.executeAll(statements, by: deadline)
  }

  /// Queues a statement that is sent with the next one in the same round trip. If it fails, the
  /// next one throws the error.
  func add(_ sql: String, _ values: [SQLValue] = []) throws(Fault) {
    try connection.enqueue(SQLStatement(sql, values), by: deadline)
  }

  /// Runs statements without arguments and results.
  package func run(_ script: String) throws(Fault) { try connection.run(script, by: deadline) }

  func lock(_ lock: TransactionLock) throws(Fault) { try connection.lock(lock, by: deadline) }

  /// Runs reads that share one snapshot. If a statement fails, the enclosing read rolls back.
  func withSnapshot<Value>(_ body: () throws -> Value) throws -> Value {
    try connection.beginSnapshot(by: deadline)
    let value = try body()
    try execute("COMMIT")
    return value
  }
}
