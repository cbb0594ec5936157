internal import Foundation
internal import Jobs
internal import Synchronization

/// The rows of jobs that this service works on, as they were written last: what ends such a job need neither read nor
/// decode what this process wrote. The writer's thread alone has it.
///
/// Whatever writes a row of the table says so here. Nothing depends on a row's being held: it is forgotten whenever a
/// transaction undoes something.
final class HeldRows {
  /// Bytes of all rows held. Beyond them, as when a load has thousands of waiters, rows are read again.
  static let mostBytes = 16 << 20
  private(set) var rows: [Data: JobRow] = [:]
  /// Bytes of these.
  private(set) var bytes = 0

  subscript(id: Data) -> JobRow? { rows[id] }

  /// A job's row was written.
  func note(_ row: JobRow) {
    forget(row)
    guard row.phase == .loading, bytes + row.heldBytes <= Self.mostBytes else { return }
    rows[row.id] = row
    bytes += row.heldBytes
  }

  /// A job's row is gone.
  func forget(_ row: JobRow) {
    if let old = rows.removeValue(forKey: row.id) { bytes -= old.heldBytes }
  }

  /// Something was undone.
  func forgetAll() {
    rows.removeAll(keepingCapacity: true)
    bytes = 0
  }
}

extension JobRow {
  /// Bytes of memory that it takes, about: the record, its job, which has the same texts, and both structures.
  fileprivate var heldBytes: Int { 4_096 + 2 * record.count + (tags?.count ?? 0) }
}

/// The job that a row tells of, decoded once for all who have a copy of the row.
final class DecodedJob: Sendable {
  private let job: Mutex<Job?>

  init(_ job: Job? = nil) { self.job = Mutex(job) }

  /// - Parameter decode: makes it where nobody has yet.
  func value(_ decode: () throws -> Job) throws -> Job {
    if let job = job.withLock(\.self) { return job }
    let decoded = try decode()
    job.withLock { $0 = decoded }
    return decoded
  }
}
