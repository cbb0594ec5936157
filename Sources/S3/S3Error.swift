public import Jobs

/// Why an object store did not do as asked.
public enum S3Error: Error, Sendable, Equatable {
  /// No response, or not all of it.
  case unreachable(FetchError)
  /// It answered with an error: its status, the code and the words of its XML, if it had some.
  case refused(status: Int, code: String, message: String)
  /// What it answered is not what S3 has.
  case unexpected(String)
  /// What it says it stored is not what was sent.
  case otherBytes
  /// There are no credentials to sign with.
  case noCredentials(String)

  /// Whether the same request may succeed in a moment.
  var isRetryable: Bool {
    switch self {
    case .unreachable(.cancelled), .unreachable(.tooLarge), .unreachable(.headerTooLarge),
      .unreachable(.badHost):
      false
    case .unreachable: true
    // 400 RequestTimeout: the connection was too slow for it. InternalError and ServiceUnavailable also come with 200.
    case .refused(let status, let code, _):
      TransientStatus.contains(status)
        || [
          "RequestTimeout", "SlowDown", "OperationAborted", "InternalError", "ServiceUnavailable",
        ].contains(code)
    case .otherBytes, .unexpected, .noCredentials: false
    }
  }

  /// Whether it has no room: RFC 4918's status, or what stores with quotas say.
  var isFull: Bool {
    guard case .refused(let status, let code, _) = self else { return false }
    return status == 507 || code == "QuotaExceeded"
  }
}

extension S3Error: CustomStringConvertible {
  /// For the log.
  public var description: String {
    switch self {
    case .unreachable(let error): "the object store can't be reached: \(error)"
    case .refused(let status, let code, let message):
      "the object store answers \(status) \(code): \(message)"
    case .unexpected(let what): "the object store's answer makes no sense: \(what)"
    case .otherBytes: "the object store has other bytes than it was sent"
    case .noCredentials(let why): "no credentials for the object store: \(why)"
    }
  }
}
