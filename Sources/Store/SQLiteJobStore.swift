internal import Executors
internal import Foundation
internal import GRDB
internal import Glibc
public import Jobs
internal import Logging
internal import Synchronization

/// Keeps jobs in an SQLite database: one file with its log beside it, for one service.
///
/// What changes something returns once the log is on the disk (WAL, `synchronous=FULL`); callers that wait at the
/// same time share one commit. Reads wait for nobody. Nothing is held in memory for a job, and little for an origin
/// whose jobs wait for room.
public final class SQLiteJobStore: JobQueue, JobRecords, ImageReferences {
  /// Where the database is, and how much one commit may carry.
  public struct Configuration: Sendable {
    /// The database's file; its folder is made where there is none.
    public var path: String
    /// Operations in one commit, at the most.
    public var maxBatch = 512
    /// Threads that read.
    public var readers = 2
    /// How long to wait for another program that has the database locked, such as a backup.
    public var busyTimeout: Duration = .seconds(5)
    /// Images of up to so many bytes are kept in the database, by the transaction that ends their job: a file of its
    /// own costs more than the bytes do.
    public var largestEmbedded = 64 << 10
    /// Whether what is promised outlives a crash of the machine; not where the file goes with the process anyway.
    public var isDurable = true
    /// No job waits longer for its next try: what seems to has been told to by a clock that was set back since.
    public var longestWait: Duration = .seconds(86_400)
    /// Bytes of the disk that are reserved for when it is full, in a file next to the database; 0: none.
    public var reserve = 0
    /// False where whoever opens the database has locked its folder (``StorageHome``).
    public var locksFolder = true
    /// The store's clock: it tells when jobs are due, taken and over, and when a cache entry is stored.
    public var now: WallClock = {
      Timestamp(milliseconds: Int64(Date().timeIntervalSince1970 * 1_000))
    }
    /// By which leases end: none outlives the process, so that it needs no clock that somebody sets. A wall clock that is set
    /// ahead would end the lease of whoever works.
    public var uptime: @Sendable () -> Timestamp = {
      var time = timespec()
      clock_gettime(CLOCK_MONOTONIC, &time)
      return Timestamp(milliseconds: Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000)
    }

    /// A database at `path`, everything else as it usually is.
    public init(path: String) { self.path = path }
  }

  let database: DatabasePool
  let writer: GroupCommit
  let reading: ThreadPool
  private let lock: FolderLock?
  private let reserve: DiskReserve?
  let leases: Leases
  let heldMessages = HeldMessages()
  let exchange = NewsExchange()
  /// Ends of batches that whoever sends messages knows of.
  let seenBatchEnds = Atomic<Int>(0)
  let now: WallClock
  /// See ``Configuration/largestEmbedded``.
  public let largestEmbedded: Int
  let log = Logger(label: "store")

  /// Opens the database, making it or bringing it up to date where needed. Blocks for some milliseconds.
  ///
  /// - Throws: `.unavailable` when another service has it open, when a newer release wrote it, or when it can't be
  ///   read; `.full` when there is no room for it.
  public init(_ configuration: Configuration) throws(StoreError) {
    do {
      let folder = URL(fileURLWithPath: configuration.path).deletingLastPathComponent().path
      try StorageFolder.make(folder, isDurable: configuration.isDurable)
      lock = configuration.locksFolder ? try FolderLock(configuration.path + ".lock") : nil
      SQLiteLibrary.countsFailedSyncs
      // Its last sync may have failed.
      if configuration.isDurable { try DatabaseLog(of: configuration.path).rewrite() }
      reserve =
        configuration.reserve > 0
        ? DiskReserve(in: folder, atMost: configuration.reserve) : nil
      var (database, counters) = try Self.open(configuration, with: reserve)
      self.database = database
      counters.nextDue.longestWait = configuration.longestWait
      writer = GroupCommit(
        to: database, limit: max(1, configuration.maxBatch), isDurable: configuration.isDurable,
        counters: counters, reserve: reserve)
      reserve?.grow()
    } catch {
      throw StoreError(cause: error)
    }
    now = configuration.now
    leases = Leases(now: configuration.uptime)
    largestEmbedded = configuration.largestEmbedded
    reading = ThreadPool(name: "store-read", threads: max(1, configuration.readers))
  }

  /// Finishes what was asked for and closes the database; whatever is asked after that fails.
  public func close() async {
    await writer.close()
    await reading.run { [database, log] in
      do { try Self.emptyLog(of: database) } catch {
        log.warning("the database's log could not be emptied: \(error)")
      }
      do { try database.close() } catch { log.error("closing the database: \(error)") }
    }
    lock?.release()
  }

  /// Reads on a thread that may block.
  func read<Value: Sendable>(
    _ body: @escaping @Sendable (Database) throws -> Value
  ) async throws(StoreError) -> Value {
    try await reading.run { [database] () -> Result<Value, StoreError> in
      do { return .success(try database.read(body)) } catch {
        return .failure(StoreError(cause: error))
      }
    }.get()
  }

  /// As ``read(_:)``, for what may keep its thread for long and nothing but an answer depends on: given up where its task
  /// is cancelled before its turn, so that nobody waits behind those who have left.
  func readIfAwaited<Value: Sendable>(
    _ body: @escaping @Sendable (Database) throws -> Value
  ) async throws(StoreError) -> Value {
    let asker = Asker()
    let result = await withTaskCancellationHandler {
      await reading.run { [database] () -> Result<Value, StoreError> in
        guard !asker.hasLeft else {
          return .failure(.unavailable(detail: "nobody waits for it any more"))
        }
        do { return .success(try database.read(body)) } catch {
          return .failure(StoreError(cause: error))
        }
      }
    } onCancel: {
      asker.leave()
    }
    return try result.get()
  }

