package import Jobs
package import SQL
internal import SQLite
internal import Synchronization

/// The job store of tests: the service's own, over an SQLite database in memory. ``StoreCalls`` runs its calls.
package typealias MemoryJobStore = SQLJobStore

extension MemoryJobStore {
  /// - Parameters:
  ///   - isExclusive: whether the store reports that no other instance uses it.
  ///   - largestEmbedded: the maximum size in bytes of images in the database.
  ///   - now: the store's clock.
  package convenience init(
    isExclusive: Bool = true, largestEmbedded: Int = 0,
    now: @escaping WallClock = { ManualClock().now }
  ) {
    let calls = StoreCalls(MemoryDatabase(isShared: !isExclusive), clock: now)
    self.init(calls, largestEmbedded: largestEmbedded)
  }

  private convenience init(_ calls: StoreCalls, largestEmbedded: Int) {
    var configuration = SQLJobStore.Configuration(calls.database)
    configuration.isShared = calls.database.isShared
    configuration.largestEmbedded = largestEmbedded
    configuration.now = { calls.clock.withLock(\.self)() }
    configuration.runner = calls
    do throws(StoreError) { try self.init(configuration) } catch { fatalError("\(error)") }
  }

  /// Opens another process's store over the same database. Both have the same ``calls``.
  package func another() async -> MemoryJobStore {
    await calls.open { MemoryJobStore($0, largestEmbedded: largestEmbedded) }
  }

  /// Runs the store's calls.
  package var calls: StoreCalls {
    guard let calls = runner as? StoreCalls else { fatalError("not the store of a test") }
    return calls
  }

  /// Makes a change as another process does.
  /// - Parameter errors: errors for the next reads of a job, one each.
  package func changeAsAnother(
    _ id: JobID, _ change: @escaping @Sendable (inout Job) -> Bool,
    thenFailing errors: [StoreError] = []
  ) async throws {
    _ = try await update(id, under: nil, change)
    await calls.fail(with: errors, of: .job)
    publish(.changed(id), from: .none)
  }

  /// Ends all instances at once, like a machine that loses power.
  package func loseInstances() async throws {
    try await calls.query { try $0.run("UPDATE instances SET ended = true, lease_until = 0") }
  }

  /// Moves a claim to another instance, like a crash of the database that undoes a claim before the other instance claims
  /// the job. That instance then changes the job.
  package func undoClaim(
    of id: JobID, for other: Instance, _ change: @escaping @Sendable (inout Job) -> Bool
  ) async throws -> Job? {
    let claim = Claim(job: id, instance: other, number: ClaimNumbers.number(1, of: other))
    try await calls.query {
      _ = try $0.execute(
        "UPDATE queue SET instance = $2, claim = $3 WHERE id = $1",
        [.id(id), .int(other.number), .int(claim.number)])
    }
    return try await update(id, under: claim, change)
  }

  /// Makes the records of these jobs unreadable.
  package func spoil(_ ids: some Sequence<JobID> & Sendable) async throws {
    try await calls.query { transaction in
      for id in ids {
        _ = try transaction.execute(
          "UPDATE jobs SET record = $2 WHERE id = $1", [.id(id), .bytes([0x7B])])
      }
    }
  }

  /// Stores undelivered messages.
  package func enqueueMessages(_ messages: [WebhookMessage]) async throws {
    try await calls.query { try $0.addMessages(messages) }
  }

  /// Descriptions of unreleased claims and reservations; empty if no worker is active.
  package var leftovers: [String] {
    get async throws {
      try await calls.query { transaction in
        let claims = try transaction.execute("SELECT id FROM queue WHERE state = 4")
        let holders = try transaction.execute("SELECT holder FROM reservations")
        return claims.all.compactMap { claims.id($0, 0).map { "the claim of \($0)" } }
          + holders.all.compactMap { holders.id($0, 0).map { "the reservation by \($0)" } }
      }
    }
  }

  /// Whether an image is reserved.
  package func isReserved(_ image: ImageDigest) async throws -> Bool {
    try await calls.query {
      try !$0.execute("SELECT 1 FROM reservations WHERE digest = $1", [.bytes(image.bytes)]).isEmpty
    }
  }
}

