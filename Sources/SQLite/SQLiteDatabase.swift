internal import CSQLite
internal import Executors
internal import Foundation
internal import Glibc
internal import Images
package import Jobs
internal import Logging
package import SQL
internal import Synchronization

// SQLite: connects the job store (module SQL) to an SQLite database, for one process.
//
// Read `SQLiteDatabase` first, then `SQLiteConnection` and `SQLiteDialect`.

/// An SQLite database, which one process uses. All transactions run on one thread and share commits; a change returns after its
/// commit is synced (WAL, `synchronous=FULL`). Reads run on other threads and do not wait for writes.
package final class SQLiteDatabase: SQLDatabase {
  /// The settings of the database.
  package struct Configuration: Sendable {
    /// The path of the database file; its folder is created if missing. ``inMemory`` for no file.
    package var path: String
    /// How long to wait if another program has locked the database, for example a backup.
    var busyTimeout: Duration = .seconds(5)
    /// Whether commits survive a crash of the machine. False if the file is deleted together with
    /// the process.
    package var isDurable = true
    /// The size in bytes of the disk space reserved for a full disk, in a file next to the
    /// database; 0 for none.
    package var reserve = 0
    /// False if the caller has locked the folder already (``StorageHome``).
    package var locksFolder = true
    /// The clock of the database.
    package var clock: WallClock = {
      Timestamp(milliseconds: Int64(Date().timeIntervalSince1970 * 1_000))
    }

    /// The clock of leases. It does not jump when the system's time is set.
    package var leaseClock: WallClock = {
      var now = timespec()
      clock_gettime(CLOCK_MONOTONIC, &now)
      return Timestamp(milliseconds: Int64(now.tv_sec) * 1_000 + Int64(now.tv_nsec) / 1_000_000)
    }

    /// Creates a configuration with default settings.
    package init(path: String) { self.path = path }

    /// The path of a database in memory, for tests. All its connections are the same one, so its store needs a
    /// `RequestRunner`.
    package static let inMemory = ":memory:"
  }

  private let configuration: Configuration
  private let lock: FolderLock?
  private let reserve: DiskReserve?
  /// The only connection to a database in memory. The store's `RequestRunner` uses it for one request at a time.
  nonisolated(unsafe) private let memory: SQLiteConnection?
  private let logger = Logger(label: "store")
  /// Whether the log was emptied since the disk was found full.
  private let isLogEmptied = Atomic(false)

  /// Locks the folder.
  ///
  /// - Throws: `.unavailable` if another process uses the database.
  package init(_ configuration: Configuration) throws(StoreError) {
    self.configuration = configuration
    guard configuration.path != Configuration.inMemory else {
      (lock, reserve) = (nil, nil)
      do throws(Fault) { memory = try Self.connect(configuration, mayWrite: true) } catch {
        throw .unavailable(detail: "\(error)")
      }
      return
    }
    memory = nil
    let folder = URL(fileURLWithPath: configuration.path).deletingLastPathComponent().path
    try StorageFolder.create(folder, isDurable: configuration.isDurable)
    lock = configuration.locksFolder ? try FolderLock(configuration.path + ".lock") : nil
    // The last sync of the previous run may have failed.
    if configuration.isDurable { try DatabaseLog(of: configuration.path).rewrite() }
    reserve =
      configuration.reserve > 0 ? DiskReserve(in: folder, atMost: configuration.reserve) : nil
  }

  package var hasOneWriter: Bool { true }
  package var losesAnswers: Bool { false }

  package func connect(
    for thread: String, mayWrite: Bool, timeout: Duration
  ) throws(Fault) -> any SQLConnection {
    let connection = try open(mayWrite: mayWrite)
    guard mayWrite else { return connection }
    let deadline = ContinuousClock.now + timeout
    let run = try connection.execute(
      SQLStatement("INSERT INTO runs DEFAULT VALUES RETURNING number"), by: deadline)
    let number = run.int(0, 0) ?? 0
    _ = try connection.execute(
      SQLStatement("DELETE FROM runs WHERE number < $1", [.int(number)]), by: deadline)
    connection.setRun(number)
    reserve?.grow()
    return connection
  }

  /// Releases parts of the reserve while the disk is full.
  package func connectForSchema() throws(Fault) -> any SQLConnection {
    while true {
      do throws(Fault) { return try open(mayWrite: true) } catch {
        // SQLite's error code depends on the file that could not be created or extended.
        guard let reserve, reserve.free < 1 << 20 || isFull(error), reserve.release() else {
          throw error
        }
      }
    }
  }

  private func isFull(_ error: Fault) -> Bool { if case .full = error { true } else { false } }

  private static func connect(
    _ configuration: Configuration, mayWrite: Bool, log: DatabaseLog? = nil
  ) throws(Fault) -> SQLiteConnection {
    try SQLiteConnection(
      configuration.path, mayWrite: mayWrite, log: log, clock: configuration.clock,
      leaseClock: configuration.leaseClock)
  }

  private func open(mayWrite: Bool) throws(Fault) -> SQLiteConnection {
    if let memory { return memory }
    let isDurable = configuration.isDurable
    let connection = try Self.connect(
      configuration, mayWrite: mayWrite,
      log: mayWrite && isDurable ? DatabaseLog(of: configuration.path) : nil)
    let deadline = ContinuousClock.now + .seconds(60)
    try connection.run(
      """
      PRAGMA busy_timeout = \(configuration.busyTimeout.inMilliseconds);
      PRAGMA temp_store = MEMORY;
      PRAGMA cache_size = \(mayWrite ? -8_000 : -2_000);
      """, by: deadline)
    guard mayWrite else { return connection }
    // Without the first setting, creating the file syncs it and its folder. The second one works only for a new database:
    // it allows deleted pages to be returned to the disk.
    //
    // A full disk must have space for moving the log into the database, so the log may use a quarter of the reserve.
    let reserved = reserve?.size ?? 0
    let logBytes = reserved > 0 ? min(16 << 20, reserved / 4) : 16 << 20
    try connection.run(
      """
      PRAGMA synchronous = \(isDurable ? "FULL" : "OFF");
      PRAGMA auto_vacuum = INCREMENTAL;
      PRAGMA journal_mode = WAL;
      PRAGMA wal_autocheckpoint = \(max(64, logBytes / 4_096));
      PRAGMA journal_size_limit = 67108864;
      """, by: deadline)
    return connection
  }

  /// Returns the version of a database's tables. Only reads the database, even while another
  /// process uses it.
  ///
  /// - Throws: `.unavailable` if a newer release wrote it or it can't be read.
  package static func versions(at path: String) throws(StoreError) -> TableVersions {
    guard FileManager.default.fileExists(atPath: path) else {
      return TableVersions(found: 0, latest: SQLJobStore.latestVersion)
    }
    let connection: SQLiteConnection
    do throws(Fault) {
      connection = try SQLiteConnection(
        path, mayWrite: false, log: nil, clock: { Timestamp(milliseconds: 0) },
        leaseClock: { Timestamp(milliseconds: 0) })
    } catch { throw .unavailable(detail: "\(path): \(error)") }
    return try SQLJobStore.versions(over: connection)
  }

  /// The work of a connection to an SQLite database so far: steps of the virtual machine, changed rows, and statements that
  /// were parsed again. For tests.
  package static func work(
    of connection: any SQLConnection
  ) -> (steps: Int, changes: Int, reparses: Int)? {
    (connection as? SQLiteConnection)?.work
  }

  /// The upper bits of the ranks of each run of the process.
  package var additions: String {
    "CREATE TABLE runs (number bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY);"
  }

  package func openChannel(
    _ settings: Session.Settings, _ bus: InstanceEventBus
  ) -> (any EventChannel)? { nil }

  /// Moves the log into the database, so that the database is a single file. If another program is
  /// reading, for example a backup, the rest stays in the log until the next start.
  package func close() {
    guard memory == nil else { return }
    do throws(Fault) { try emptyLog() } catch {
      logger.warning("failed to truncate the database log", metadata: ["error": "\(error)"])
    }
    lock?.release()
  }

  private func emptyLog() throws(Fault) {
    let connection = try open(mayWrite: true)
    if SQLiteLibrary.failedSyncs > 0 {
      do throws(StoreError) { try DatabaseLog(of: configuration.path).rewrite() } catch {
        throw .refused("\(error)")
      }
    }
    try connection.run(
      "PRAGMA busy_timeout = 1000; PRAGMA wal_checkpoint(TRUNCATE);", by: .now + .seconds(60))
  }
}

