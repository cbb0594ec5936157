internal import GRDB
internal import GRDBSQLite
internal import Glibc
internal import Jobs
internal import Synchronization

/// The linked SQLite library.
package enum SQLiteLibrary {
  /// The version, such as `3.40.1`.
  package static var version: String { String(cString: sqlite3_libversion()) }

  private static let failures = Atomic<Int>(0)

  /// The number of failed syncs in this process. Includes failures that SQLite does not return as
  /// an error, when it moves a log into the database after a commit.
  static var failedSyncs: Int { failures.load(ordering: .acquiring) }

  /// Starts counting failed syncs. Must be read before a database is opened.
  static let countsFailedSyncs: Void = {
    Database.logError = { code, _ in
      if code == .SQLITE_IOERR_FSYNC { failures.add(1, ordering: .acquiringAndReleasing) }
    }
  }()
}

/// The file of a database's write-ahead log.
struct DatabaseLog: Sendable {
  private let path: String

  /// - Parameter database: the path of the database file.
  init(of database: String) { path = database + "-wal" }

  /// Writes the whole log again and syncs it. No other writer may append to it meanwhile.
  ///
  /// After a failed sync, the system treats the unwritten data as written, and no later sync writes
  /// it. SQLite would append to such a log, and after a power failure the log would end at the gap.
  /// Moving the log into the database is no solution, because the database is consistent only
  /// together with the log until the move is complete.
  func rewrite() throws(StoreError) {
    let descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)
    guard descriptor >= 0 else {
      if errno == ENOENT { return }
      throw StoreError(errno: errno, "opening the database's log")
    }
    // SQLite has no lock on this file that closing the descriptor could release.
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