extension JobQueue {
  /// Claims jobs of any owner.
  package func claim(
    _ count: Int, for instance: Instance, room: OriginCapacity
  ) async throws(StoreError) -> Claimed {
    try await claim(count, for: instance, room: room, owners: .unlimited)
  }
}

extension BatchStore {
  /// The limits of other owners do not apply.
  package func open(
    _ batch: Batch, key: IdempotencyKey?
  ) async throws(StoreError) -> BatchOpening {
    try await open(batch, key: key, atMost: .max)
  }

  /// The idempotency key remains valid for the batch.
  package func purge(_ id: BatchID) async throws(StoreError) -> Bool {
    try await purge(id, refusedAfter: nil)
  }

  /// Whatever the cache has of them.
  package func endStopped(
    _ count: Int, keptFor retention: Duration
  ) async throws(StoreError) -> StoppedBatchJobs {
    try await endStoppedJobs(count, keptFor: retention) { _ in nil }
  }
}

/// An SQLite database in memory, with a channel of events between the stores that share it.
final class MemoryDatabase: SQLDatabase {
  private struct State {
    /// One of each store.
    var channels: [WeakChannel] = []
    /// Events that are held back, each with its receiver; nil: events are delivered at once.
    var held: [(InstanceEvent, Channel)]?
  }
  private let state = Mutex(State())
  private let base: SQLiteDatabase
  let isShared: Bool

  init(isShared: Bool) {
    self.isShared = isShared
    let configuration = SQLiteDatabase.Configuration(path: SQLiteDatabase.Configuration.inMemory)
    do throws(StoreError) { base = try SQLiteDatabase(configuration) } catch {
      fatalError("\(error)")
    }
  }

  var hasOneWriter: Bool { base.hasOneWriter }
  var losesAnswers: Bool { base.losesAnswers }
  var additions: String { base.additions }

  func connect(
    for thread: String, mayWrite: Bool, timeout: Duration
  ) throws(Fault) -> any SQLConnection {
    try base.connect(for: thread, mayWrite: mayWrite, timeout: timeout)
  }

  func connectForSchema() throws(Fault) -> any SQLConnection { try base.connectForSchema() }

  func hasRoom(_ store: SQLJobStore) async -> Bool { true }

  /// Runs statements between the requests of the stores.
  func query<Value>(_ body: (Transaction) throws -> Value) throws -> Value {
    guard let channel = state.withLock({ $0.channels.lazy.compactMap(\.channel).first }) else {
      fatalError("no store is open")
    }
    return try Session(channel.settings, named: "test", mayWrite: false).read(body)
  }

  func openChannel(
    _ settings: Session.Settings, _ bus: InstanceEventBus
  ) -> (any EventChannel)? {
    let channel = Channel(settings, bus, of: self)
    state.withLock { $0.channels.append(WeakChannel(channel: channel)) }
    return channel
  }

  func holdEvents() { state.withLock { $0.held = $0.held ?? [] } }

  func releaseEvents() {
    let held = state.withLock { $0.held.take() ?? [] }
    for (event, channel) in held { channel.bus.publish(event, from: .none) }
  }

  private func publish(_ event: InstanceEvent, from own: Channel) {
    let others = state.withLock { state in
      let others = state.channels.compactMap(\.channel).filter { $0 !== own }
      state.held?.append(contentsOf: others.map { (event, $0) })
      return state.held == nil ? others : []
    }
    for other in others { other.bus.publish(event, from: .none) }
  }

  /// Weak, because the settings refer to the database.
  private struct WeakChannel {
    weak var channel: Channel?
  }

  private final class Channel: EventChannel {
    let settings: Session.Settings
    let bus: InstanceEventBus
    private let database: MemoryDatabase

    init(_ settings: Session.Settings, _ bus: InstanceEventBus, of database: MemoryDatabase) {
      (self.settings, self.bus, self.database) = (settings, bus, database)
    }

    func addInstance(_ instance: Instance) {}

    func publish(_ event: InstanceEvent) { database.publish(event, from: self) }

    func announce(
      _ event: InstanceEvent, from instance: Instance, in transaction: Transaction
    ) throws -> Set<Instance> {
      publish(event)
      let others = try transaction.execute(
        "SELECT number FROM instances WHERE NOT ended AND number <> $1", [.int(instance.number)])
      return Set(others.all.compactMap { others.int($0, 0).map(Instance.init) })
    }

    func close() async {}
  }
}
