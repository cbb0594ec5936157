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
  /// The image is there, but could not be brought where it was to go.
  case delivery(DeliveryError)
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
    case .fetch(.originStatus(let status, _)): TransientStatus.contains(status)
    // Room is made, and our faults pass. A fetch that was cancelled is told as `internal`.
    case .storageFull, .internal, .fetch(.cancelled), .codec(.noDecoder), .delivery: true
    default: false
    }
  }
}

/// The contract's name for a failure: in a job's `error`, in logs and in metrics.
public enum FailureCode: String, Sendable, CaseIterable {
  case blockedAddress = "blocked_address"
  case dnsFailure = "dns_failure"
  case connectFailure = "connect_failure"
  case tlsFailure = "tls_failure"
  case timeout
  case stalled
  case tooManyRedirects = "too_many_redirects"
  case originStatus = "origin_status"
  case noData = "no_data"
  case tooLarge = "too_large"
  case tooManyPixels = "too_many_pixels"
  case unsupportedFormat = "unsupported_format"
  case truncated
  case decodeFailed = "decode_failed"
  case decoderCrashed = "decoder_crashed"
  case integrityMismatch = "integrity_mismatch"
  case notCached = "not_cached"
  case localNotFound = "local_not_found"
  case deliveryFailure = "delivery_failure"
  case storageFull = "storage_full"
  case `internal`
}

extension JobFailure {
  /// The contract's name for it.
  public var code: FailureCode {
    switch self {
    case .fetch(let error): error.code
    case .codec(let error): error.code
    case .integrityMismatch: .integrityMismatch
    case .notCached: .notCached
    case .localNotFound: .localNotFound
    case .delivery: .deliveryFailure
    case .storageFull: .storageFull
    case .internal: .internal
    }
  }
}

extension FetchError {
  /// The contract's name for it.
  public var code: FailureCode {
    switch self {
    case .blocked: .blockedAddress
    case .dnsFailure, .badHost: .dnsFailure
    case .connectFailure, .noResponse, .unreachable: .connectFailure
    case .tlsFailure: .tlsFailure
    case .timeout: .timeout
    case .stalled: .stalled
    case .tooManyRedirects: .tooManyRedirects
    case .badRedirect, .originStatus: .originStatus
    case .noData: .noData
    case .tooLarge, .headerTooLarge: .tooLarge
    case .truncated: .truncated
    case .unsupportedCoding: .unsupportedFormat
    case .brokenCoding: .decodeFailed
    // A run that was cancelled doesn't fail: this is never shown.
    case .cancelled: .internal
    }
  }
}

extension CodecError {
  /// The contract's name for it.
  public var code: FailureCode {
    switch self {
    case .unsupportedFormat: .unsupportedFormat
    case .tooManyPixels, .dimensionTooLarge, .tooManyScans, .tooManyFrames, .tooMuchMemory:
      .tooManyPixels
    case .cutShort, .broken: .decodeFailed
    case .crashed: .decoderCrashed
    case .noDecoder: .internal
    }
  }
}
