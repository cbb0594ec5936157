public import Jobs

/// The settings of the API: who may use it, and its limits.
public struct APIConfiguration: Sendable {
  /// Empty: every client may do everything, and all jobs have one owner.
  public var tokens: [Token] = []
  /// Whether `/metrics` is readable without a token.
  public var publicMetrics = false
  /// Requests per client; nil: unlimited.
  public var rateLimit: RateLimit?
  /// Whether the address belongs to a trusted proxy. Its `Forwarded` and `X-Forwarded-For` fields name the client.
  public var isTrustedProxy: @Sendable (String) -> Bool = { _ in false }
  /// The maximum number of jobs in one submission to `/jobs`.
  public var maxBatch = 1000
  /// The maximum number of lines of one batch that is sent as lines to `/batches`.
  public var maxBatchLines = 1_000_000
  /// The longest time that a request waits for a job. A longer `wait` is shortened to it.
  public var maxWait: Duration = .seconds(60)
  /// The maximum size of a request's content, in bytes.
  public var maxBody = 32 << 20
  /// The maximum number of open connections. One client may use at most half of them for waiting, while other clients
  /// wait too.
  public var maxConnections = 10_000
  /// The maximum number of `GET /events` streams per client. Each stream carries the events of all its jobs.
  public static let maxEventStreams = 64
  /// Web origins (`https://app.example`) whose scripts may use the API; `*` allows all.
  public var corsOrigins: [String] = []
  /// The names that `Host` may have if there are no tokens, in addition to `localhost` and loopback addresses. Lower
  /// case, without a port; nil: any name.
  ///
  /// A service that only this machine can reach needs it. Otherwise a web page could point its own name to 127.0.0.1
  /// and use the service (DNS rebinding).
  public var allowedHosts: Set<String>?
  /// Settings of `GET /image`.
  public var view = View()
  /// The largest values that a job may request.
  public var limits = Limits()
  /// Whether webhook URLs may use `http`.
  public var allowsPlainWebhooks = false
  /// The destinations that jobs may deliver to, each with the owners that may use it; nil: all owners.
  public var destinations: [String: Set<Owner>?] = [:]
  /// Whether a job stores the trace context (`traceparent`) of its request.
  public var storesTraceContext = false
  /// Whether a folder for local images is configured.
  public var hasLocalRoot = false

  /// The defaults of the configuration: no tokens, no rate limit.
  public init() {}

  /// The limits for JSON bodies that are read completely before they are parsed.
  var bodyLimits: BodyLimits { BodyLimits(maxBody: maxBody, maxBatch: maxBatch) }

  /// Whether `GET /image` requires a signed URL.
  var requiresSignedViews: Bool { view.signatures.canSign || !tokens.isEmpty }

  /// Settings of `GET /image`.
  public struct View: Sendable {
    /// Whether the route exists.
    public var isEnabled = false
    /// Verifies the signatures of URLs. If tokens or keys are configured, only signed URLs are answered.
    public var signatures = ViewSignature(keys: [])

    /// The defaults of the configuration: the route does not exist.
    public init() {}
  }

  /// The largest values that a job may request.
  public struct Limits: Sendable, Equatable {
    /// The timeout of one transfer.
    public var timeout: Duration = .seconds(60)
    /// The size of one image in bytes.
    public var maxBytes = 32 << 20
    /// The width times the height of one image.
    public var maxPixels = 50_000_000
    /// The longest side of a variant, in pixels. Its width times height is limited by ``maxPixels``.
    public var maxDimension = 30_000
    /// The longest retention of a finished job.
    public var maxRetention: Duration = .seconds(365 * 86_400)

    public init() {}
  }
}

/// A bearer token (RFC 6750). The service stores only its digest.
public struct Token: Sendable, Equatable {
  /// The owner of the jobs that are submitted with the token.
  public var owner: Owner
  /// SHA-256 of the token.
  public var digest: ImageDigest
  /// The permissions of the token.
  public var scopes: Set<Scope>
  /// The limits of its owner.
  public var limits = OwnerLimits()
  /// The request rate of its client; nil: ``APIConfiguration/rateLimit``.
  public var rateLimit: RateLimit?

  public init(owner: Owner, digest: ImageDigest, scopes: Set<Scope>) {
    self.owner = owner
    self.digest = digest
    self.scopes = scopes
  }
}

/// A permission of a token.
public enum Scope: String, Sendable, CaseIterable {
  /// The jobs of its owner.
  case jobs
  /// The jobs of all owners, the cache, the network state and the metrics.
  case admin
}

/// A token bucket: `burst` requests at once, refilled at `requestsPerSecond`.
public struct RateLimit: Sendable, Equatable {
  /// Average requests per second; more than 0.
  public var requestsPerSecond: Double
  /// Requests at once; at least 1.
  public var burst: Double

  /// - Parameter burst: 0 means the requests of one second.
  public init(requestsPerSecond: Double, burst: Double) {
    self.requestsPerSecond = requestsPerSecond
    self.burst = max(1, burst > 0 ? burst : requestsPerSecond)
  }
}
