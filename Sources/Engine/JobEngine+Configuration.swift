package import Jobs
package import Settings

extension JobEngine {
  /// The engine's settings, as the operator configured them.
  package struct Configuration: Sendable {
    /// Number of workers: loads that run at the same time.
    package var workers = 64
    /// Queued jobs. Above this limit submissions are refused.
    var maxQueued = 100_000
    /// After the store reported a full queue, submissions are refused for this long without asking the store again,
    /// unless a job has left the queue.
    var refusalDuration: Duration = .milliseconds(200)
    /// Owners whose tokens limit the bytes fetched per day, at the start of the service.
    package var limitedOwners: Set<Owner> = []
    /// Queued jobs of batches. Above this limit no lines are accepted.
    var maxQueuedLines = 4_000_000
    /// Bytes of the records of all jobs, queued or finished. Above this limit submissions are refused.
    var maxRecordBytes = 4_000_000_000
    /// Unfinished batches of one owner. Above this limit no batch can be created.
    var maxBatches = 1_000
    /// Undelivered messages of one owner. Above this limit jobs and batches with a webhook are refused.
    var maxWaitingMessages = 100_000
    /// An open batch that receives no lines for this long is closed.
    var batchIdle: Duration = .seconds(3600)
    /// How long a finished job is kept, unless the job sets its own `retention`.
    package var retention: Duration = .seconds(86_400)
    /// How long an idempotency key is stored, at least, even if its jobs are purged earlier.
    var idempotencyTTL: Duration = .seconds(86_400)
    /// When failed loads are tried again.
    package var retry = RetryPolicy()
    /// Time for a whole transfer. A job can only set a shorter one.
    package var timeout = FetchRequest.usualTimeout
    /// Time for all deliveries of a job together, from the start of the first one.
    var deliverTimeout: Duration = .seconds(300)
    /// Bytes of one image. A job can only set a lower limit.
    package var maxBytes = FetchRequest.usualMaxBytes
    /// Limits of decoding. `maxMemory` also limits what all decodes together may use.
    package var limits = DecodeLimits(formats: Set(ImageFormat.usual))
    /// The lease of this process: if it is not renewed within this time, other instances may take its jobs over. It is
    /// renewed six times as often.
    package var lease: Duration = .seconds(8)
    /// The times of announcements between instances.
    var announcements = AnnouncementRules()
    /// The name and the release of this process, for display.
    package var name: String?
    package var version: String?
    /// Bytes of all stored images.
    var maxStoredBytes = 10_000_000_000
    /// Whether the network is constrained: low-data images are preferred.
    package var isConstrained = false
    /// Jobs whose newest state is cached in memory, about 1.5 KB each. Up to twice as many are held.
    var snapshotCapacity = 16_384

    /// Transfers at the same time to one origin.
    package var maxPerOrigin = 6
    /// New requests per second to one origin; 0: no limit.
    package var requestsPerSecondPerOrigin = 0.0
    /// Variants rendered at the same time.
    package var renderingsAtOnce = 2
    /// Variants that wait to be rendered. Above this limit requests for variants are refused.
    var maxWaitingRenderings = 256
    /// The operator's placeholder images, in place of the built-in ones.
    package var placeholders: [Placeholder: PlaceholderImage] = [:]
    package var cache = CacheConfiguration()
    /// When and how it is checked whether images can be decoded.
    var canary = CanaryRules()
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

extension JobEngine.Configuration {
  /// The configuration keys of these settings.
  package static let settings: [Setting<JobEngine.Configuration>] =
    [
      Setting(
        "jobs.workers", \.workers, .integer(1...10_000),
        "Number of workers: loads that can run concurrently."),
      Setting(
        "jobs.max_queued", \.maxQueued, .integer(1...10_000_000),
        "Maximum queued jobs; a job with a very long request counts as several. One owner may use half of it while other owners submit jobs. More are refused with 503."
      ),
      Setting(
        "jobs.max_queued_lines", \.maxQueuedLines, .integer(1...100_000_000),
        "Maximum queued jobs from batches, counted and shared in the same way."),
      Setting(
        "jobs.retention", \.retention, .duration(.milliseconds(1) ... .days(3650)),
        "How long a finished job is kept."),
      Setting(
        "jobs.deliver_timeout", \.deliverTimeout, .duration(.milliseconds(1) ... .days(1)),
        "Maximum time for all deliveries of a job, from the start of the first one."),
      Setting(
        "api.max_batches", \.maxBatches, .integer(1...1_000_000),
        "Maximum unfinished batches of one owner; more are refused with 429."),
      Setting(
        "api.batch_idle", \.batchIdle, .duration(.milliseconds(1) ... .days(3650)),
        "How long an open batch may receive no lines before it is closed."),
      Setting(
        "api.idempotency_ttl", \.idempotencyTTL, .duration(.milliseconds(1) ... .days(3650)),
        "Minimum time that an Idempotency-Key is kept, even if its jobs are deleted; clients rely on one day."
      ),
      Setting(
        "fetch.timeout", \.timeout, .duration(.milliseconds(1) ... .minutes(10)),
        "Maximum time of a transfer."),
      Setting(
        "fetch.max_bytes", \.maxBytes, .size(1...(4 << 30)),
        "Maximum bytes of an image."),
      Setting(
        "fetch.max_per_host", \.maxPerOrigin, .integer(1...10_000),
        "Maximum concurrent transfers from one origin; further jobs wait without a worker."),
      Setting(
        "fetch.rate_per_host", \.requestsPerSecondPerOrigin, .number(0...1_000_000),
        "Maximum new requests per second to one origin; 0 for no limit."),
      Setting(
        "webhooks.max_waiting", \.maxWaitingMessages, .integer(1...10_000_000),
        "Maximum waiting messages of one owner. Above it, jobs and batches with `notify` are refused with 429."
      ),
      Setting(
        "storage.max_bytes", \.maxStoredBytes, .size(1 ... .petabyte),
        "Maximum bytes of all images. The images of the oldest finished jobs are evicted; the jobs stay."
      ),
      Setting(
        "storage.max_record_bytes", \.maxRecordBytes, .size(1 ... .petabyte),
        "Maximum bytes of the records of jobs, queued or finished. One owner may use half of it while other owners have jobs."
      ),
      Setting(
        "cluster.lease", \.lease, .duration(.seconds(1) ... .minutes(10)),
        "How long an instance keeps its jobs without renewing its lease. It renews the lease six times in that period."
      ),
      Setting(
        "network.constrained", \.isConstrained, .boolean,
        "Whether low-data images are preferred after the start; PUT /network changes it."),
    ] + RetryPolicy.settings.map { Setting($0, of: \.retry) }
    + DecodeLimits.settings.map { Setting($0, of: \.limits) }
    + CacheConfiguration.settings.map { Setting($0, of: \.cache) }
}
