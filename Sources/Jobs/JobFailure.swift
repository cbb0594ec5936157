/// Why a job was given up: kept with the job and shown to its owner.
public enum JobFailure: Error, Sendable, Equatable, Codable {
  /// The source's bytes could not be had.
  case fetch(FetchError)
  /// The bytes are not an image that we keep.
  case codec(CodecError)
  /// The bytes have another digest than the submission's `integrity`.
  case integrityMismatch(expected: ImageDigest, actual: ImageDigest)
  /// `only-if-cached`, and nothing is.
  case notCached
  /// No such named image below the root.
  case localNotFound(name: String)
  /// The image store has no room.
  case storageFull
  /// Our fault; the log has the details.
  case `internal`

  /// Whether the same request may succeed later without a change by the client.
  public var isRetryable: Bool {
    switch self {
    case .fetch(.dnsFailure), .fetch(.connectFailure), .fetch(.noResponse),
      .fetch(.unreachable), .fetch(.timeout),
      .fetch(.stalled), .fetch(.truncated):
      true
    case .fetch(.originStatus(let status, _)): [408, 425, 429, 500, 502, 503, 504].contains(status)
    // Room is made, and our faults pass. A fetch that was cancelled is told as `internal`.
    case .storageFull, .internal, .fetch(.cancelled): true
    default: false
    }
  }
}