/// Disk space.
extension SQLiteDatabase {
  /// Whether little more than the reserve is left on the disk. Each call queries the file system.
  package var isLow: Bool { reserve?.isLow ?? false }

  /// Empties the log, and then releases parts of the reserve.
  package func freeReserve() -> Bool {
    guard let reserve else { return false }
    // When the whole log is in the database, SQLite reuses it from the beginning, which needs no
    // further space.
    if !isLogEmptied.exchange(true, ordering: .relaxed) {
      try? open(mayWrite: true).run("PRAGMA wal_checkpoint(PASSIVE);", by: .now + .seconds(60))
      return true
    }
    return reserve.release()
  }

  /// Returns unused pages to the disk and fills the reserve from the free space.
  package func hasRoom(_ store: SQLJobStore) async -> Bool {
    guard let reserve, reserve.isLow else { return true }
    await withCheckedContinuation { continuation in
      startThread(named: "store-room") { [self] in
        do throws(Fault) { try shrink() } catch {
          logger.warning("failed to shrink the database", metadata: ["error": "\(error)"])
          if isFull(error) { _ = reserve.release() }
        }
        continuation.resume()
      }
    }
    reserve.grow()
    let hasRoom = !reserve.isLow
    if hasRoom { isLogEmptied.store(false, ordering: .relaxed) }
    return hasRoom
  }

