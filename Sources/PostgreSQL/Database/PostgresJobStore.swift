internal import Executors
package import Jobs
internal import Logging
internal import Synchronization

/// Stores jobs, batches, the cache index and webhook messages in a PostgreSQL database, which
/// several instances can share.
///
/// Input: calls of the protocols of the Jobs module, from any task. Output: their results, after
/// the server has confirmed the commit. Memory holds no state that other instances need: the
/// database is the only source.
///
/// Each kind of work has its own threads and connections (``RequestThreads``), so that for example a
/// claim does not wait for the commit of submissions. Calls that wait at the same time are merged
/// into one transaction. Events go to other instances through ``EventConnection``.
///
/// Read in this order: PostgresSchema (tables), Session and PostgresConnection (transactions),
/// RequestThreads (threads), Submitting, Claiming with QueuedJobs and JobSelection, Changing
/// with JobChanges, References and Transaction+Eviction (eviction of images), Batches, Messages, Leases.
package final class PostgresJobStore: JobQueue, JobRecords, ImageReferences {
  /// The settings of the store.
  package struct Configuration: Sendable {
    /// `postgresql://user@host1,host2/database?…`, in libpq's syntax.
    var url: String
    /// Called for each new connection, on a thread of the store. If it returns `nil`, the password
    /// comes from the URL, PGPASSWORD or ~/.pgpass.
    package var password: @Sendable () -> String? = { nil }
    /// The maximum duration of a transaction or a read. After that the call fails and its
    /// connection is closed.
    var timeout: Duration = .seconds(10)
    /// The maximum duration of a renewal of the lease. It must be shorter than the lease: otherwise
    /// other instances take over while this one waits for a lost answer.
    package var leaseTimeout: Duration = .seconds(10)
    /// The maximum time to connect to one of the hosts.
    var connectTimeout: Duration = .seconds(3)
    /// The maximum number of operations in one transaction.
    var maxBatch = 512
    /// The number of connections that only read.
    var readers = 2
    /// The maximum size in bytes of images stored in the database. They are written by the
    /// transaction that completes their job.
    package var largestEmbedded = 64 << 10
    /// The identifier of the image store. The database records it at the first start and rejects
    /// any other later; `nil` skips this check.
    package var home: String?
    /// Whether the image store is empty.
    package var isHomeEmpty = true
    /// Whether other instances may use the store. False if the images are in a local folder that
    /// this instance has locked.
    package var isShared = false
    /// The instance's name and version, for display.
    package var name: String?
    package var version: String?
    /// The number of jobs that the instance loads at once, for display; `nil` if unknown.
    package var workers: Int?
    /// Replaces the server's clock in tests.
    package var now: WallClock?

    /// Creates a configuration with default settings.
    package init(url: String) { self.url = url }
  }

  let submitting: RequestThreads<SubmitRequest, SubmitAnswer>
  let writing: RequestThreads<WriteRequest, WriteResult>
  let claiming: RequestThreads<Body, Void>
  let reading: RequestThreads<Body, Void>
  let leaseThread: RequestThreads<Body, Void>
  let messaging: RequestThreads<Body, Void>
  let announcing: RequestThreads<Body, Void>
  let exchange = InstanceEventBus()
  let log = Logger(label: "store")
  /// The queue with which the next claim starts, and the earlier claims.
  let roundRobin = Mutex<(cursor: QueueCursor, served: ServedQueues)>(
    (QueueCursor(), ServedQueues()))
  /// The number of claims since the start. Each instance numbers its own claims.
  let claims = Atomic<Int64>(0)
  let unknownClaims = UncertainClaims()
  let endingBatches: PossiblyFinishedBatches
  /// The number of the last open batch that was checked. After the last batch, the next check
  /// starts from the first.
  let openBatches = Atomic<Int64>(0)
  /// Owners that were refused recently because the queue was full, for single jobs and for lines of
  /// batches.
  let (refusals, refusedLines) = (Refusals(), Refusals())
  /// Owners that were refused recently because of the limit on stored records.
  let refusedRecords = Refusals()
  package let largestEmbedded: Int
  let eventConnection: EventConnection
  let isShared: Bool
  /// The instance's name and version.
  let description: [String?]
  let workers: Int?

  /// True: a connection can break, and a call waits only for ``Configuration/timeout``.
  package var losesAnswers: Bool { true }

  /// Work for a thread with a connection. The body stores its result itself.
  typealias Body = @Sendable (Transaction) throws -> Void

  /// Connects to the server and updates the tables if necessary. Blocks the calling thread.
  ///
  /// - Throws: `.unavailable` if the server can't be reached or a newer release wrote the database.
  package init(_ configuration: Configuration) throws(StoreError) {
    let settings = Session.Settings(configuration)
    do {
      try Self.prepare(settings, configuration)
    } catch {
      throw StoreError(cause: error)
    }
    endingBatches = settings.endingBatches
    let limit = max(1, configuration.maxBatch)
    submitting = RequestThreads(
      named: "pg-submit", settings,
      .init(limit: limit, kind: { _ in 0 }) { [refusals, refusedRecords] in
        try $0.submit($1, isRepeated: $2, refusals, refusedRecords)
      })
    writing = RequestThreads(
      named: "pg-write", settings,
      .init(
        limit: limit, kind: \.kind, pacing: Pacing(WriteRequest.changes, .milliseconds(10)),
        isSynced: \.isSynced
      ) {
        try $0.write($1, isRepeated: $2)
      })
    let alone = RequestThreads<Body, Void>.Settings { transaction, tasks, _ in
      try tasks.map { .success(try $0(transaction)) }
    }
    var unsynced = alone
    // A claim may be lost in a crash of the server: its job is either queued, or requeued when the
    // lease ends.
    unsynced.isSynced = { _ in false }
    var looks = alone
    looks.writes = false
    claiming = RequestThreads(named: "pg-claim", settings, unsynced)
    reading = RequestThreads(
      named: "pg-read", threads: max(1, configuration.readers), settings, looks)
    var urgent = settings
    urgent.timeout = min(settings.timeout, configuration.leaseTimeout)
    leaseThread = RequestThreads(named: "pg-lease", urgent, alone)
    // A lost update means that a message is sent again.
    messaging = RequestThreads(named: "pg-messages", settings, unsynced)
    // Announcements that wait at the same time share a transaction.
    var merged = unsynced
    merged.kind = { _ in 0 }
    announcing = RequestThreads(named: "pg-announce", settings, merged)
    largestEmbedded = configuration.largestEmbedded
    eventConnection = EventConnection(settings, exchange)
    isShared = configuration.isShared
    description = [configuration.name, configuration.version]
    workers = configuration.workers
  }

  private static func prepare(
    _ settings: Session.Settings, _ configuration: Configuration
  ) throws {
    let session = try schemaSession(settings)
    try Schema.migrate(session)
    if let home = configuration.home {
      try Schema.claimDatabase(
        forImagesIn: home, isEmpty: configuration.isHomeEmpty, isShared: configuration.isShared,
        session)
    }
  }

  /// Opens a session for changes to the tables.
  private static func schemaSession(_ settings: Session.Settings) throws -> Session {
    // Migrations can take long, and other instances wait for them.
    var patient = settings
    patient.timeout = .seconds(600)
    // No other instance can take over from one that is starting, so wait longer than usual for a
    // busy server.
    patient.address.connectTimeout = max(15, patient.address.connectTimeout)
    let session = Session(patient)
    let version = try session.connected().serverVersion
    guard version >= 140_000 else {
      throw StoreError.unavailable(
        detail: "PostgreSQL \(version / 10_000) is too old: version 14 or later is required")
    }
    return session
  }

  /// Returns the version of a database's tables.
  ///
  /// - Throws: `.unavailable` if the server can't be reached or a newer release wrote the database.
  package static func versions(_ configuration: Configuration) throws(StoreError) -> TableVersions {
    do {
      return TableVersions(
        found: try Schema.version(schemaSession(Session.Settings(configuration))),
        latest: Schema.steps.count)
    } catch {
      throw StoreError(cause: error)
    }
  }

  /// Updates a database's tables. Instances may be running or waiting for the update.
  ///
  /// - Throws: `.unavailable` if the server can't be reached or a newer release wrote the database.
  package static func migrate(_ configuration: Configuration) throws(StoreError) {
    do { try Schema.migrate(schemaSession(Session.Settings(configuration))) } catch {
      throw StoreError(cause: error)
    }
  }

  /// Finishes the accepted requests and closes the connections. Later requests fail.
  package func close() async {
    await submitting.close()
    await writing.close()
    await claiming.close()
    await leaseThread.close()
    await messaging.close()
    await announcing.close()
    await reading.close()
    await eventConnection.close()
  }

  /// Publishes an event to the other processes that share the database.
  func publishToOtherProcesses(_ news: InstanceEvent) { eventConnection.publish(news) }

  /// The version of the linked PostgreSQL client library, such as `15.7`.
  package static var libraryVersion: String {
    let number = Connection.libraryVersion
    return "\(number / 10_000).\(number % 10_000)"
  }

  /// Returns whether libpq accepts a URL. Does not connect.
  package static func understands(_ url: String) -> Bool { Connection.understands(url) }
}

