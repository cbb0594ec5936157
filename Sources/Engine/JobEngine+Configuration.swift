public import Jobs

extension JobEngine {
  /// What the operator configures of the engine.
  public struct Configuration: Sendable {
    /// Jobs in flight: one worker each.
    public var workers = 64
    /// Beyond so many queued jobs a submission is refused.
    public var maxQueued = 100_000
    /// So long a submission is refused without asking the store, once that has said that the queue is full, unless a job
    /// has left it meanwhile.
    public var refusalStands: Duration = .milliseconds(200)
    /// Those whose tokens bound the bytes that come for them in a day, when the service starts.
    public var limitedOwners: Set<Owner> = []
    /// Beyond so many queued jobs that are lines of batches no more lines are taken.
    public var maxQueuedLines = 4_000_000
    /// Bytes of the records of all jobs, queued or finished: beyond it no more are taken.
    public var maxRecordBytes = 4_000_000_000
    /// Beyond so many batches of an owner that are not over no other one is begun.
    public var maxBatches = 1_000
    /// Beyond so many messages that wait for an owner's receivers nothing is taken that asks for another.
    public var maxWaitingMessages = 100_000
    /// How long a batch receives that nobody goes on with.
    public var batchIdle: Duration = .seconds(3600)
    /// How long a finished job is kept, where it doesn't say itself.
    public var retention: Duration = .seconds(3600)
    /// How long an idempotency key is kept, at least, whatever becomes of its jobs.
    public var idempotencyTTL: Duration = .seconds(86_400)
    /// When failed jobs are tried again.
    public var retry = RetryPolicy()
    /// For a whole transfer; a job's own is never longer.
    public var timeout: Duration = .seconds(60)
    /// For all deliveries of a job, from the beginning of the first one.
    public var deliverTimeout: Duration = .seconds(300)
    /// Of one image's bytes; a job's own is never larger.
    public var maxBytes = 32 << 20
    /// Of decoding. `maxMemory` is also what all decodes may hold at once.
    public var limits = DecodeLimits()
    /// How long the store waits for this process to renew its lease, before others may take its jobs over; it renews the
    /// lease six times as often.
    public var lease: Duration = .seconds(8)
    /// What this process is called, and what release it is, for people.
    public var name: String?
    public var version: String?
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
    /// When it is tried whether images can be decoded.
    public var canary = CanaryRules()
    /// Which jobs are traced; nil: none.
    public var tracing: TraceRules?

    /// The defaults.
    public init() {}
  }
}

extension JobEngine.Configuration {
  /// What each load may take, and with whom it is shared.
  var loadRules: LoadRules {
    LoadRules(
      timeout: timeout, maxBytes: maxBytes, maxPixels: limits.maxPixels, isShared: cache.isShared,
      isTraced: tracing != nil)
  }

  /// A worker is stuck only beyond what transfers may take.
  var canaryRules: CanaryRules {
    var rules = canary
    rules.longest = max(rules.longest, timeout * 3)
    return rules
  }

  /// What each origin may be asked.
  var originRules: OriginRules {
    var rules = OriginRules()
    rules.maxTransfers = maxPerOrigin
    rules.requestsPerSecond = requestsPerSecondPerOrigin
    return rules
  }
}
