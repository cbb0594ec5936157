internal import Foundation
internal import Jobs
internal import Synchronization

/// A cache of the rows of loading jobs, as this process wrote them last. When such a job finishes,
/// its row need not be read and decoded. Only the writing thread uses it.
///
/// Every write of a row updates the cache, and every rollback empties it. Rows that are missing here
/// are read from the database.
final class LoadingRowCache {
  /// The maximum number of bytes of all rows. Beyond it, for example if thousands of jobs share a
  /// load, rows are read again.
  static let mostBytes = 16 << 20
  private(set) var rows: [Data: JobRow] = [:]
  /// The number of bytes of these rows.
  private(set) var bytes = 0

  subscript(id: Data) -> JobRow? { rows[id] }

  /// Updates the cache after a job's row was written.
  func update(_ row: JobRow) {
    remove(row)
    guard row.phase == .loading, bytes + row.heldBytes <= Self.mostBytes else { return }
    rows[row.id] = row
    bytes += row.heldBytes
  }

  /// Removes the row of a deleted job.
  func remove(_ row: JobRow) {
    if let old = rows.removeValue(forKey: row.id) { bytes -= old.heldBytes }
  }

  /// Empties the cache after a rollback.
  func removeAll() {
    rows.removeAll(keepingCapacity: true)
    bytes = 0
  }
}

extension JobRow {
  /// The approximate memory of a row in bytes: the record, the decoded job with the same texts, and
  /// both structures.
  fileprivate var heldBytes: Int { 4_096 + 2 * record.count + (tags?.count ?? 0) }
}

/// A row's decoded job, decoded once for all copies of the row.
final class DecodedJob: Sendable {
  private let job: Mutex<Job?>

  init(_ job: Job? = nil) { self.job = Mutex(job) }

  /// - Parameter decode: called if the job was not decoded yet.
  func value(_ decode: () throws -> Job) throws -> Job {
    if let job = job.withLock(\.self) { return job }
    let decoded = try decode()
    job.withLock { $0 = decoded }
    return decoded
  }
}
