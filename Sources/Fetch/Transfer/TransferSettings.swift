internal import Jobs

/// Settings that all transfers of a fetcher share.
struct TransferSettings: Sendable {
  var connectTimeout: Duration
  var stallTimeout: Duration
  var userAgent: String
  var certificateAuthorities: String?
  var maxConnections: Int
  var maxIdleConnections: Int
  var maxHeaderBytes: Int
}

/// Everything that the loop needs to start one transfer.
struct TransferPlan: Sendable {
  var exchange: TransferExchange
  var route: TransferRoute
  var method = OutgoingRequest.Method.get
  /// Checked fields of the request. Defaults such as `User-Agent` are added later.
  var headers: [HeaderField]
  var content: OutgoingContent?
  /// The end of the whole fetch. `timeout` is its length, for the error message.
  var deadline: ContinuousClock.Instant
  var timeout: Duration
  /// When this hop began, including the name lookup.
  var started: ContinuousClock.Instant
}

extension Duration {
  /// Seconds rounded to milliseconds, so that a configured 0.3 is reported as 0.3.
  var roundedSeconds: Double { Double(inMilliseconds) / 1_000 }
}
