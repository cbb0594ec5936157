internal import Executors
package import Jobs
internal import Logging
internal import Synchronization

/// Stores jobs, batches, the cache index and webhook messages in an SQL database.
///
/// Input: calls of the protocols of the Jobs module, from any task. Output: their results, after
/// the database has confirmed the commit. Memory holds no state that other instances need: the
/// database is the only source.
///
/// If the database allows several writers, each kind of work has its own threads and connections (``RequestThreads``), so
/// that for example a claim does not wait for the commit of submissions; otherwise one thread does all of it. Calls that
/// wait at the same time are merged into one transaction. Events go to other instances through an ``EventChannel``.
///
/// Read in this order: SQLDatabase, Schema (tables), Session (transactions), RequestThreads (threads), Submitting,
/// Claiming with QueuedJobs, Changing, ImageReferences, Transaction+Eviction (eviction of images), Batches, Messages,
/// SQLJobStore+Leases. TableCopy copies all tables to another database.
package final class SQLJobStore: JobQueue, JobRecords, ImageReferences {
  /// The settings of the store.
  package struct Configuration: Sendable {
    package var database: any SQLDatabase
    /// The maximum duration of a transaction or a read. After that the call fails and its
    /// connection is closed.
    package var timeout: Duration = .seconds(10)
    /// The maximum duration of a renewal of the lease. It must be shorter than the lease: otherwise
    /// other instances take over while this one waits for a lost answer.
    package var leaseTimeout: Duration = .seconds(10)
    /// The maximum number of operations in one transaction.
    var maxBatch = 512
    /// The number of connections that only read.
    package var readers = 2
    /// The maximum size in bytes of images stored in the database. They are written by the
    /// transaction that completes their job, because a separate file would cost more.
    package var largestEmbedded = 64 << 10
    /// The identifier of the image store. The database records it at the first start and rejects
    /// any other later; `nil` skips this check.
    package var home: String?
    /// Whether the image store is empty.
    package var isHomeEmpty = true
    /// Whether the store is the target of a copy, which may be incomplete.
    package var isCopied = false
    /// Whether other instances may use the store. False if the images are in a local folder that
    /// this instance has locked.
    package var isShared = false
    /// The instance's name and version, for display.
    package var name: String?
    package var version: String?
    /// The number of jobs that the instance loads at once, for display; `nil` if unknown.
    package var workers: Int?
    /// The longest valid wait of a job for its next try. A later due time can only come from a clock that was set back.
    package var longestWait: Duration = .seconds(86_400)
    /// Replaces the database's clock in tests.
    package var now: WallClock?
    /// Runs the requests in place of the store's threads, in tests.
    package var runner: (any RequestRunner)?

    /// Creates a configuration with default settings.
    package init(_ database: any SQLDatabase) { self.database = database }
  }

  typealias Lane = RequestThreads<StoreRequest, StoreAnswer>

  let submitting: Lane
  let writing: Lane
  let claiming: Lane
  let reading: RequestThreads<Body, Void>
  let leaseThread: Lane
  let messaging: Lane
  let announcing: Lane
  private let database: any SQLDatabase
  /// Runs the requests in tests; nil: the threads do.
  package let runner: (any RequestRunner)?
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
  private let channel: (any EventChannel)?
  let isShared: Bool
  let longestWait: Duration
  /// The instance's name and version.
  let description: [String?]
  let workers: Int?

  /// Whether this process is the only one that can use the database.
  var hasOneWriter: Bool { database.hasOneWriter }

  /// See ``SQLDatabase/numbering(after:)``.
  func numbering(after instance: Int64) -> String { database.numbering(after: instance) }

  /// Whether a call can fail although its change was made.
  package var losesAnswers: Bool { database.losesAnswers }

  /// Work for a thread with a connection. The body stores its result itself.
  typealias Body = @Sendable (Transaction) throws -> Void

  /// Connects to the database and updates the tables if necessary. Blocks the calling thread.
  ///
  /// - Throws: `.unavailable` if the database can't be used or a newer release wrote it.
  package init(_ configuration: Configuration) throws(StoreError) {
    let settings = Session.Settings(configuration)
    do {
      try Self.prepare(settings, configuration)
    } catch {
      throw StoreError(cause: error)
    }
    database = configuration.database
    runner = configuration.runner
    endingBatches = settings.endingBatches
    longestWait = configuration.longestWait
    var work = Lane.Settings(
      limit: max(1, configuration.maxBatch), kind: \.kind, isSynced: \.isSynced,
      isAdding: \.isAdding
    ) { [refusals, refusedRecords] in
      try $0.perform($1, isRepeated: $2, refusals, refusedRecords)
    }
    if database.hasOneWriter {
      work.kind = { _ in 0 }
      let lane = Lane(named: "store-write", settings, work)
      (submitting, writing, claiming) = (lane, lane, lane)
      (leaseThread, messaging, announcing) = (lane, lane, lane)
    } else {
      submitting = Lane(named: "pg-submit", settings, work)
      var paced = work
      paced.pacing = Pacing(StoreRequest.changes, .milliseconds(10))
      writing = Lane(named: "pg-write", settings, paced)
      claiming = Lane(named: "pg-claim", settings, work)
      messaging = Lane(named: "pg-messages", settings, work)
      announcing = Lane(named: "pg-announce", settings, work)
      var urgent = settings
      urgent.timeout = min(settings.timeout, configuration.leaseTimeout)
      leaseThread = Lane(named: "pg-lease", urgent, work)
    }
    reading = RequestThreads(
      named: database.hasOneWriter ? "store-read" : "pg-read",
      threads: max(1, configuration.readers), settings,
      .init(writes: false) { transaction, tasks, _ in
        try tasks.map { .success(try $0(transaction)) }
      })
    largestEmbedded = configuration.largestEmbedded
    channel = database.openChannel(settings, exchange)
    isShared = configuration.isShared
    description = [configuration.name, configuration.version]
    workers = configuration.workers
  }

  private static func prepare(
    _ settings: Session.Settings, _ configuration: Configuration
  ) throws {
    let session = try schemaSession(settings)
    try Schema.migrate(session)
    if !configuration.isCopied { try session.read { try $0.checkCopyIsComplete() } }
    if let home = configuration.home {
      try Schema.claimDatabase(forImagesIn: home, isEmpty: configuration.isHomeEmpty, session)
    }
    if !configuration.isShared, configuration.home != nil || configuration.database.hasOneWriter {
      try Schema.endInstances(session)
    }
  }

  /// Opens a session for changes to the tables.
  private static func schemaSession(_ settings: Session.Settings) throws -> Session {
    // Migrations can take long, and other instances wait for them.
    var patient = settings
    patient.timeout = .seconds(600)
    return Session(patient, over: try settings.database.connectForSchema())
  }

  /// Returns the version of a database's tables.
  ///
  /// - Throws: `.unavailable` if the database can't be used or a newer release wrote it.
  package static func versions(_ configuration: Configuration) throws(StoreError) -> TableVersions {
    let connection: any SQLConnection
    do throws(Fault) { connection = try configuration.database.connectForSchema() } catch {
      throw StoreError(cause: error)
    }
    return try versions(over: connection)
  }

  /// Returns the version of a database's tables.
  package static func versions(
    over connection: any SQLConnection
  ) throws(StoreError) -> TableVersions {
    do {
      return TableVersions(found: try Schema.version(connection), latest: latestVersion)
    } catch {
      throw StoreError(cause: error)
    }
  }

  /// The version of the tables that this release creates.
  package static var latestVersion: Int { Schema.steps.count }

  /// Updates a database's tables. Instances may be running or waiting for the update.
  ///
  /// - Throws: `.unavailable` if the database can't be used or a newer release wrote it.
  package static func migrate(_ configuration: Configuration) throws(StoreError) {
    do { try Schema.migrate(schemaSession(Session.Settings(configuration))) } catch {
      throw StoreError(cause: error)
    }
  }

  /// Finishes the accepted requests and closes the connections. Later requests fail.
  package func close() async {
    for lane in [submitting, writing, claiming, leaseThread, messaging, announcing] {
      await lane.close()
    }
    await reading.close()
    await channel?.close()
    database.close()
  }

  /// Adds an instance of this process to the channel of events.
  func addInstance(_ instance: Instance) { channel?.addInstance(instance) }

  /// Publishes an event to the other processes that share the database.
  func publishToOtherProcesses(_ event: InstanceEvent) { channel?.publish(event) }

  /// Sends an event in its own transaction, which need not be on the disk. Announcements that wait at the same time share
  /// a transaction.
  func announceToOtherProcesses(
    _ event: InstanceEvent, from instance: Instance
  ) async throws(StoreError) -> Set<Instance> {
    guard let channel else { return [] }
    return try await perform(on: announcing, isSynced: false, isMerged: true) {
      try channel.announce(event, from: instance, in: $0)
    }
  }

  /// Whether the disk is almost full.
  package func isLow() async -> Bool { database.isLow }

  package func hasRoom() async -> Bool { await database.hasRoom(self) }
}

