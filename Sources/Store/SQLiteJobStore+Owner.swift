internal import Foundation
internal import GRDB
public import Jobs

/// The name of this store, which marks the bucket that holds its images.
extension SQLiteJobStore: ImageOwner {
  /// Reads the name from the database on each call.
  public func name() async throws(StoreError) -> String {
    try await read { db in
      let name = try String.fetchOne(db, sql: "SELECT value FROM settings WHERE name = 'name'")
      guard let name else { throw StoreError.unavailable(detail: "the database has no name") }
      return name
    }
  }

  /// Uses one query per image.
  public func knowsAny(of images: [ImageDigest]) async throws(StoreError) -> Bool {
    try await read { db in
      let look = try db.cachedStatement(sql: "SELECT 1 FROM images WHERE digest = ?")
      return try images.contains { try Int.fetchOne(look, arguments: [$0.data]) != nil }
    }
  }
}
