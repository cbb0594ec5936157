internal import GRDB
internal import GRDBSQLite
internal import Glibc
internal import Jobs
internal import Synchronization

/// The SQLite that is linked.
public enum SQLiteLibrary {
  /// Its version, such as `3.40.1`.
  public static var version: String { String(cString: sqlite3_libversion()) }

  private static let failures = Atomic<Int>(0)

  /// Of its syncs how many have failed in this process, those among them that it tells nobody else: of a log that is moved into the
  /// database after a commit.
  static var failedSyncs: Int { failures.load(ordering: .acquiring) }

  /// Has the failed ones counted, where no database was opened before.
  static let countsFailedSyncs: Void = {
    Database.logError = { code, _ in
      if code == .SQLITE_IOERR_FSYNC { failures.add(1, ordering: .acquiringAndReleasing) }
    }
  }()
}

/// SQLite's log of a database, seen as a file.
struct DatabaseLog: Sendable {
  private let path: String

  /// - Parameter database: the database's file.
  init(of database: String) { path = database + "-wal" }

  /// Has all of it written once more, and synced: nobody may add to it meanwhile.
  ///
  /// What was not synced when a sync failed the system takes for written from then on, and no later sync writes it. SQLite would go
  /// on behind it, and after a power cut the log ends there. Moving it into the database at once would not do: that is whole only
  /// with the log, until all was moved.
  func rewrite() throws(StoreError) {
    let descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)
    guard descriptor >= 0 else {
      if errno == ENOENT { return }
      throw StoreError(errno: errno, "opening the database's log")
    }
    // No lock of SQLite's is on this file, which closing it would let go of.
    defer { close(descriptor) }
    var offset = 0
    while true {
      let piece = ImageFolder.read(descriptor, at: offset, count: 1 << 20)
      if piece.isEmpty { break }
      guard lseek(descriptor, off_t(offset), SEEK_SET) == off_t(offset) else {
        throw StoreError(errno: errno, "rewriting the database's log")
      }
      let code = ImageFolder.write(piece, to: descriptor)
      guard code == 0 else { throw StoreError(errno: code, "rewriting the database's log") }
      offset += piece.count
    }
    guard fsync(descriptor) == 0 else {
      throw StoreError(errno: errno, "syncing the database's log")
    }
  }
}
