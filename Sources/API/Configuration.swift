public import Jobs

/// What the API lets in and from whom.
public struct Configuration: Sendable {
  /// Who may do what; empty: everyone everything, under one owner.
  public var tokens: [Token] = []
  /// Whether `/metrics` needs no token.
  public var publicMetrics = false
  /// How often one client may ask; nil: as often as it likes.
  public var rateLimit: RateLimit?
  /// Whether an address is a proxy's which may say whom it asks for (`Forwarded`, `X-Forwarded-For`).
  public var isTrustedProxy: @Sendable (String) -> Bool = { _ in false }
  /// Jobs in one submission.
  public var maxBatch = 1000
  /// Lines of one batch that is sent as a list.
  public var maxBatchLines = 1_000_000
  /// The longest that a request is kept waiting; a longer wish is cut to it.
  public var maxWait: Duration = .seconds(60)
  /// Bytes of a request's content.
  public var maxBody = 32 << 20
  /// Connections at once: one client waits on at most half of them while others do.
  public var maxConnections = 10_000
  /// Streams of `GET /events` that one client has at once: each gets the events of all its jobs.
  public static let maxEventStreams = 64
  /// Web origins (`https://app.example`) whose scripts may use the API; `*` stands for all.
  public var corsOrigins: [String] = []
  /// Where there are no tokens: the names, besides `localhost` and loopback addresses, under which
  /// the service may be asked for (in `Host`), in lower case and without a port; nil: any name.
  ///
  /// A service that only this machine reaches wants it: otherwise a web page whose own name was
  /// pointed to 127.0.0.1 could ask it like a friend.
  public var allowedHosts: Set<String>?
  /// `GET /image`.
  public var view = View()
  /// What a job's own limits may not exceed.
  public var limits = Limits()
  /// Whether webhooks may be sent without TLS.
  public var allowsPlainWebhooks = false
  /// The names of the places that images may be delivered to, each with the owners that may use it; nil: all.
  public var destinations: [String: Set<Owner>?] = [:]
  /// Whether jobs keep where their client's request stands in a trace.
  public var takesTraces = false
  /// Whether named local images exist at all.
  public var hasLocalRoot = false

  /// The configuration's defaults: open, without a rate limit.
  public init() {}

  /// How much of JSON is gathered.
  var gathering: Gathering { Gathering(maxBody: maxBody, maxBatch: maxBatch) }

  /// Whether views are answered to signed URLs only.
  var signsViews: Bool { view.signatures.canSign || !tokens.isEmpty }

  /// `GET /image`.
  public struct View: Sendable {
    /// Whether it is there.
    public var isEnabled = false
    /// Who signed its URLs. Where there are tokens, or keys, only signed ones are answered.
    public var signatures = ViewSignature(keys: [])

    /// The configuration's defaults: it is not there.
    public init() {}
  }

  /// The widest that a job may ask for.
  public struct Limits: Sendable, Equatable {
    /// Of one transfer.
    public var timeout: Duration = .seconds(60)
    /// Of one image.
    public var maxBytes = 32 << 20
    /// Of one image: width times height.
    public var maxPixels = 50_000_000
    /// Of a variant's side, in pixels; of its width times height ``maxPixels``.
    public var maxDimension = 30_000
    /// How long a finished job may be kept at a client's wish.
    public var maxRetention: Duration = .seconds(365 * 86_400)

    /// The configuration's defaults.
    public init() {}
  }
}

/// A secret that a client shows (RFC 6750), known here by its digest alone.
public struct Token: Sendable, Equatable {
  /// What the token's jobs belong to.
  public var owner: Owner
  /// SHA-256 of the token.
  public var digest: ImageDigest
  /// What it is good for.
  public var scopes: Set<Scope>
  /// What its owner may have by it.
  public var limits = OwnerLimits()
  /// How often its holder may ask; nil: as often as ``Configuration/rateLimit`` says.
  public var rateLimit: RateLimit?

  /// A token.
  public init(owner: Owner, digest: ImageDigest, scopes: Set<Scope>) {
    self.owner = owner
    self.digest = digest
    self.scopes = scopes
  }
}

/// What a token is good for.
public enum Scope: String, Sendable, CaseIterable {
  /// Its owner's jobs.
  case jobs
  /// Everyone's jobs, and what concerns the service itself.
  case admin
}

/// A token bucket: `burst` requests at once, refilled at `requestsPerSecond`.
public struct RateLimit: Sendable, Equatable {
  /// Requests a second in the long run; more than 0.
  public var requestsPerSecond: Double
  /// Requests at once; at least 1.
  public var burst: Double

  /// - Parameter burst: 0 stands for one second's requests.
  public init(requestsPerSecond: Double, burst: Double) {
    self.requestsPerSecond = requestsPerSecond
    self.burst = max(1, burst > 0 ? burst : requestsPerSecond)
  }
}