/// Runs bodies on the threads of ``RequestThreads``.
extension SQLJobStore {
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
  /// - Parameter call: the calling function of the store.
  func read<Value: Sendable>(
    for call: String = #function, _ body: @escaping @Sendable (Transaction) throws -> Value
  ) async throws(StoreError) -> Value {
    let result = Slot<Value>()
    let task: Body = { transaction in
      let value = try body(transaction)
      result.value.withLock { $0 = value }
    }
    try await reading.perform(task, for: call)
    return try result.get()
  }

  /// Like ``read(_:)``, for long reads on behalf of a request. If the task is cancelled before the
  /// read starts, it is skipped, so that later requests do not wait for it.
  func readUnlessCancelled<Value: Sendable>(
    for call: String = #function, _ body: @escaping @Sendable (Transaction) throws -> Value
  ) async throws(StoreError) -> Value {
    let isGone = CancellationFlag()
    let result = await withTaskCancellationHandler { () -> Result<Value, StoreError> in
      do throws(StoreError) {
        return .success(
          try await read(for: call) {
            guard !isGone.isSet else {
              throw StoreError.unavailable(detail: "the request was cancelled")
            }
            return try body($0)
          })
      } catch { return .failure(error) }
    } onCancel: {
      isGone.set()
    }
    return try result.get()
  }

