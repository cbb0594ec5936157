internal import Synchronization

/// A job as it was at one version, with one encoding of it kept for the next reader, and of its events for the next
/// stream.
public final class JobSnapshot: Sendable {
  /// The job.
  public let job: Job
  private let encoding = Mutex<[UInt8]?>(nil)
  private let eventEncoding = Mutex<(events: [JobEvent], bytes: [UInt8])?>(nil)

  /// A snapshot that nobody has encoded yet.
  public init(_ job: Job) {
    self.job = job
    // The encoding has once more what it tells.
    weight = 1 + (job.textBytes + job.toldBytes) / Self.usualBytes
  }

  /// How much memory it takes beside the others: 1 for a job of the usual size, which is ``usualBytes``.
  package let weight: Int
  package static let usualBytes = 1536

  /// The job's one encoding: made by `make` at the first call, kept for later ones.
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
