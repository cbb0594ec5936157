internal import Foundation
internal import Jobs

/// A change to a job, made but not written yet.
struct JobChange {
  /// The row that it was made to.
  let old: JobRow
  /// The row to write, its rank and claim still those before; nil where nothing changed.
  let row: JobRow?
  /// The job before.
  let before: Job
  /// The job as it then is.
  let after: Job

  /// - Parameter change: returns false to leave the job alone.
  /// - Throws: where the record can't be read or written.
  init(of old: JobRow, by change: (inout Job) -> Bool) throws {
    self.old = old
    before = try old.job()
    var changed = before
    let isChanged = change(&changed) && changed != before
    after = isChanged ? changed : before
    row = isChanged ? try old.updated(to: changed) : nil
  }

  /// What it means for the job's place in the queue.
  var place: QueueMove { QueueMove(from: before, to: after) }
}
