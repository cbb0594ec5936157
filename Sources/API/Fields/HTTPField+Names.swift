internal import HTTPTypes

/// Field names that HTTPTypes does not define.
extension HTTPField.Name {
  static let acceptPatch = HTTPField.Name("Accept-Patch")!  // each of these is a token
  static let cacheStatus = HTTPField.Name("Cache-Status")!
  static let forwarded = HTTPField.Name("Forwarded")!
  /// HTTPTypes reserves `host` for its own form of requests.
  static let hostField = HTTPField.Name("Host")!
  static let idempotencyKey = HTTPField.Name("Idempotency-Key")!
  /// Marks a request that another instance sends for its client.
  static let imagePhase = HTTPField.Name("Image-Phase")!
  static let imagePreview = HTTPField.Name("Image-Preview")!
  static let lastEventID = HTTPField.Name("Last-Event-ID")!
  static let link = HTTPField.Name("Link")!
  static let prefer = HTTPField.Name("Prefer")!
  static let preferenceApplied = HTTPField.Name("Preference-Applied")!
  static let rateLimit = HTTPField.Name("RateLimit")!
  static let rateLimitPolicy = HTTPField.Name("RateLimit-Policy")!
  static let referrerPolicy = HTTPField.Name("Referrer-Policy")!
  static let saveData = HTTPField.Name("Save-Data")!
  static let secFetchSite = HTTPField.Name("Sec-Fetch-Site")!
  static let traceparent = HTTPField.Name("traceparent")!
  static let xAccelBuffering = HTTPField.Name("X-Accel-Buffering")!
  static let xForwardedFor = HTTPField.Name("X-Forwarded-For")!
  static let xRequestID = HTTPField.Name("X-Request-Id")!
}