  /// Runs a body in a transaction on one of these threads.
  /// - Parameters:
  ///   - isSynced: `false` if a crash of the machine may undo the transaction.
  ///   - isAdding: whether to reject the request if the disk is almost full.
  ///   - isMerged: whether the body can share a transaction with others.
  ///   - call: the calling function of the store.
  func perform<Value: Sendable>(
    on lane: Lane, isSynced: Bool = true, isAdding: Bool = false, isMerged: Bool = false,
    for call: String = #function,
    _ body: @escaping @Sendable (Transaction) throws -> Value
  ) async throws(StoreError) -> Value {
    let result = Slot<Value>()
    let task = StoreRequest.Task(isSynced: isSynced, isAdding: isAdding, isMerged: isMerged) {
      let value = try body($0)
      result.value.withLock { $0 = value }
    }
    _ = try await lane.perform(.task(task), for: call)
    return try result.get()
  }

  /// Runs statements without results in a transaction that a crash of the machine may undo.
  package func run(_ script: String) async throws(StoreError) {
    try await perform(on: messaging, isSynced: false) { try $0.run(script) }
  }

  /// Runs a body in its own transaction on the thread that changes jobs and images.
  func write<Value: Sendable>(
    isSynced: Bool = true, isAdding: Bool = false, for call: String = #function,
    _ body: @escaping @Sendable (Transaction) throws -> Value
  ) async throws(StoreError) -> Value {
    try await perform(on: writing, isSynced: isSynced, isAdding: isAdding, for: call, body)
  }
}

/// Tells a thread that the task of its caller was cancelled.
private final class CancellationFlag: Sendable {
  private let flag = Atomic(false)

  var isSet: Bool { flag.load(ordering: .relaxed) }

  func set() { flag.store(true, ordering: .relaxed) }
}

/// The schema versions of a store. Each schema change increases the version by one.
package struct TableVersions: Sendable, Equatable {
  /// The version of the store; 0 if it has no tables.
  package var found: Int
  /// The latest version that this release knows.
  package var latest: Int

  package init(found: Int, latest: Int) {
    self.found = found
    self.latest = latest
  }
}
