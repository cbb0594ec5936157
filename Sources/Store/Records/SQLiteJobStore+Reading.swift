internal import Foundation
internal import GRDB
package import Jobs
internal import Logging

/// Queries that only read.
extension SQLiteJobStore {
  /// Reads the job on a reading thread.
  package func job(_ id: JobID) async throws(StoreError) -> Job? {
    try await read { try JobRow.fetch(id.data, $0)?.job() }
  }

  /// Lists jobs by index, newest first. Skips expired jobs.
  package func jobs(_ query: JobQuery) async throws(StoreError) -> JobPage {
    try await readUnlessCancelled { try JobListing(query: query).page($0) }
  }

  /// Searches an index of jobs with a low-data image. Skips unreadable jobs.
  package func jobsWithLowDataImages(after id: JobID?, count: Int) async throws(StoreError) -> [Job]
  {
    try await read { [log] db in
      let rows = try JobRow.fetchAll(
        "low = 1 AND id > ? ORDER BY id LIMIT ?", [id?.data ?? Data(), count], db)
      return rows.compactMap { row in
        do { return try row.job() } catch {
          log.error("skipping unreadable job", metadata: ["error": "\(error)"])
          return nil
        }
      }
    }
  }

  /// The counts after the last commit. Does not use the disk.
  package func counts() async throws(StoreError) -> StoreCounts { writer.counts }
}
