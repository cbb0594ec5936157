package import Jobs

extension JobEngine {
  /// The engine's settings, as the operator configured them.
  package struct Configuration: Sendable {
    /// Number of workers: loads that run at the same time.
    package var workers = 64
    /// Queued jobs. Above this limit submissions are refused.
    package var maxQueued = 100_000
    /// After the store reported a full queue, submissions are refused for this long without asking the store again,
    /// unless a job has left the queue.
    package var refusalDuration: Duration = .milliseconds(200)
    /// Owners whose tokens limit the bytes fetched per day, at the start of the service.
    package var limitedOwners: Set<Owner> = []
    /// Queued jobs of batches. Above this limit no lines are accepted.
    package var maxQueuedLines = 4_000_000
    /// Bytes of the records of all jobs, queued or finished. Above this limit submissions are refused.
    package var maxRecordBytes = 4_000_000_000
    /// Unfinished batches of one owner. Above this limit no batch can be created.
    package var maxBatches = 1_000
    /// Undelivered messages of one owner. Above this limit jobs and batches with a webhook are refused.
    package var maxWaitingMessages = 100_000
    /// An open batch that receives no lines for this long is closed.
    package var batchIdle: Duration = .seconds(3600)
    /// How long a finished job is kept, unless the job sets its own `retention`.
    package var retention: Duration = .seconds(3600)
    /// How long an idempotency key is stored, at least, even if its jobs are purged earlier.
    package var idempotencyTTL: Duration = .seconds(86_400)
    /// When failed loads are tried again.
    package var retry = RetryPolicy()
    /// Time for a whole transfer. A job can only set a shorter one.
    package var timeout: Duration = .seconds(60)
    /// Time for all deliveries of a job together, from the start of the first one.
    package var deliverTimeout: Duration = .seconds(300)
    /// Bytes of one image. A job can only set a lower limit.
    package var maxBytes = 32 << 20
    /// Limits of decoding. `maxMemory` also limits what all decodes together may use.
    package var limits = DecodeLimits()
    /// The lease of this process: if it is not renewed within this time, other instances may take its jobs over. It is
    /// renewed six times as often.
    package var lease: Duration = .seconds(8)
    /// The name and the release of this process, for display.
    package var name: String?
    package var version: String?
    /// Bytes of all stored images.
    package var maxStoredBytes = 10_000_000_000
    /// Whether the network is constrained: low-data images are preferred.
    package var isConstrained = false
    /// Jobs whose newest state is cached in memory, about 1.5 KB each. Up to twice as many are held.
    package var snapshotCapacity = 16_384

    /// Transfers at the same time to one origin.
    package var maxPerOrigin = 6
    /// New requests per second to one origin; 0: no limit.
    package var requestsPerSecondPerOrigin = 0.0
    /// Variants rendered at the same time.
    package var renderingsAtOnce = 2
    /// Variants that wait to be rendered. Above this limit requests for variants are refused.
    package var maxWaitingRenderings = 256
    /// The operator's placeholder images, in place of the built-in ones.
    package var placeholders: [Placeholder: PlaceholderImage] = [:]
    package var cache = CacheConfiguration()
    /// When and how it is checked whether images can be decoded.
    package var canary = CanaryRules()
    /// Which jobs are traced; nil: none.
    package var tracing: TraceRules?

    /// The defaults.
    package init() {}
  }
}

extension JobEngine.Configuration {
  /// The limits of each load, and which jobs may share one.
  var loadRules: LoadRules {
    LoadRules(
      timeout: timeout, maxBytes: maxBytes, maxPixels: limits.maxPixels, isShared: cache.isShared,
      isTraced: tracing != nil)
  }

  /// A worker counts as stuck only after more time than any transfer may take.
  var canaryRules: CanaryRules {
    var rules = canary
    rules.maxLoadTime = max(rules.maxLoadTime, timeout * 3)
    return rules
  }

  /// How many requests an origin gets.
  var originRules: OriginRules {
    var rules = OriginRules()
    rules.maxTransfers = maxPerOrigin
    rules.requestsPerSecond = requestsPerSecondPerOrigin
    return rules
  }
}
