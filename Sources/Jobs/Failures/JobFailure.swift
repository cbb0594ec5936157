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
  package var isRetryable: Bool { explanation.isRetryable }
}

extension JobFailure: ExplainedError {
  package var explanation: Explanation {
    switch self {
    case .fetch(let error): error.explanation
    case .codec(let error): error.explanation
    case .integrityMismatch(let expected, let actual):
      Explanation(
        .integrityMismatch,
        "The SHA-256 is \(actual.hex). The job's integrity requires \(expected.hex).")
    case .notCached:
      Explanation(
        .notCached, "The cache has no response for this URL, and the job must not ask the origin.")
    case .localNotFound(let name):
      Explanation(.localNotFound, "There is no local image named \(name).")
    case .delivery(let error): error.explanation
    case .storageFull:
      Explanation(
        .storageFull, "The service has no storage space for the image. Try again later.",
        log: "no space is left")
    case .internal: .fault(log: "internal error")
    }
  }
}
