package import Jobs

// SQL: the job store, written once for every database that it supports.
//
// Input: calls of the protocols of the Jobs module, from any task. Output: their results, after the commit.
// A database (`SQLDatabase`) provides connections; the modules SQLite and PostgreSQL contain one each.
//
// Statements are written for PostgreSQL; SQLite rewrites what it spells otherwise. Read `SQLDatabase` first, then
// `Schema` (tables), `Session` (transactions), `RequestThreads` (threads) and the folders of the topics.

/// A database that holds the tables of a job store. Everything that depends on the kind of the database is here and in
/// ``SQLConnection``.
package protocol SQLDatabase: Sendable {
  /// Whether all transactions run on one thread and share commits, because the database has a single writer.
  var hasOneWriter: Bool { get }

  /// Whether a connection can break, so that it is unknown whether a transaction was committed.
  var losesAnswers: Bool { get }

  /// Connects, for the thread with this name. Blocks the calling thread.
  /// - Parameters:
  ///   - mayWrite: False if the connection only reads.
  ///   - timeout: The maximum duration of a transaction or a read.
  func connect(
    for thread: String, mayWrite: Bool, timeout: Duration
  ) throws(Fault) -> any SQLConnection

  /// Connects to change the tables, which may take long.
  func connectForSchema() throws(Fault) -> any SQLConnection

  /// What this database adds to the tables of ``Schema``, such as functions.
  var additions: String { get }

  /// Opens the channel of events between processes. Nil if only one process uses the database.
  func openChannel(_ settings: Session.Settings, _ bus: InstanceEventBus) -> (any EventChannel)?

  /// Whether the disk is almost full, so that only requests that free space are accepted.
  var isLow: Bool { get }

  /// Called after a transaction that adds nothing found the disk full. Frees space that was reserved for that case.
  /// - Returns: Whether the transaction can be tried again.
  func freeReserve() -> Bool

  /// Whether there is space for new records again. The call may free space itself.
  func hasRoom(_ store: SQLJobStore) async -> Bool

  /// Called after the last connection was closed.
  func close()
}

extension SQLDatabase {
  package var isLow: Bool { false }
  package func freeReserve() -> Bool { false }
  package func close() {}
}

/// One connection to a database. Only one thread uses it at a time.
///
/// No call blocks much longer than its deadline, if the database supports that.
package protocol SQLConnection: AnyObject {
  typealias Deadline = ContinuousClock.Instant

  /// False after the connection broke.
  var isUsable: Bool { get }

  /// Whether a transaction is open on this connection.
  var isInTransaction: Bool { get }

  /// Begins a transaction.
  /// - Parameter isSynced: False if a crash of the machine may undo it.
  func begin(isSynced: Bool, by deadline: Deadline) throws(Fault)

  /// Begins a transaction whose reads share one snapshot.
  func beginSnapshot(by deadline: Deadline) throws(Fault)

  /// Runs a statement. It is parsed only the first time.
  func execute(_ statement: SQLStatement, by deadline: Deadline) throws(Fault) -> Rows

  /// Runs statements, if possible in one round trip. If one fails, those after it are not run.
  /// - Returns: The rows of each statement.
  func executeAll(_ statements: [SQLStatement], by deadline: Deadline) throws(Fault) -> [Rows]

  /// Queues a statement that is sent with the next one. If it fails, the next one is not run and throws the error.
  func enqueue(_ statement: SQLStatement, by deadline: Deadline) throws(Fault)

  /// Discards queued statements that were not sent.
  func discardQueued()

  /// Runs statements without arguments and results.
  func run(_ script: String, by deadline: Deadline) throws(Fault)

  /// Takes a lock until the end of the transaction, so that transactions of other connections wait. Does nothing if the
  /// database has a single writer.
  func lock(_ lock: TransactionLock, by deadline: Deadline) throws(Fault)

  /// Whether the table exists.
  func hasTable(_ name: String, by deadline: Deadline) throws(Fault) -> Bool
}

/// What a transaction locks besides rows.
package enum TransactionLock {
  /// The tables themselves.
  case schema
  /// The choice of the next webhook messages.
  case messages
  /// The results of a batch's jobs: waits for the transactions that have passed ``checkResults(_:)``.
  case results(Int64)
  /// Fails with ``Fault/conflict(_:)`` if one of these batches was cancelled or purged, and lets none be cancelled before
  /// the commit.
  case checkResults([Int64])
}

/// Carries events between the processes that share a database.
package protocol EventChannel: Sendable {
  /// Adds an instance of this process.
  func addInstance(_ instance: Instance)

  /// Queues an event for the other processes and returns at once.
  func publish(_ event: InstanceEvent)

  /// Sends one event in the caller's transaction, and returns the other instances. One whose lease has expired counts
  /// too, until a recovery ends it, because it may still renew its lease. After the commit, each connection that
  /// listens receives the event before the answer to a later statement.
  func announce(
    _ event: InstanceEvent, from instance: Instance, in transaction: Transaction
  ) throws -> Set<Instance>

  /// Sends the last events and ends.
  func close() async
}
