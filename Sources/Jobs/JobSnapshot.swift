internal import Synchronization

/// A job as it was at one version, with one encoding of it kept for the next reader.
public final class JobSnapshot: Sendable {
  /// The job.
  public let job: Job
  private let encoding = Mutex<[UInt8]?>(nil)

  /// A snapshot that nobody has encoded yet.
  public init(_ job: Job) { self.job = job }

  /// How much memory it takes beside the others: 1 for a job of the usual size.
  var weight: Int {
    var bytes = job.submission.headers.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count }
    bytes += job.submission.alternatives.reduce(0) { $0 + $1.pathAndQuery.utf8.count }
    if case .url(let url, let lowData) = job.submission.source {
      bytes += url.pathAndQuery.utf8.count + (lowData?.pathAndQuery.utf8.count ?? 0)
    }
    return 1 + bytes / 1024
  }

  /// The job's one encoding: made by `make` at the first call, kept for later ones.
  public func encoded(_ make: (Job) -> [UInt8]) -> [UInt8] {
    encoding.withLock { kept in
      if let kept { return kept }
      let made = make(job)
      kept = made
      return made
    }
  }
}
