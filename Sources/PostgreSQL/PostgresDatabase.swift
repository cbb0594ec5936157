package import Jobs
package import SQL

// PostgreSQL: connects the job store (module SQL) to a PostgreSQL server, and carries events between the instances that share
// it.
//
// Read `PostgresDatabase` first, then `PostgresConnection` (libpq) and `EventConnection` (LISTEN and NOTIFY).

/// A PostgreSQL database, which several instances can share.
package struct PostgresDatabase: SQLDatabase {
  /// `postgresql://user@host1,host2/database?…`, in libpq's syntax.
  private let url: String
  /// Called for each new connection, on a thread of the store. If it returns `nil`, the password
  /// comes from the URL, PGPASSWORD or ~/.pgpass.
  package var password: @Sendable () -> String? = { nil }
  /// The maximum time to connect to one of the hosts.
  package var connectTimeout: Duration = .seconds(3)

  package init(url: String) { self.url = url }

  package var hasOneWriter: Bool { false }
  package var losesAnswers: Bool { true }

  package func connect(
    for thread: String, mayWrite: Bool, timeout: Duration
  ) throws(Fault) -> any SQLConnection {
    let seconds = Int(connectTimeout.components.seconds)
    let connection = try PostgresConnection(address(for: thread, connectTimeout: max(2, seconds)))
    // The server cancels a statement that the client no longer waits for. It ends a transaction
    // sooner if the client stalls within it, because other instances wait for its locks.
    let milliseconds = max(1, timeout.inMilliseconds)
    try connection.run(
      """
      SET statement_timeout = \(milliseconds); \
      SET idle_in_transaction_session_timeout = \(min(milliseconds, Self.longestSilence)); \
      \(Self.plans)
      """, by: .now + timeout)
    return connection
  }

  /// In milliseconds.
  private static let longestSilence: Int64 = 3_000

  /// All statements search by an index. The table statistics lag behind a queue that fills and
  /// empties, so other plans are disabled. Each plan is made once.
  private static let plans = """
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; \
    SET plan_cache_mode = force_generic_plan; \
    SET default_transaction_isolation = 'read committed';
    """

  private func address(
    for thread: String, connectTimeout: Int
  ) -> PostgresConnection.Address {
    PostgresConnection.Address(
      url: url, password: password, connectTimeout: connectTimeout,
      application: "imagefetch \(thread)")
  }

  /// No other instance can take over from one that is starting, so waits longer than usual for a busy server.
  package func connectForSchema() throws(Fault) -> any SQLConnection {
    let seconds = Int(connectTimeout.components.seconds)
    let connection = try PostgresConnection(
      address(for: "schema", connectTimeout: max(15, seconds)))
    guard connection.serverVersion >= 140_000 else {
      throw .refused(
        "PostgreSQL \(connection.serverVersion / 10_000) is too old: version 14 or later is required"
      )
    }
    return connection
  }

  package func openChannel(
    _ settings: Session.Settings, _ bus: InstanceEventBus
  ) -> (any EventChannel)? {
    EventConnection(settings, bus)
  }

  /// Writes 4 MiB of incompressible text to a temporary table, because PostgreSQL does not report the free space of its
  /// disk. Returns `true` if this fails for another reason: the next write reports the failure.
  package func hasRoom(_ store: SQLJobStore) async -> Bool {
    do throws(StoreError) {
      try await store.run(
        """
        CREATE TEMPORARY TABLE room ON COMMIT DROP AS
          SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 131072) n GROUP BY n % 1024
        """)
      return true
    } catch { return error != .full }
  }

  /// The version of the linked PostgreSQL client library, such as `15.7`.
  package static var libraryVersion: String {
    let number = PostgresConnection.libraryVersion
    return "\(number / 10_000).\(number % 10_000)"
  }

  /// Returns whether libpq accepts a URL. Does not connect.
  package static func understands(_ url: String) -> Bool { PostgresConnection.understands(url) }
}

/// Functions and sequences.
extension PostgresDatabase {
  package var additions: String {
    """
    CREATE SEQUENCE ranks;
    CREATE SEQUENCE ranks_ahead;
    CREATE SEQUENCE content_numbers;
    ALTER TABLE contents ALTER COLUMN bytes SET STORAGE EXTERNAL;
    \(Self.clock)
    \(Self.results)
    \(Self.sharing)
    """
  }

