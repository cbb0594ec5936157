internal import Foundation
internal import GRDB
public import Jobs

/// Whose images a bucket holds: the database has a name.
extension SQLiteJobStore: ImageOwner {
  /// Looked up in the database, each time.
  public func name() async throws(StoreError) -> String {
    try await read { db in
      let name = try String.fetchOne(db, sql: "SELECT value FROM settings WHERE name = 'name'")
      guard let name else { throw StoreError.unavailable(detail: "the database has no name") }
      return name
    }
  }
}
