internal import Foundation
internal import GRDB
public import Jobs
internal import Logging

/// What only looks.
extension SQLiteJobStore {
  /// Looks the job up on a thread that reads.
  public func job(_ id: JobID) async throws(StoreError) -> Job? {
    try await read { try JobRow.fetch(id.data, $0)?.job() }
  }

  /// Lists jobs by index, newest first; a job whose time has come is left out.
  public func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage {
    try await readIfAwaited { try JobListing(query: query).page($0) }
  }

  /// Looks them up by an index of such jobs only; one whose record can't be read is left out.
  public func jobsWithLowDataImages(after id: JobID?, count: Int) async throws(StoreError) -> [Job]
  {
    try await read { [log] db in
      let rows = try JobRow.fetchAll(
        "low = 1 AND id > ? ORDER BY id LIMIT ?", [id?.data ?? Data(), count], db)
      return rows.compactMap { row in
        do { return try row.job() } catch {
          log.error("a job is passed over", metadata: ["error": "\(error)"])
          return nil
        }
      }
    }
  }

  /// What the last commit left; asks no disk.
  public func counts() async throws(StoreError) -> StoreCounts { writer.counts }
}
