internal import CPQ
internal import Jobs
internal import Synchronization

/// A connection of one thread, made anew when it breaks: at once the first time, and then after a pause that doubles.
final class Session {
  /// What is the same for all of a store's sessions.
  struct Settings: Sendable {
    var address: Connection.Address
    /// For a transaction, or a look, to be done.
    var timeout: Duration
    /// What stands for the server's clock in tests.
    var now: WallClock?
    /// Is told of batches once a transaction is committed that may have ended them.
    let endingBatches = EndingBatches()

    /// The same for a thread's connection, which the server calls by the thread's name.
    func named(_ thread: String) -> Settings {
      var settings = self
      settings.address.application = "imagefetch \(thread)"
      return settings
    }

    /// Statements here look rows up by an index, and the tables' statistics, which lag behind a queue that fills and
    /// empties, must not talk the planner out of it. A plan is made once.
    static let plans = """
      SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; \
      SET plan_cache_mode = force_generic_plan; \
      SET default_transaction_isolation = 'read committed';
      """
  }

  let settings: Settings
  private var connection: Connection?
  private var retry: (after: ContinuousClock.Instant, pause: Duration, fault: Fault)?
  /// Milliseconds.
  private static let longestSilence: Int64 = 3_000
  private static let pauses = (first: Duration.milliseconds(50), longest: Duration.seconds(1))

  init(_ settings: Settings) { self.settings = settings }

  /// A connection that is not known to be broken.
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
    // The server gives a statement up when nobody waits for it any more, and sooner the locks of a process that stands
    // still in the midst of a transaction: others wait for them, and may have to take its jobs over.
    let timeout = max(1, settings.timeout.inMilliseconds)
    return """
      SET statement_timeout = \(timeout); \
      SET idle_in_transaction_session_timeout = \(min(timeout, Self.longestSilence)); \
      \(Settings.plans)
      """
  }

  /// Lets go of the connection: what was begun on it is undone by the server.
  func disconnect() { connection = nil }

  /// Runs a body within a transaction.
  /// - Parameters:
  ///   - isSynced: false for what only a crash of the server may undo.
  ///   - isCommitting: is set before the commit is sent: after that it is unknown what became of it if the connection breaks.
  func transaction<Value>(
    isSynced: Bool, isCommitting: inout Bool, _ body: (Transaction) throws -> Value
  ) throws -> Value {
    let connection = try connected()
    let mayBeCommitted = isCommitting
    let transaction = Transaction(connection, settings, isRepeated: mayBeCommitted)
    do {
      try transaction.add("BEGIN")
      if !isSynced { try transaction.add("SET LOCAL synchronous_commit = off") }
      let value = try body(transaction)
      try transaction.writeBatchTallies()
      try transaction.writeTallies()
      isCommitting = true
      try transaction.execute("COMMIT")
      settings.endingBatches.note(transaction.batches.touched)
      return value
    } catch {
      if connection.isUsable {
        // The server said no.
        isCommitting = mayBeCommitted
        undo(transaction, on: connection)
      }
      throw error
    }
  }

  /// Looks, each statement for itself, or those together that a body looks at by ``Transaction/atOneMoment(_:)``.
  func look<Value>(_ body: (Transaction) throws -> Value) throws -> Value {
    let connection = try connected()
    let transaction = Transaction(connection, settings)
    do { return try body(transaction) } catch {
      if connection.isUsable { undo(transaction, on: connection) }
      throw error
    }
  }

  /// Leaves nothing begun, and nothing to be sent with what comes next.
  private func undo(_ transaction: Transaction, on connection: Connection) {
    connection.forgetAdded()
    guard connection.isInTransaction else { return }
    do { try transaction.run("ROLLBACK") } catch { disconnect() }
  }
}

/// The database within one transaction, or one look at it. Only the thread that has the connection has one.
final class Transaction {
  private let connection: Connection
  private let deadline: Connection.Deadline
  private let enough: Connection.Deadline
  private let now: WallClock?
  /// Whether an earlier try of the same may have been committed.
  let isRepeated: Bool
  /// How the counts that the database keeps change by it.
  var tallies = Tallies()
  /// What it has done to make room.
  var givingWay = GivingWay()
  /// What it does to jobs of batches.
  var batches = BatchChanges()
  /// What it has forgotten of batches.
  var forgetting = Forgetting()
  /// Jobs that got their turn, which had to wait for what others did.
  var awakened = 0

  init(_ connection: Connection, _ settings: Session.Settings, isRepeated: Bool = false) {
    self.connection = connection
    self.isRepeated = isRepeated
    let begun = Connection.Deadline.now
    deadline = begun + settings.timeout
    enough = begun + settings.timeout / 50
    now = settings.now
  }

  /// The moment that stands for the server's, for the function of that name; NULL as a rule.
  var moment: SQLValue { .int(now?().milliseconds) }

  /// Whether it may do more of what the next transaction can do as well: others wait for the connection meanwhile, and
  /// beyond its deadline all of it would be undone. Usually for 200 ms.
  var hasTime: Bool { .now < enough }

  @discardableResult
  func execute(_ sql: String, _ values: [SQLValue] = []) throws(Fault) -> Rows {
    try connection.execute(sql, values, by: deadline)
  }

  /// Has a statement run ahead of the next one, in the same round trip: where it fails, that one does.
  func add(_ sql: String, _ values: [SQLValue] = []) throws(Fault) {
    try connection.add(sql, values, by: deadline)
  }

  @discardableResult
  func run(_ script: String) throws(Fault) -> Rows { try connection.run(script, by: deadline) }

  /// Has a look's statements see what there was at the first one, whatever is committed between them. Where one fails it
  /// is the look that ends it.
  func atOneMoment<Value>(_ body: () throws -> Value) throws -> Value {
    try add("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    let value = try body()
    try execute("COMMIT")
    return value
  }
}
