internal import Foundation
internal import GRDB
package import Jobs

/// The name of this store, which marks the bucket that holds its images.
extension SQLiteJobStore: ImageOwner {
  /// Reads the name from the database on each call.
  package func name() async throws(StoreError) -> String {
    try await read { db in
      let name = try String.fetchOne(db, sql: "SELECT value FROM settings WHERE name = 'name'")
      guard let name else { throw StoreError.unavailable(detail: "the database has no name") }
      return name
    }
  }
}
