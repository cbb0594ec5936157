internal import GRDB
internal import GRDBSQLite

/// The SQLite that is linked.
public enum SQLiteLibrary {
  /// Its version, such as `3.40.1`.
  public static var version: String { String(cString: sqlite3_libversion()) }
}
