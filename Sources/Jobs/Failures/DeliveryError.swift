/// Why a delivery failed. Contains no credentials and no part of the request.
package enum DeliveryError: Error, Sendable, Equatable, Codable {
  /// The receiver answered with an error: its status, and S3's error code if there is one.
  case refused(to: String, status: Int, code: String?)
  /// The receiver did not answer, or the network rules forbid the request.
  case unreachable(to: String, FetchError)
  /// The receiver stored different bytes than were sent.
  case differs(to: String)
  /// The configuration no longer has this destination.
  case unknown(to: String)
  /// The operator's credentials are missing.
  case noCredentials(to: String)
  /// The key is longer than ``DeliveryKey/longest``.
  case longKey(to: String)
  /// The bytes cannot be read from the image store.
  case unreadable(to: String)
  /// The calling task was cancelled.
  case cancelled

  /// Whether a retry may succeed.
  package var isPassing: Bool {
    switch self {
    case .refused(_, let status, _): TransientStatus.contains(status)
    case .unreachable(_, .blocked), .unreachable(_, .badHost), .unreachable(_, .cancelled): false
    case .unreachable: true
    case .differs, .unknown, .noCredentials, .longKey, .unreadable, .cancelled: false
    }
  }
}

extension DeliveryError: ExplainedError {
  package var explanation: Explanation {
    switch self {
    case .refused(let to, let status, let code?):
      failure("\(to) responded with \(status) (\(code)).")
    case .refused(let to, let status, nil): failure("\(to) responded with \(status).")
    case .unreachable(let to, let error):
      switch error {
      case .timeout, .stalled:
        failure("\(to) did not accept the image in time.", log: "\(to): \(error)")
      default:
        failure("\(to) could not be reached: \(error)", log: "\(to): \(error)")
      }
    case .differs(let to): failure("\(to) stored different bytes than were sent.")
    case .unknown(let to): failure("The destination \(to) is no longer configured.")
    case .noCredentials(let to):
      failure("The service has no credentials for \(to). See its log.")
    case .longKey(let to): failure("The key at \(to) is longer than 1,024 bytes.")
    case .unreadable(let to):
      .fault(.deliveryFailure, log: "the image for \(to) cannot be read")
    case .cancelled: .fault(.deliveryFailure, log: "the delivery was cancelled")
    }
  }

  private func failure(_ detail: Sentence, log: String? = nil) -> Explanation {
    Explanation(.deliveryFailure, detail, log: log)
  }
}
