internal import Foundation
internal import Jobs

/// A change to a job that is not written yet.
struct JobChange {
  /// The row before the change.
  let old: JobRow
  /// The row to write, with the old rank and claim; `nil` if nothing changed.
  let row: JobRow?
  /// The job before the change.
  let before: Job
  /// The job after the change.
  let after: Job

  /// - Parameter change: returns `false` to leave the job unchanged.
  /// - Throws: an error if the record can't be decoded or encoded.
  init(of old: JobRow, by change: (inout Job) -> Bool) throws {
    self.old = old
    before = try old.job()
    var changed = before
    let isChanged = change(&changed) && changed != before
    after = isChanged ? changed : before
    row = isChanged ? try old.updated(to: changed) : nil
  }

  /// The effect on the job's position in the queue.
  var place: QueueMove { QueueMove(from: before, to: after) }
}