extension Session.Settings {
  init(_ configuration: PostgresJobStore.Configuration) {
    let seconds = Int(configuration.connectTimeout.components.seconds)
    address = Connection.Address(
      url: configuration.url, password: configuration.password, connectTimeout: max(2, seconds))
    timeout = configuration.timeout
    now = configuration.now
  }
}

/// Runs bodies on the threads of ``RequestThreads``.
extension PostgresJobStore {
  /// Carries a body's result back to the caller.
  private final class Slot<Value: Sendable>: Sendable {
    let value = Mutex<Value?>(nil)

    func get() throws(StoreError) -> Value {
      guard let value = value.withLock(\.self) else {
        throw .unavailable(detail: "the request did not run")
      }
      return value
    }
  }

  /// Runs a body that only reads. Each statement sees its own snapshot.
  func read<Value: Sendable>(
    _ body: @escaping @Sendable (Transaction) throws -> Value
  ) async throws(StoreError) -> Value {
    try await perform(on: reading, body)
  }

  /// Runs a body in its own transaction on one of these threads.
  func perform<Value: Sendable>(
    on lane: RequestThreads<Body, Void>, _ body: @escaping @Sendable (Transaction) throws -> Value
  ) async throws(StoreError) -> Value {
    let result = Slot<Value>()
    try await lane.perform { transaction in
      let value = try body(transaction)
      result.value.withLock { $0 = value }
    }
    return try result.get()
  }

  /// Runs a body in its own transaction on the thread that changes jobs and images.
  func write<Value: Sendable>(
    isSynced: Bool = true, _ body: @escaping @Sendable (Transaction) throws -> Value
  ) async throws(StoreError) -> Value {
    let result = Slot<Value>()
    _ = try await writing.perform(
      .task(isSynced: isSynced) { transaction in
        let value = try body(transaction)
        result.value.withLock { $0 = value }
      })
    return try result.get()
  }
}
