internal import HTTP
package import Jobs
package import Settings

/// The settings of the API: who may use it, and its limits.
package struct APIConfiguration: Sendable {
  /// Empty: every client may do everything, and all jobs have one owner.
  package var tokens: [Token] = []
  /// Whether `/metrics` is readable without a token.
  package var publicMetrics = false
  /// Requests per client; nil: unlimited.
  package var rateLimit: RateLimit?
  /// Whether the address belongs to a trusted proxy. Its `Forwarded` and `X-Forwarded-For` fields name the client.
  package var isTrustedProxy: @Sendable (String) -> Bool = { _ in false }
  /// The maximum number of jobs in one submission to `/jobs`.
  package var maxBatch = 1000
  /// The maximum number of lines of one batch that is sent as lines to `/batches`.
  package var maxBatchLines = 1_000_000
  /// The longest time that a request waits for a job. A longer `wait` is shortened to it.
  package var maxWait: Duration = .seconds(60)
  /// The maximum size of a request's content, in bytes.
  package var maxBody = HTTPServer.Configuration().maxBody
  /// The maximum number of open connections. One client may use at most half of them for waiting, while other clients
  /// wait too.
  package var maxConnections = HTTPServer.Configuration().maxConnections
  /// The maximum number of `GET /events` streams per client. Each stream carries the events of all its jobs.
  static let maxEventStreams = 64
  /// Web origins (`https://app.example`) whose scripts may use the API; `*` allows all.
  package var corsOrigins: [String] = []
  /// The names that `Host` may have if there are no tokens, in addition to `localhost` and loopback addresses. Lower
  /// case, without a port; nil: any name.
  ///
  /// A service that only this machine can reach needs it. Otherwise a web page could point its own name to 127.0.0.1
  /// and use the service (DNS rebinding).
  package var allowedHosts: Set<String>?
  /// Settings of `GET /image`.
  package var view = View()
  /// The largest values that a job may request.
  package var limits = Limits()
  /// Whether webhook URLs may use `http`.
  package var allowsPlainWebhooks = false
  /// The destinations that jobs may deliver to, each with the owners that may use it; nil: all owners.
  package var destinations: [String: Set<Owner>?] = [:]
  /// Whether a job stores the trace context (`traceparent`) of its request.
  package var storesTraceContext = false
  /// Whether a folder for local images is configured.
  package var hasLocalRoot = false

  /// The defaults of the configuration: no tokens, no rate limit.
  package init() {}

  /// The limits for JSON bodies that are read completely before they are parsed.
  var bodyLimits: BodyLimits { BodyLimits(maxBody: maxBody, maxBatch: maxBatch) }

  /// Whether `GET /image` requires a signed URL.
  var requiresSignedViews: Bool { view.signatures.canSign || !tokens.isEmpty }

  /// Settings of `GET /image`.
  package struct View: Sendable {
    /// Whether the route exists.
    package var isEnabled = false
    /// Verifies the signatures of URLs. If tokens or keys are configured, only signed URLs are answered.
    package var signatures = ViewSignature(keys: [])
  }

  /// The largest values that a job may request.
  package struct Limits: Sendable, Equatable {
    /// The timeout of one transfer.
    package var timeout = FetchRequest.usualTimeout
    /// The size of one image in bytes.
    package var maxBytes = FetchRequest.usualMaxBytes
    /// The width times the height of one image.
    package var maxPixels = DecodeLimits().maxPixels
    /// The longest side of a variant, in pixels. Its width times height is limited by ``maxPixels``.
    package var maxDimension = DecodeLimits().maxDimension
    /// The longest retention of a finished job.
    package var maxRetention: Duration = .seconds(365 * 86_400)

    package init() {}
  }
}

/// A bearer token (RFC 6750). The service stores only its digest.
package struct Token: Sendable, Equatable {
  /// The owner of the jobs that are submitted with the token.
  var owner: Owner
  /// SHA-256 of the token.
  var digest: ImageDigest
  /// The permissions of the token.
  var scopes: Set<Scope>
  /// The limits of its owner.
  package var limits = OwnerLimits()
  /// The request rate of its client; nil: ``APIConfiguration/rateLimit``.
  package var rateLimit: RateLimit?

  package init(owner: Owner, digest: ImageDigest, scopes: Set<Scope>) {
    self.owner = owner
    self.digest = digest
    self.scopes = scopes
  }
}

/// A permission of a token.
package enum Scope: String, Sendable, CaseIterable {
  /// The jobs of its owner.
  case jobs
  /// The jobs of all owners, the cache, the network state and the metrics.
  case admin
}

/// A token bucket: `burst` requests at once, refilled at `requestsPerSecond`.
package struct RateLimit: Sendable, Equatable {
  /// Average requests per second; more than 0.
  var requestsPerSecond: Double
  /// Requests at once; at least 1.
  var burst: Double

  /// - Parameter burst: 0 means the requests of one second.
  package init(requestsPerSecond: Double, burst: Double) {
    self.requestsPerSecond = requestsPerSecond
    self.burst = max(1, burst > 0 ? burst : requestsPerSecond)
  }

  var rate: TokenBucket.Rate { TokenBucket.Rate(perSecond: requestsPerSecond, burst: burst) }
}

extension APIConfiguration {
  /// The configuration keys of these settings.
  package static let settings: [Setting<APIConfiguration>] = [
    Setting(
      "server.cors_origins", \.corsOrigins, .list(.origin),
      "Web origins whose pages may read responses (CORS)."),
    Setting(
      "auth.public_metrics", \.publicMetrics, .boolean,
      "Whether /metrics can be read without a token."),
    Setting(
      "api.max_batch", \.maxBatch, .integer(1...100_000),
      "Maximum jobs in one array."),
    Setting(
      "api.max_batch_lines", \.maxBatchLines, .integer(1...10_000_000),
      "Maximum lines of one batch (POST /batches)."),
    Setting(
      "api.max_wait", \.maxWait, .duration(.milliseconds(1) ... .hours(1)),
      "The longest time that a request may wait for its job."),
    Setting(
      "jobs.max_retention", \.limits.maxRetention, .duration(.milliseconds(1) ... .days(365)),
      "The longest `retention` that a job may ask for; the default above may be longer."),
    Setting(
      "view.enabled", \.view.isEnabled, .boolean,
      "Whether GET /image exists."),
    Setting(
      "webhooks.allow_http", \.allowsPlainWebhooks, .boolean,
      "Whether http receivers are allowed, without TLS."),
  ]
}
