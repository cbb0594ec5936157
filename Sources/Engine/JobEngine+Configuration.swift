public import Jobs

extension JobEngine {
  /// What the engine is told by the operator.
  public struct Configuration: Sendable {
    /// Jobs in flight: one worker each.
    public var workers = 64
    /// Beyond so many queued jobs a submission is refused.
    public var maxQueued = 100_000
    /// How long a finished job is kept, where it doesn't say itself.
    public var retention: Duration = .seconds(3600)
    /// How long an idempotency key is kept, at least, whatever becomes of its jobs.
    public var idempotencyTTL: Duration = .seconds(86_400)
    /// When failed jobs are tried again.
    public var retry = RetryPolicy()
    /// For a whole transfer; a job's own is never longer.
    public var timeout: Duration = .seconds(60)
    /// Of one image's bytes; a job's own is never larger.
    public var maxBytes = 32 << 20
    /// Of decoding. `maxMemory` is also what all decodes may hold at once.
    public var limits = DecodeLimits()
    /// How long the store waits for a word of this process before others take its jobs over; it says one three times as
    /// often.
    public var lease: Duration = .seconds(15)
    /// Of all kept images' bytes.
    public var maxStoredBytes = 10_000_000_000
    /// Whether low-data images are preferred.
    public var isConstrained = false
    /// Jobs whose newest state is held in memory for quick answers: between one and two times so many, some 1.5 KB each.
    public var shownJobs = 16_384

    /// Transfers to one origin at once.
    public var maxPerOrigin = 6
    /// New requests a second to one origin; 0 is no limit.
    public var requestsPerSecondPerOrigin = 0.0
    /// Variants rendered at the same time.
    public var renderingsAtOnce = 2
    /// Variants that wait to be rendered; beyond that a request for one is refused.
    public var maxWaitingRenderings = 256
    /// The operator's pictures in place of images that are not there; where there is none, one is drawn.
    public var placeholders: [Placeholder: PlaceholderPicture] = [:]
    /// What is kept of responses.
    public var cache = CacheConfiguration()

    /// The defaults.
    public init() {}
  }
}

/// What the operator says of the cache.
public struct CacheConfiguration: Sendable, Equatable {
  /// Whether anything is cached.
  public var isEnabled = true
  /// Bytes of images held in memory.
  public var memory = 100_000_000
  /// Bytes of images kept on disk.
  public var disk = 1_000_000_000
  /// Whether one owner may be answered from what another one fetched.
  public var isShared = true
  /// Freshness of a response that says nothing of its own; zero leaves it to the heuristics of RFC 9111 section 4.2.2.
  public var defaultTTL: Duration = .seconds(86_400)

  /// The defaults.
  public init() {}
}
