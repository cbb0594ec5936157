internal import GRDB
public import Jobs

/// What only looks.
extension SQLiteJobStore {
  /// Looks the job up on a thread that reads.
  public func job(_ id: JobID) async throws(StoreError) -> Job? {
    try await read { try JobRow.fetch(id.data, $0)?.job() }
  }

  /// Lists jobs by index, newest first; a job whose time has come is left out.
  public func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage {
    try await read { try JobListing(query: query).page($0) }
  }

  /// Whether a job or a reservation refers to the image.
  public func refers(to image: ImageDigest) async throws(StoreError) -> Bool {
    try await read { db in
      let statement = try db.cachedStatement(
        sql: "SELECT 1 FROM images WHERE digest = ? AND hard + soft > 0")
      return try Int.fetchOne(statement, arguments: [image.data]) != nil
    }
  }

  /// What the last commit left; asks no disk.
  public func counts() async throws(StoreError) -> StoreCounts { writer.counts }
}
