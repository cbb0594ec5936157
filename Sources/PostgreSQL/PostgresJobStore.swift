internal import Executors
public import Jobs
internal import Logging
internal import Synchronization

/// Keeps jobs in a PostgreSQL database, which many services may share.
///
/// What changes something returns once the server says that it is committed; callers that wait at the same time share
/// a transaction. Each kind of work has a thread and a connection of its own, so that a claim waits for no commit of
/// submissions. Nothing that counts is held in memory: what the server has is the truth.
public final class PostgresJobStore: JobQueue, JobRecords, ImageReferences {
  /// Where the database is, and how long to wait for it.
  public struct Configuration: Sendable {
    /// `postgresql://user@host1,host2/database?…`, as libpq takes it.
    public var url: String
    /// Asked for each connection, on a thread of the store's; nil: the URL's, PGPASSWORD's or that of ~/.pgpass.
    public var password: @Sendable () -> String? = { nil }
    /// For a transaction, or a look, to be done; after that the call fails and its connection is closed.
    public var timeout: Duration = .seconds(10)
    /// For a lease to be renewed: within it, or others take over while this one waits for an answer that is lost.
    public var leaseTimeout: Duration = .seconds(10)
    /// For one of the hosts to be connected with.
    public var connectTimeout: Duration = .seconds(3)
    /// Operations in one transaction, at the most.
    public var maxBatch = 512
    /// Connections that only look.
    public var readers = 2
    /// Images of up to so many bytes are kept in the database, by the transaction that ends their job.
    public var largestEmbedded = 64 << 10
    /// The name of the one place that has the images, which the database knows after the first start; nil: any.
    public var home: String?
    /// Whether there are no images yet.
    public var isHomeEmpty = true
    /// Whether other instances may live: not where the images are in a folder that this one has locked.
    public var isShared = false
    /// What this process is called, and what release it is, for people.
    public var name: String?
    public var version: String?
    /// Where other instances reach it.
    public var address: String?
    /// Jobs that it loads at once, for people; nil: not said.
    public var workers: Int?
    /// What stands for the server's clock, in tests; nil: the server's.
    public var now: WallClock?

    /// A database, everything else as it usually is.
    public init(url: String) { self.url = url }
  }

  let submitting: Lane<SubmitRequest, SubmitAnswer>
  let writing: Lane<WriteRequest, WriteAnswer>
  let claiming: Lane<Body, Void>
  let reading: Lane<Body, Void>
  let holding: Lane<Body, Void>
  let messaging: Lane<Body, Void>
  let exchange = NewsExchange()
  let log = Logger(label: "store")
  /// Jobs handed over in the queue's order, since the start.
  let handedOver = Atomic<Int>(0)
  /// At which lanes the next claim begins, and whose turn was when.
  let turns = Mutex<(cursor: LaneCursor, served: ServedLanes)>((LaneCursor(), ServedLanes()))
  /// Claims made, since the start: each instance's numbers are its own.
  let claims = Atomic<Int64>(0)
  let unknownClaims = UnknownClaims()
  let endingBatches: EndingBatches
  /// Up to which number open batches were looked at; where none is beyond it, the next look begins anew.
  let openBatches = Atomic<Int64>(0)
  /// Who was refused a place of the queue lately, and whose lines.
  let (refusals, refusedLines) = (Refusals(), Refusals())
  /// Owners whose records were refused lately.
  let refusedRecords = Refusals()
  /// See ``Configuration/largestEmbedded``.
  public let largestEmbedded: Int
  let telling: NewsConnection
  let isShared: Bool
  /// What this process says of itself: what it is called, what release it is, where it is reached.
  let presence: [String?]
  let workers: Int?

  /// An answer is waited for no longer than for ``Configuration/timeout``, and a connection may break.
  public var losesAnswers: Bool { true }

  /// Something to do on a thread that has a connection; what comes of it, it keeps itself.
  typealias Body = @Sendable (Transaction) throws -> Void

