internal import Synchronization

/// One version of a job with its encoded form, which all readers and event streams share.
package final class JobSnapshot: Sendable {
  package let job: Job
  private let encoding = Mutex<[UInt8]?>(nil)
  private let eventEncoding = Mutex<(events: [JobEvent], bytes: [UInt8])?>(nil)

  package init(_ job: Job) {
    self.job = job
    // The encoding repeats the texts that clients see.
    weight = 1 + (job.textBytes + job.visibleBytes) / Self.usualBytes
  }

  /// The memory that the snapshot needs, relative to ``usualBytes``: 1 for a job of the usual size.
  package let weight: Int
  package static let usualBytes = 1536

  /// Returns the encoded job. Calls `make` the first time and keeps the result.
  package func encoded(_ make: (Job) -> [UInt8]) -> [UInt8] {
    encoding.withLock { kept in
      if let kept { return kept }
      let made = make(job)
      kept = made
      return made
    }
  }

  /// Returns the encoded events of the job, which all streams share. Calls `make` the first time.
  ///
  /// The bytes are kept while the job runs, until its next version. They are not kept for a finished job: its
  /// snapshot may stay in memory for a long time, but its last events are sent only once.
  package func encoded(_ events: [JobEvent], _ make: () -> [UInt8]) -> [UInt8] {
    guard !job.phase.isFinished else { return make() }
    return eventEncoding.withLock { kept in
      if let kept, kept.events == events { return kept.bytes }
      let made = make()
      kept = (events, made)
      return made
    }
  }
}