  /// So many records are encoded or decoded where they are wanted: some microseconds each, less than a hop costs.
  private static let fewRecords = 16

  /// Computes with so many records: on a thread that may, where they are many.
  func compute<Value: Sendable>(
    for count: Int = .max, _ body: @escaping @Sendable () throws -> Value
  ) async throws(StoreError) -> Value {
    if count <= Self.fewRecords {
      do { return try body() } catch { throw StoreError(cause: error) }
    }
    return try await reading.run { () -> Result<Value, StoreError> in
      do { return .success(try body()) } catch { return .failure(StoreError(cause: error)) }
    }.get()
  }
}

extension SQLiteJobStore {
  /// Moves what is in the log into the database, so that the file alone is all there is. Where another program reads
  /// the database for long, such as a backup, the rest stays in the log, whence the next start takes it.
  private static func emptyLog(of database: DatabasePool) throws {
    try database.writeWithoutTransaction { db in
      if SQLiteLibrary.failedSyncs > 0 { try DatabaseLog(of: database.path).rewrite() }
      try db.execute(sql: "PRAGMA busy_timeout = 1000")
      try db.checkpoint(.truncate)
    }
  }

  /// Gives it space of the reserve for as long as the disk is full.
  private static func open(
    _ configuration: Configuration, with reserve: DiskReserve?
  ) throws -> (DatabasePool, StoreCounters) {
    // A full disk has to have room for what the log still has to add to the database: a quarter of the reserve at most.
    let reserved = reserve?.size ?? 0
    let logBytes = reserved > 0 ? min(16 << 20, reserved / 4) : 16 << 20
    while true {
      do {
        let database = try open(configuration, logBytes: logBytes)
        return (database, try database.read { try StoreCounters(counting: $0) })
      } catch {
        // Which of SQLite's errors it is depends on the file that can't be made or grow.
        guard let reserve, reserve.free < 1 << 20 || StoreError(cause: error) == .full,
          reserve.release()
        else { throw error }
      }
    }
  }

  /// - Parameter logBytes: the size of the log from which a commit writes it to the database.
  private static func open(
    _ configuration: Configuration, logBytes: Int
  ) throws -> DatabasePool {
    var options = GRDB.Configuration()
    options.maximumReaderCount = max(1, configuration.readers)
    options.persistentReadOnlyConnections = true
    options.busyMode = .timeout(configuration.busyTimeout.inSeconds)
    let isDurable = configuration.isDurable
    options.prepareDatabase { db in
      // Else making the file syncs it and its folder.
      if !isDurable { try db.execute(sql: "PRAGMA synchronous = OFF") }
      // Has an effect on a new database only. It lets deleted pages be given back to the disk.
      if !db.configuration.readonly { try db.execute(sql: "PRAGMA auto_vacuum = INCREMENTAL") }
      // Savepoints' journals and sorts stay in memory; the writer touches more pages than a reader.
      try db.execute(sql: "PRAGMA temp_store = MEMORY")
      try db.execute(sql: "PRAGMA cache_size = \(db.configuration.readonly ? -2_000 : -8_000)")
    }
    let database = try DatabasePool(path: configuration.path, configuration: options)
    if try database.read(Schema.migrator.hasBeenSuperseded) {
      throw StoreError.unavailable(detail: "\(configuration.path) was written by a newer release")
    }
    try database.writeWithoutTransaction { db in
      // Opening a pool sets NORMAL, where a commit may be lost with the power.
      try db.execute(sql: "PRAGMA synchronous = \(configuration.isDurable ? "FULL" : "OFF")")
      let pageBytes = try Int.fetchOne(db, sql: "PRAGMA page_size") ?? 4_096
      try db.execute(sql: "PRAGMA wal_autocheckpoint = \(max(64, logBytes / pageBytes))")
      try db.execute(sql: "PRAGMA journal_size_limit = 67108864")
    }
    try Schema.migrator.migrate(database)
    try database.write(Lanes.mend)
    return database
  }
}

// The disk.
extension SQLiteJobStore {
  /// Whether the disk has little more left than the reserve. Asks the system.
  public func isLow() async -> Bool { reserve?.isLow ?? false }

  /// Gives the disk what the database does not need, and completes the reserve from what is free.
  public func hasRoom() async -> Bool {
    guard let reserve, reserve.isLow else { return true }
    await reading.run { [database, log] in
      do { try Self.giveBack(from: database) } catch {
        log.warning("failed to shrink the database", metadata: ["error": "\(error)"])
        if StoreError(cause: error) == .full { _ = reserve.release() }
      }
    }
    reserve.grow()
    return !reserve.isLow
  }

  /// Cuts pages that hold nothing off the database, and empties its log, for up to half a second.
  private static func giveBack(from database: DatabasePool) throws {
    let end = ContinuousClock.now + .milliseconds(500)
    try database.writeWithoutTransaction { db in
      // A database that was made without auto_vacuum keeps its free pages.
      var left = Int.max
      while left > 0, .now < end {
        // A step writes some of the pages to the log, which is to take little space.
        try db.execute(sql: "PRAGMA incremental_vacuum(256)")
        do { try db.checkpoint(.truncate) } catch let error as DatabaseError {
          // A reader still uses the log.
          guard error.resultCode == .SQLITE_BUSY else { throw error }
        }
        let free = try Int.fetchOne(db, sql: "PRAGMA freelist_count") ?? 0
        guard free < left else { return }
        left = free
      }
    }
  }
}

/// Tells a thread of a task that was cancelled.
private final class Asker: Sendable {
  private let isGone = Atomic(false)

  var hasLeft: Bool { isGone.load(ordering: .relaxed) }

  func leave() { isGone.store(true, ordering: .relaxed) }
}