  /// Connects, and brings the tables up to date where needed. Blocks for as long as that takes.
  ///
  /// - Throws: `.unavailable` where the server can't be reached, or a newer release wrote the database.
  public init(_ configuration: Configuration) throws(StoreError) {
    let settings = Session.Settings(configuration)
    do {
      try Self.prepare(settings, configuration)
    } catch {
      throw StoreError(cause: error)
    }
    endingBatches = settings.endingBatches
    let limit = max(1, configuration.maxBatch)
    submitting = Lane(
      named: "pg-submit", settings,
      .init(limit: limit, kind: { _ in 0 }) { [refusals, refusedRecords] in
        try $0.submit($1, isRepeated: $2, refusals, refusedRecords)
      })
    writing = Lane(
      named: "pg-write", settings,
      .init(
        limit: limit, kind: \.kind, pacing: Pacing(WriteRequest.changes, .milliseconds(10)),
        isSynced: \.isSynced
      ) {
        try $0.write($1, isRepeated: $2)
      })
    let alone = Lane<Body, Void>.Work { transaction, tasks, _ in
      try tasks.map { .success(try $0(transaction)) }
    }
    var unsynced = alone
    // Lost or not, a claim's job is in the queue or is its instance's, whose lease ends.
    unsynced.isSynced = { _ in false }
    var looks = alone
    looks.writes = false
    claiming = Lane(named: "pg-claim", settings, unsynced)
    reading = Lane(
      named: "pg-read", threads: max(1, configuration.readers), settings, looks)
    var urgent = settings
    urgent.timeout = min(settings.timeout, configuration.leaseTimeout)
    holding = Lane(named: "pg-lease", urgent, alone)
    // What the server lost in a crash is sent once more.
    messaging = Lane(named: "pg-messages", settings, unsynced)
    largestEmbedded = configuration.largestEmbedded
    telling = NewsConnection(settings, exchange)
    isShared = configuration.isShared
    presence = [configuration.name, configuration.version, configuration.address]
    workers = configuration.workers
  }

  private static func prepare(
    _ settings: Session.Settings, _ configuration: Configuration
  ) throws {
    let session = try patient(settings)
    try Schema.migrate(session)
    if let home = configuration.home {
      try Schema.take(
        home, isEmpty: configuration.isHomeEmpty, isShared: configuration.isShared, session)
    }
  }

  /// A session for the tables themselves.
  private static func patient(_ settings: Session.Settings) throws -> Session {
    // Who waits for another's migration, or makes a long one, is not to be hurried.
    var patient = settings
    patient.timeout = .seconds(600)
    // Nothing can take over from an instance that starts, and a server on a busy machine may take longer than usual.
    patient.address.connectTimeout = max(15, patient.address.connectTimeout)
    let session = Session(patient)
    let version = try session.connected().serverVersion
    guard version >= 140_000 else {
      throw StoreError.unavailable(
        detail: "PostgreSQL \(version / 10_000) is too old: 14 is the first that will do")
    }
    return session
  }

  /// How far a database's tables are.
  ///
  /// - Throws: `.unavailable` where the server can't be reached, or a newer release wrote the database.
  public static func versions(_ configuration: Configuration) throws(StoreError) -> TableVersions {
    do {
      return TableVersions(
        found: try Schema.version(patient(Session.Settings(configuration))),
        latest: Schema.steps.count)
    } catch {
      throw StoreError(cause: error)
    }
  }

  /// Brings a database's tables up to date; its services may be at work, or wait for it.
  ///
  /// - Throws: `.unavailable` where the server can't be reached, or a newer release wrote the database.
  public static func migrate(_ configuration: Configuration) throws(StoreError) {
    do { try Schema.migrate(patient(Session.Settings(configuration))) } catch {
      throw StoreError(cause: error)
    }
  }

  /// Finishes what was asked for and closes the connections; whatever is asked after that fails.
  public func close() async {
    await submitting.close()
    await writing.close()
    await claiming.close()
    await holding.close()
    await messaging.close()
    await reading.close()
    await telling.close()
  }

  /// Tells other processes that share the database.
  func tellOthers(_ news: News) { telling.tell(news) }

  /// The PostgreSQL client library that is linked, such as `15.7`.
  public static var libraryVersion: String {
    let number = Connection.libraryVersion
    return "\(number / 10_000).\(number % 10_000)"
  }

  /// Whether libpq understands a URL; it is asked nothing else.
  public static func understands(_ url: String) -> Bool { Connection.understands(url) }
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

/// Work on the threads.
extension PostgresJobStore {
  /// What a body gave, on its way back to who waits for it.
  private final class Slot<Value: Sendable>: Sendable {
    let value = Mutex<Value?>(nil)

    func get() throws(StoreError) -> Value {
      guard let value = value.withLock(\.self) else { throw .unavailable(detail: "it did not run") }
      return value
    }
  }

  /// Looks, each statement for itself.
  func read<Value: Sendable>(
    _ body: @escaping @Sendable (Transaction) throws -> Value
  ) async throws(StoreError) -> Value {
    try await perform(on: reading, body)
  }

  /// Runs a body as a transaction of its own.
  func perform<Value: Sendable>(
    on lane: Lane<Body, Void>, _ body: @escaping @Sendable (Transaction) throws -> Value
  ) async throws(StoreError) -> Value {
    let result = Slot<Value>()
    try await lane.perform { transaction in
      let value = try body(transaction)
      result.value.withLock { $0 = value }
    }
    return try result.get()
  }

  /// Runs a body as a transaction of its own, on the thread that changes jobs and images.
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
