internal import Foundation
internal import Jobs
internal import Synchronization

/// The rows of jobs that this service works on, as they were written last: what ends such a job need neither read nor
/// decode what this process wrote. The writer's thread alone has it.
///
/// Whatever writes a row of the table says so here. Nothing depends on a row's being held: it is forgotten whenever a
/// transaction undoes something.
final class HeldRows {
  /// Beyond so many, as when a load has thousands of waiters, rows are read again.
  private static let limit = 4_096
  private(set) var rows: [Data: JobRow] = [:]

  subscript(id: Data) -> JobRow? { rows[id] }

  /// A job's row was written.
  func note(_ row: JobRow) {
    guard row.phase == .loading, rows.count < Self.limit || rows[row.id] != nil else {
      rows[row.id] = nil
      return
    }
    rows[row.id] = row
  }

  /// A job's row is gone.
  func forget(_ row: JobRow) { rows[row.id] = nil }

  /// Something was undone.
  func forgetAll() { rows.removeAll(keepingCapacity: true) }
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
