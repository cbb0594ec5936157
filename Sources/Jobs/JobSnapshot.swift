internal import Synchronization

/// One version of a job, with its encoded form. The encoding is made once and shared by all readers and event
/// streams.
public final class JobSnapshot: Sendable {
  /// A snapshot without an encoding.
  public let job: Job
  private let encoding = Mutex<[UInt8]?>(nil)
  private let eventEncoding = Mutex<(events: [JobEvent], bytes: [UInt8])?>(nil)

  /// The encoding contains the texts that clients see once more.
  public init(_ job: Job) {
    self.job = job
    // The memory of the snapshot relative to a job of the usual size, ``usualBytes``, which counts 1.
    weight = 1 + (job.textBytes + job.toldBytes) / Self.usualBytes
  }

  /// Returns the encoded job. Calls `make` the first time and keeps the result.
  package let weight: Int
  package static let usualBytes = 1536

  /// Returns the encoded events of the job, which all streams share. Calls `make` the first time.
  ///
  /// The bytes are kept while the job runs, until its next version. They are not kept for a finished job: its
  /// snapshot may stay in memory for a long time, but its last events are sent only once.
  public func encoded(_ make: (Job) -> [UInt8]) -> [UInt8] {
    encoding.withLock { kept in
      if let kept { return kept }
      let made = make(job)
      kept = made
      return made
    }
  }

  /// The bytes of these events of the job, which all streams share: made by `make` at the first call.
  ///
  /// Kept while the job runs, until its next version. A finished job's snapshot may stay in memory for long, and its
  /// last events are sent once: their bytes are made for each stream from the kept encoding.
  public func encoded(_ events: [JobEvent], _ make: () -> [UInt8]) -> [UInt8] {
    guard !job.phase.isFinished else { return make() }
    return eventEncoding.withLock { kept in
      if let kept, kept.events == events { return kept.bytes }
      let made = make()
      kept = (events, made)
      return made
    }
  }
}
