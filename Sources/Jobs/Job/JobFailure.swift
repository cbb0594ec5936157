/// Why a job failed. Stored with the job and shown to its owner.
package enum JobFailure: Error, Sendable, Equatable, Codable {
  /// The fetch failed.
  case fetch(FetchError)
  /// The bytes are not an acceptable image.
  case codec(CodecError)
  /// The digest of the bytes differs from `integrity`.
  case integrityMismatch(expected: ImageDigest, actual: ImageDigest)
  /// The cache mode is `only-if-cached`, and the cache has no response.
  case notCached
  /// The local folder has no image of this name.
  case localNotFound(name: String)
  /// The image was loaded, but a delivery failed.
  case delivery(DeliveryError)
  /// The image store has no space left.
  case storageFull
  /// A fault of the service; the log has the details.
  case `internal`

  /// Whether the same job may succeed later without a change by the client.
  package var isRetryable: Bool {
    switch self {
    case .fetch(.dnsFailure), .fetch(.connectFailure), .fetch(.noResponse),
      .fetch(.unreachable), .fetch(.timeout),
      .fetch(.stalled), .fetch(.truncated):
      true
    case .fetch(.originStatus(let status, _)): TransientStatus.contains(status)
    // Space can be freed, and internal faults can pass. A cancelled fetch is reported as `internal`.
    case .storageFull, .internal, .fetch(.cancelled), .codec(.noDecoder), .delivery: true
    default: false
    }
  }
}

/// The failure code: in a job's `error`, in logs and in metrics.
package enum FailureCode: String, Sendable, CaseIterable {
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
  package var code: FailureCode {
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
  package var code: FailureCode {
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
    // Never shown, because a cancelled load does not fail its job.
    case .cancelled: .internal
    }
  }
}

extension CodecError {
  package var code: FailureCode {
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