  // Only jobs in the queue need their ranks: a job that is queued again gets a new one.
  package func numbering(after instance: Int64) -> String {
    """
    SELECT setval(pg_get_serial_sequence('instances', 'number'), \(max(1, instance)));
    SELECT setval(pg_get_serial_sequence('batches', 'number'), max(number)) FROM batches;
    SELECT setval(pg_get_serial_sequence('cache', 'number'), max(number)) FROM cache;
    SELECT setval('content_numbers', max(number)) FROM contents;
    SELECT setval('ranks', greatest(max(rank), 1)), setval('ranks_ahead', greatest(-min(rank), 1)) FROM queue;
    """
  }

  /// The server's clock, which tests replace.
  private static let clock = """
    CREATE FUNCTION moment(given bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
      SELECT coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) $$;
    CREATE FUNCTION lease_moment(given bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT moment(given) $$;
    """

  // A transaction calls `check_batches` when jobs of batches succeed or fail, and `lock_batch` when it cancels a batch. Both
  // take advisory locks, because a lock on the row would also wait for transactions that add lines. Batches share 64 locks, so
  // that a transaction does not need thousands.
  private static let results = """
    CREATE FUNCTION lock_batch(number bigint) RETURNS void LANGUAGE sql AS $$
      SELECT pg_advisory_xact_lock(\(AdvisoryLock.batch), (number % 64)::int) $$;
    CREATE FUNCTION check_batches(numbers bigint[]) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
      lock int;
    BEGIN
      FOR lock IN SELECT DISTINCT n % 64 FROM unnest(numbers) n ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock_shared(\(AdvisoryLock.batch), lock);
      END LOOP;
      IF EXISTS (SELECT 1 FROM batches b WHERE b.number = ANY (numbers) AND b.stage >= 4) THEN
        RAISE serialization_failure USING MESSAGE = 'a batch was cancelled';
      END IF;
    END $$;
    """

  // A claim that starts transfers holds the advisory lock of each origin until its commit, so that it counts every transfer
  // there.
  //
  // The function lock_origins returns the origins whose lock another instance holds. It waits up to 200 ms for a lock and,
  // after the first timeout, for no other: a holder may hang. It waits on the lock instead of polling, because a process that
  // polls would come after those that wait.
  private static let sharing = """
    CREATE FUNCTION lock_origins(of_origins bytea[]) RETURNS SETOF bytea LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
    DECLARE
      what bytea;
      lock int;
      is_patient boolean := true;
      is_mine boolean;
    BEGIN
      FOR what, lock IN SELECT o, hashtext(encode(o, 'hex')) FROM unnest(of_origins) o ORDER BY 2 LOOP
        is_mine := pg_try_advisory_xact_lock(\(AdvisoryLock.origin), lock);
        IF NOT is_mine AND is_patient THEN
          BEGIN
            PERFORM pg_advisory_xact_lock(\(AdvisoryLock.origin), lock);
            is_mine := true;
          EXCEPTION WHEN lock_not_available THEN
            is_patient := false;
          END;
        END IF;
        IF NOT is_mine THEN
          RETURN NEXT what;
        END IF;
      END LOOP;
    END $$;

    """
}

/// The keys of the advisory locks.
private enum AdvisoryLock {
  static let schema = 7_210_014
  /// The first key; the second one is the hash of the origin's name.
  static let origin = 7_210_015
  static let messages = 7_210_016
  /// The first key; the second one is the batch's number modulo 64.
  static let batch = 7_210_017
}

extension PostgresConnection {
  func lock(_ lock: TransactionLock, by deadline: Deadline) throws(Fault) {
    switch lock {
    case .schema:
      _ = try execute(
        SQLStatement("SELECT pg_advisory_xact_lock(\(AdvisoryLock.schema))"), by: deadline)
    case .messages:
      _ = try execute(
        SQLStatement("SELECT pg_advisory_xact_lock(\(AdvisoryLock.messages))"), by: deadline)
    case .results(let batch):
      _ = try execute(SQLStatement("SELECT lock_batch($1)", [.int(batch)]), by: deadline)
    case .checkResults(let batches):
      try enqueue(SQLStatement("SELECT check_batches($1)", [.ints(batches)]), by: deadline)
    }
  }
}

extension SQLJobStore.Configuration {
  /// A store in a PostgreSQL database.
  package init(url: String) { self.init(PostgresDatabase(url: url)) }
}
