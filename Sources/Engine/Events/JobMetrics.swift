internal import Jobs
internal import Metrics
internal import Synchronization

/// The metrics of jobs, cache and variants, as `GET /metrics` shows them.
struct JobMetrics: Sendable {
  private let finished = CounterFamily("imagefetch_jobs_finished_total", ["phase", "code"])
  private let outcomes = CounterFamily("imagefetch_cache_outcomes_total", ["status"])
  private let variants = CounterFamily("imagefetch_variants_total", ["format", "outcome"])
  private let submitted = Counter(label: "imagefetch_jobs_submitted_total")
  private let running = Gauge(label: "imagefetch_jobs_running")
  private let workers = Gauge(label: "imagefetch_workers")
  private let stuck = Gauge(label: "imagefetch_workers_stuck")
  private let joins = Counter(label: "imagefetch_jobs_joined_total")
  private let pausedOrigins = Gauge(label: "imagefetch_paused_origins")
  private let keptBytes = Gauge(label: "imagefetch_partial_bytes")
  private let cacheEntries = Gauge(label: "imagefetch_cache_entries")
  private let cacheBytes = Gauge(label: "imagefetch_cache_bytes")
  private let cacheMemory = Gauge(label: "imagefetch_cache_memory_bytes")
  private let oldest = Gauge(label: "imagefetch_oldest_running_job_seconds")
  private let renderings = Gauge(label: "imagefetch_variants_rendering")
  private let waitingRenderings = Gauge(label: "imagefetch_variants_waiting")
  private let oldestRendering = Gauge(label: "imagefetch_oldest_variant_seconds")
  private let images = Gauge(label: "imagefetch_images")
  private let imageBytes = Gauge(label: "imagefetch_image_bytes")
  private let decode = Timer(label: "imagefetch_decode_seconds")
  private let duration = Timer(label: "imagefetch_job_seconds")

  func submitted(_ count: Int) { submitted.increment(by: Int64(count)) }

  /// Counts jobs that joined a running load.
  func joined(_ count: Int) { joins.increment(by: Int64(count)) }

  func finished(_ job: Job) {
    if let cache = job.cache { outcomes.increment([cache.status.rawValue]) }
    finished.increment([job.phase.rawValue, job.failure?.code.rawValue ?? ""])
    if let time = job.timings.decode { decode.record(duration: time) }
    if let started = job.startedAt, let finished = job.finishedAt {
      duration.record(duration: finished - started)
    }
  }

  /// The result of a request for a variant.
  enum VariantOutcome: String {
    /// It was stored already.
    case hit
    case rendered, joined, refused, failed, abandoned
  }

  func variant(_ format: OutputFormat, _ outcome: VariantOutcome) {
    variants.increment([format.rawValue, outcome.rawValue])
  }

  func rendered(_ format: OutputFormat, in time: Duration) {
    variant(format, .rendered)
    Timer(label: "imagefetch_variant_seconds", dimensions: [("format", format.rawValue)])
      .record(duration: time)
  }

  /// Values that have to be counted before they are read.
  struct Counts {
    var store: StoreCounts
    var cache: CacheCounts
    /// Running loads.
    var running: Int
    /// Loads that run longer than ``CanaryRules/maxLoadTime``.
    var stuck: Int
    var workers: Int
    /// Age of the oldest running load.
    var oldest: Duration
    /// Renderings that run and that wait, and the age of the oldest one; nil if variants are not offered.
    var renderings: (rendering: Int, waiting: Int, oldest: Duration)?
    var pausedOrigins: Int
    /// Bytes of partial transfers.
    var partialBytes: Int
  }

  /// Sets the gauges. Called before the metrics are read.
  func observe(_ counts: Counts) {
    for phase in Phase.allCases {
      Gauge(label: "imagefetch_jobs", dimensions: [("phase", phase.rawValue)])
        .record(counts.store.jobs[phase] ?? 0)
    }
    for state in QueueState.allCases {
      guard let queue = counts.store.queue else { break }
      Gauge(label: "imagefetch_queue_jobs", dimensions: [("state", state.rawValue)])
        .record(queue[state] ?? 0)
    }
    running.record(counts.running)
    workers.record(counts.workers)
    stuck.record(counts.stuck)
    oldest.record(counts.oldest.inSeconds)
    if let load = counts.renderings {
      renderings.record(load.rendering)
      waitingRenderings.record(load.waiting)
      oldestRendering.record(load.oldest.inSeconds)
    }
    images.record(counts.store.images)
    imageBytes.record(counts.store.imageBytes)
    pausedOrigins.record(counts.pausedOrigins)
    keptBytes.record(counts.partialBytes)
    cacheEntries.record(counts.cache.entries)
    cacheBytes.record(counts.cache.bytes)
    cacheMemory.record(counts.cache.memoryBytes)
  }
}

/// Counters with one name and different label values. Each counter is looked up in the metrics system only once.
private final class CounterFamily: Sendable {
  private let name: String
  private let labels: [String]
  private let counters = Mutex<[[String]: Counter]>([:])

  init(_ name: String, _ labels: [String]) { (self.name, self.labels) = (name, labels) }

  func increment(_ values: [String]) {
    let counter = counters.withLock { counters in
      if let counter = counters[values] { return counter }
      let counter = Counter(label: name, dimensions: Array(zip(labels, values)))
      counters[values] = counter
      return counter
    }
    counter.increment()
  }
}
