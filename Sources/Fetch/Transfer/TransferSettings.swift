internal import Jobs

/// What is the same for every transfer of a fetcher.
struct TransferSettings: Sendable {
  var connectTimeout: Duration
  var stallTimeout: Duration
  var userAgent: String
  var certificateAuthorities: String?
  var maxConnections: Int
  var maxIdleConnections: Int
  var maxHeaderBytes: Int
}

/// What the loop needs to start one transfer.
struct TransferPlan: Sendable {
  var exchange: Exchange
  var route: Route
  var method = OutgoingRequest.Method.get
  /// Checked; the defaults are not among them.
  var headers: [HeaderField]
  var content: OutgoingContent?
  /// Of the whole fetch; `timeout` is what it was made of, for the error.
  var deadline: ContinuousClock.Instant
  var timeout: Duration
  /// When this hop began, its name's resolution included.
  var started: ContinuousClock.Instant
}

extension Duration {
  /// Seconds to the millisecond, so that what was configured as 0.3 is also told as 0.3.
  var roundedSeconds: Double { Double(inMilliseconds) / 1_000 }
}
