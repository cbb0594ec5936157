internal import Synchronization

/// A job as it was at one version, with one encoding of it kept for the next reader.
public final class JobSnapshot: Sendable {
  /// The job.
  public let job: Job
  private let encoding = Mutex<[UInt8]?>(nil)

  /// A snapshot that nobody has encoded yet.
  public init(_ job: Job) {
    self.job = job
    // The job has each of its texts, and so has the encoding.
    weight = 1 + 2 * job.textBytes / Self.usualBytes
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
}

extension Job {
  /// Bytes of what clients and origins worded.
  fileprivate var textBytes: Int {
    var bytes = submission.headers.reduce(0) { $0 + 32 + $1.name.utf8.count + $1.value.utf8.count }
    bytes += submission.alternatives.reduce(0) { $0 + 64 + $1.bytes }
    bytes += submission.cacheKey?.utf8.count ?? 0
    bytes += tags.reduce(0) { $0 + 16 + $1.utf8.count }
    switch submission.source {
    case .url(let url, let lowData): bytes += url.bytes + (lowData?.bytes ?? 0)
    case .local(let name): bytes += name.utf8.count
    case .captured(_, _, let contentType): bytes += contentType.utf8.count
    }
    return bytes + (image?.url?.bytes ?? 0)
  }
}

extension SourceURL {
  fileprivate var bytes: Int { host.utf8.count + pathAndQuery.utf8.count }
}
