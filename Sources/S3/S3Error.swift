package import Jobs

/// Errors of an object store.
package enum S3Error: Error, Sendable, Equatable {
  /// No response, or an incomplete one.
  case unreachable(FetchError)
  /// The store answered with an error: the status, and the code and message of its XML if present.
  case refused(status: Int, code: String, message: String)
  /// The response or request is not valid.
  case unexpected(String)
  /// The store's checksum differs from the bytes sent.
  case checksumMismatch
  /// No credentials to sign with.
  case noCredentials(String)

  /// Whether the same request may succeed soon.
  var isRetryable: Bool {
    switch self {
    case .unreachable(.cancelled), .unreachable(.tooLarge), .unreachable(.headerTooLarge),
      .unreachable(.badHost):
      false
    case .unreachable: true
    // 400 RequestTimeout means that the connection was too slow. InternalError and
    // ServiceUnavailable also occur with status 200.
    case .refused(let status, let code, _):
      TransientStatus.contains(status)
        || [
          "RequestTimeout", "SlowDown", "OperationAborted", "InternalError", "ServiceUnavailable",
        ].contains(code)
    case .checksumMismatch, .unexpected, .noCredentials: false
    }
  }

  /// Whether the store has no space left: status 507 (RFC 4918), or QuotaExceeded.
  var isFull: Bool {
    guard case .refused(let status, let code, _) = self else { return false }
    return status == 507 || code == "QuotaExceeded"
  }
}

extension S3Error: CustomStringConvertible {
  /// A description for the log.
  package var description: String {
    switch self {
    case .unreachable(let error): "the object store can't be reached: \(error)"
    case .refused(let status, let code, let message):
      "the object store responded with \(status) \(code): \(message)"
    case .unexpected(let what): "the request to the object store failed: \(what)"
    case .checksumMismatch: "the object store's checksum differs from the bytes sent"
    case .noCredentials(let why): "no credentials for the object store: \(why)"
    }
  }
}