  /// Removes unused pages from the database and truncates its log, for up to half a second.
  private func shrink() throws(Fault) {
    let connection = try open(mayWrite: true)
    let end = ContinuousClock.now + .milliseconds(500)
    let deadline = end + .seconds(60)
    // A database created without auto_vacuum keeps its free pages.
    var left = Int64.max
    while left > 0, .now < end {
      // Each step writes some pages to the log, which should stay small.
      try connection.run(
        "PRAGMA incremental_vacuum(256); PRAGMA wal_checkpoint(TRUNCATE);", by: deadline)
      let rows = try connection.execute(SQLStatement("PRAGMA freelist_count"), by: deadline)
      let free = rows.int(0, 0) ?? 0
      guard free < left else { return }
      left = free
    }
  }
}

/// The linked SQLite library.
package enum SQLiteLibrary {
  /// The version, such as `3.40.1`.
  package static var version: String { String(cString: sqlite3_libversion()) }

  private static let failures = Atomic<Int>(0)

  /// The number of failed syncs in this process. Includes failures that SQLite does not return as
  /// an error, when it moves a log into the database after a commit.
  static var failedSyncs: Int { failures.load(ordering: .acquiring) }

  /// Starts counting failed syncs, and changes other settings of the library. Read before a database is opened.
  static let configure: Void = {
    _ = csqlite_configure { _, code, _ in
      // SQLITE_IOERR_FSYNC
      if code == SQLITE_IOERR | 4 << 8 { failures.add(1, ordering: .acquiringAndReleasing) }
    }
  }()
}

/// The file of a database's write-ahead log.
struct DatabaseLog {
  private let path: String
  /// The number of failed syncs when the log was last known to be intact.
  private var failedSyncs = SQLiteLibrary.failedSyncs

  /// - Parameter database: the path of the database file.
  init(of database: String) { path = database + "-wal" }

  /// Rewrites the log after a failed sync.
  mutating func repair() throws(Fault) {
    let failures = SQLiteLibrary.failedSyncs
    guard failures != failedSyncs else { return }
    do throws(StoreError) { try rewrite() } catch {
      if error == .full { throw .full }
      throw .refused("\(error)")
    }
    failedSyncs = failures
  }

  /// Writes the whole log again and syncs it. No other writer may append to it meanwhile.
  ///
  /// After a failed sync, the system treats the unwritten data as written, and no later sync writes
  /// it. SQLite would append to such a log, and after a power failure the log would end at the gap.
  /// Moving the log into the database is no solution, because the database is consistent only
  /// together with the log until the move is complete.
  func rewrite() throws(StoreError) {
    let descriptor = Glibc.open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)
    guard descriptor >= 0 else {
      if errno == ENOENT { return }
      throw StoreError(errno: errno, "opening the database's log")
    }
    // SQLite has no lock on this file that closing the descriptor could release.
    defer { Glibc.close(descriptor) }
    var (piece, offset) = ([UInt8](repeating: 0, count: 1 << 20), 0)
    while true {
      let count = pread(descriptor, &piece, piece.count, off_t(offset))
      if count == 0 { break }
      guard count > 0, pwrite(descriptor, piece, count, off_t(offset)) == count else {
        throw StoreError(errno: errno, "rewriting the database's log")
      }
      offset += count
    }
    guard fsync(descriptor) == 0 else {
      throw StoreError(errno: errno, "syncing the database's log")
    }
  }
}
