internal import Executors
internal import Foundation
internal import GRDB
internal import Glibc
package import Jobs
internal import Logging
internal import Synchronization

/// Stores jobs, batches, the cache index and webhook messages in an SQLite database, for one
/// process.
///
/// Input: calls of the protocols of the Jobs module, from any task. Output: their results. A change
/// returns after its commit is synced (WAL, `synchronous=FULL`). All writes run on one thread
/// (``GroupCommit``), which merges waiting calls into one transaction. Reads run on other threads
/// and do not wait for writes. Memory holds counters, queue positions and the rows of loading jobs
/// (``StoreCounters``, ``LoadingRowCache``).
///
/// The module also contains the file store for images (``FileImageStore``), its partial transfers,
/// and local source images (``LocalFolder``).
///
/// Read in this order: SQLiteSchema (tables), GroupCommit (writing thread), WriteTransaction and its
/// extensions, ClaimableJobs+Rows and Dequeue (claims), the other extensions of this class, then FileImageStore, ImageFolder and StagedFile.
package final class SQLiteJobStore: JobQueue, JobRecords, ImageReferences {
  /// The settings of the store.
  package struct Configuration: Sendable {
    /// The path of the database file; its folder is created if missing.
    package var path: String
    /// The maximum number of operations in one commit.
    var maxBatch = 512
    /// The number of reading threads.
    package var readers = 2
    /// How long to wait if another program has locked the database, for example a backup.
    var busyTimeout: Duration = .seconds(5)
    /// The maximum size in bytes of images stored in the database. They are written by the
    /// transaction that completes their job, because a separate file would cost more than the
    /// bytes.
    package var largestEmbedded = 64 << 10
    /// Whether commits survive a crash of the machine. False if the file is deleted together with
    /// the process.
    package var isDurable = true
    /// The longest valid wait of a job for its next try. A later due time can only come from a
    /// clock that was set back.
    package var longestWait: Duration = .seconds(86_400)
    /// The size in bytes of the disk space reserved for a full disk, in a file next to the
    /// database; 0 for none.
    package var reserve = 0
    /// False if the caller has locked the folder already (``StorageHome``).
    package var locksFolder = true
    /// The store's clock, for due times, claims, ends of jobs and cache entries.
    package var now: WallClock = {
      Timestamp(milliseconds: Int64(Date().timeIntervalSince1970 * 1_000))
    }
    /// The clock for leases. No lease outlives the process, so a monotonic clock is used: a wall
    /// clock that is set forward would end leases of working instances.
    package var uptime: @Sendable () -> Timestamp = {
      var time = timespec()
      clock_gettime(CLOCK_MONOTONIC, &time)
      return Timestamp(milliseconds: Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000)
    }

    /// Creates a configuration with default settings.
    package init(path: String) { self.path = path }
  }

  let database: DatabasePool
  let writer: GroupCommit
  let reading: ThreadPool
  private let lock: FolderLock?
  private let reserve: DiskReserve?
  let leases: LeaseTable
  let heldMessages = HeldMessages()
  let exchange = InstanceEventBus()
  /// The number of finished batches with a webhook that the sender of messages knows of.
  let knownFinishedBatches = Atomic<Int>(0)
  let now: WallClock
  package let largestEmbedded: Int
  let log = Logger(label: "store")

  /// Opens the database; creates or updates it if necessary. Blocks for some milliseconds.
  ///
  /// - Throws: `.unavailable` if another process uses it, a newer release wrote it, or it can't be
  ///   read; `.full` if the disk is full.
  package init(_ configuration: Configuration) throws(StoreError) {
    do {
      let folder = URL(fileURLWithPath: configuration.path).deletingLastPathComponent().path
      try StorageFolder.create(folder, isDurable: configuration.isDurable)
      lock = configuration.locksFolder ? try FolderLock(configuration.path + ".lock") : nil
      SQLiteLibrary.countsFailedSyncs
      // The last sync of the previous run may have failed.
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
    leases = LeaseTable(now: configuration.uptime)
    largestEmbedded = configuration.largestEmbedded
    reading = ThreadPool(name: "store-read", threads: max(1, configuration.readers))
  }

  /// Finishes the accepted requests and closes the database. Later requests fail.
  package func close() async {
    await writer.close()
    await reading.run { [database, log] in
      do { try Self.truncateLog(of: database) } catch {
        log.warning("failed to truncate the database log", metadata: ["error": "\(error)"])
      }
      do { try database.close() } catch {
        log.error("failed to close the database", metadata: ["error": "\(error)"])
      }
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

  /// Like ``read(_:)``, for long reads on behalf of a request. If the task is cancelled before the
  /// read starts, it is skipped, so that later requests do not wait for it.
  func readUnlessCancelled<Value: Sendable>(
    _ body: @escaping @Sendable (Database) throws -> Value
  ) async throws(StoreError) -> Value {
    let asker = CancellationFlag()
    let result = await withTaskCancellationHandler {
      await reading.run { [database] () -> Result<Value, StoreError> in
        guard !asker.isCancelled else {
          return .failure(.unavailable(detail: "the request was cancelled"))
        }
        do { return .success(try database.read(body)) } catch {
          return .failure(StoreError(cause: error))
        }
      }
    } onCancel: {
      asker.cancel()
    }
    return try result.get()
  }

  /// The number of records that are encoded or decoded on the current thread: this takes less time
  /// than a switch to another thread.
  private static let maxInlineRecords = 16

  /// Runs a computation with `count` records, on a reading thread if they are many.
  func compute<Value: Sendable>(
    for count: Int = .max, _ body: @escaping @Sendable () throws -> Value
  ) async throws(StoreError) -> Value {
    if count <= Self.maxInlineRecords {
      do { return try body() } catch { throw StoreError(cause: error) }
    }
    return try await reading.run { () -> Result<Value, StoreError> in
      do { return .success(try body()) } catch { return .failure(StoreError(cause: error)) }
    }.get()
  }
}

extension SQLiteJobStore {
  /// Moves the log into the database, so that the database is a single file. If another program is
  /// reading, for example a backup, the rest stays in the log until the next start.
  private static func truncateLog(of database: DatabasePool) throws {
    try database.writeWithoutTransaction { db in
      if SQLiteLibrary.failedSyncs > 0 { try DatabaseLog(of: database.path).rewrite() }
      try db.execute(sql: "PRAGMA busy_timeout = 1000")
      try db.checkpoint(.truncate)
    }
  }

  /// Opens the database, and releases parts of the reserve while the disk is full.
  private static func open(
    _ configuration: Configuration, with reserve: DiskReserve?
  ) throws -> (DatabasePool, StoreCounters) {
    // A full disk must have space for moving the log into the database, so the log may use a
    // quarter of the reserve.
    let reserved = reserve?.size ?? 0
    let logBytes = reserved > 0 ? min(16 << 20, reserved / 4) : 16 << 20
    while true {
      do {
        let database = try open(configuration, logBytes: logBytes)
        return (database, try database.read { try StoreCounters(counting: $0) })
      } catch {
        // SQLite's error code depends on the file that could not be created or extended.
        guard let reserve, reserve.free < 1 << 20 || StoreError(cause: error) == .full,
          reserve.release()
        else { throw error }
      }
    }
  }

  /// - Parameter logBytes: the size of the log at which a commit moves it into the database.
  private static func open(
    _ configuration: Configuration, logBytes: Int
  ) throws -> DatabasePool {
    var options = GRDB.Configuration()
    options.maximumReaderCount = max(1, configuration.readers)
    options.persistentReadOnlyConnections = true
    options.busyMode = .timeout(configuration.busyTimeout.inSeconds)
    let isDurable = configuration.isDurable
    options.prepareDatabase { db in
      // Without this, creating the file syncs it and its folder.
      if !isDurable { try db.execute(sql: "PRAGMA synchronous = OFF") }
      // Works only for a new database. It allows deleted pages to be returned to the disk.
      if !db.configuration.readonly { try db.execute(sql: "PRAGMA auto_vacuum = INCREMENTAL") }
      // Savepoint journals and sorts stay in memory. The writer uses more pages than a reader.
      try db.execute(sql: "PRAGMA temp_store = MEMORY")
      try db.execute(sql: "PRAGMA cache_size = \(db.configuration.readonly ? -2_000 : -8_000)")
    }
    let database = try DatabasePool(path: configuration.path, configuration: options)
    if try database.read(Schema.migrator.hasBeenSuperseded) {
      throw StoreError.unavailable(detail: "\(configuration.path) was written by a newer release")
    }
    try database.writeWithoutTransaction { db in
      // Opening a pool sets NORMAL, and then a power failure may undo a commit.
      try db.execute(sql: "PRAGMA synchronous = \(configuration.isDurable ? "FULL" : "OFF")")
      let pageBytes = try Int.fetchOne(db, sql: "PRAGMA page_size") ?? 4_096
      try db.execute(sql: "PRAGMA wal_autocheckpoint = \(max(64, logBytes / pageBytes))")
      try db.execute(sql: "PRAGMA journal_size_limit = 67108864")
    }
    try Schema.migrator.migrate(database)
    try database.write { try JobRow.repairPriorities($0) }
    return database
  }
}

// Disk space.
extension SQLiteJobStore {
  /// Whether little more than the reserve is left on the disk. Each call queries the file system.
  package func isLow() async -> Bool { reserve?.isLow ?? false }

  /// Returns unused pages to the disk and fills the reserve from the free space.
  package func hasRoom() async -> Bool {
    guard let reserve, reserve.isLow else { return true }
    await reading.run { [database, log] in
      do { try Self.shrink(database) } catch {
        log.warning("failed to shrink the database", metadata: ["error": "\(error)"])
        if StoreError(cause: error) == .full { _ = reserve.release() }
      }
    }
    reserve.grow()
    return !reserve.isLow
  }

  /// Removes unused pages from the database and truncates its log, for up to half a second.
  private static func shrink(_ database: DatabasePool) throws {
    let end = ContinuousClock.now + .milliseconds(500)
    try database.writeWithoutTransaction { db in
      // A database created without auto_vacuum keeps its free pages.
      var left = Int.max
      while left > 0, .now < end {
        // Each step writes some pages to the log, which should stay small.
        try db.execute(sql: "PRAGMA incremental_vacuum(256)")
        do { try db.checkpoint(.truncate) } catch let error as DatabaseError {
          // A reader is still using the log.
          guard error.resultCode == .SQLITE_BUSY else { throw error }
        }
        let free = try Int.fetchOne(db, sql: "PRAGMA freelist_count") ?? 0
        guard free < left else { return }
        left = free
      }
    }
  }
}

/// Informs a thread that the task of its caller was cancelled.
private final class CancellationFlag: Sendable {
  private let isGone = Atomic(false)

  var isCancelled: Bool { isGone.load(ordering: .relaxed) }

  func cancel() { isGone.store(true, ordering: .relaxed) }
}
