package import Jobs

extension Configuration {
  /// `jobs`: limits of the queue, workers, retries and retention.
  package struct Jobs: Sendable, Equatable {
    /// The number of workers: loads that can run concurrently.
    package var workers = 64
    /// Maximum number of queued jobs that were not submitted in batches. Above it, `POST` requests are refused.
    package var maxQueued = 100_000
    /// Maximum number of queued jobs from batches. Above it, no more lines are read.
    package var maxQueuedLines = 4_000_000
    /// How long a finished job is kept.
    package var retention: Duration = .seconds(86_400)
    /// The longest `retention` that a client may ask for.
    package var maxRetention: Duration = .seconds(365 * 86_400)
    /// Maximum number of attempts if errors are retryable.
    package var maxAttempts = 3
    /// Maximum time for all deliveries of a job, from the start of the first one.
    package var deliverTimeout: Duration = .seconds(300)
    /// How long to wait between attempts.
    package var retryBackoff = Backoff()
  }

  /// `cluster`: this instance among those that share its stores.
  package struct Cluster: Sendable, Equatable {
    /// The instance's name; nil for the host name.
    package var name: String?
    /// How long an instance keeps its jobs without renewing its lease.
    package var lease: Duration = .seconds(8)
  }

  /// `jobs.retry_backoff`: doubled after each attempt, with full jitter.
  package struct Backoff: Sendable, Equatable {
    /// The longest wait before the second attempt.
    package var initial: Duration = .milliseconds(500)
    /// The longest wait before any attempt.
    package var maximum: Duration = .seconds(30)
  }

  /// `fetch`: requests to origins.
  package struct Fetch: Sendable, Equatable {
    /// Maximum time to connect, including TLS.
    package var connectTimeout: Duration = .seconds(5)
    /// Maximum time of a transfer.
    package var timeout: Duration = .seconds(60)
    /// Maximum time without receiving a byte.
    package var stallTimeout: Duration = .seconds(15)
    /// Maximum bytes of an image.
    package var maxBytes = 32 << 20
    /// Maximum number of redirects.
    package var maxRedirects = 5
    /// Maximum number of concurrent transfers from one origin.
    package var maxPerHost = 6
    /// Maximum number of new requests per second to one origin; 0 for no limit.
    package var ratePerHost = 0.0
    /// The `User-Agent` header field.
    package var userAgent = "imagefetch/\(App.version)"
    /// The URL of an egress proxy.
    package var proxy: String?
    /// URL schemes that are allowed.
    package var allowSchemes: [Scheme] = [.https, .http]
    /// CIDRs exempt from the built-in block list.
    package var allowNetworks: [String] = []
    /// CIDRs that are blocked in addition to the built-in block list.
    package var denyNetworks: [String] = []
    /// Names (`example.org`) and subtrees (`*.example.org`) that are allowed, in lower case; empty for all.
    package var allowHosts: [String] = []
    /// Names and subtrees that are never connected to.
    package var denyHosts: [String] = []
    /// Ports that are allowed; empty for all.
    package var allowPorts: [Int] = [80, 443]
  }

  /// A URL scheme that can be fetched.
  package enum Scheme: String, Sendable, Equatable, CaseIterable {
    case https
    case http
  }

  /// Where images are decoded.
  package enum Isolation: String, Sendable, Equatable, CaseIterable {
    /// In sandboxed decoder processes.
    case process
    /// In the service's own process.
    case none
  }

  /// `decode`: limits of images and how they are decoded.
  package struct Decode: Sendable, Equatable {
    /// Where images are decoded.
    package var isolation = Isolation.process
    /// Maximum number of idle decoder processes; 0 for eight per core, at most 32.
    package var processes = 0
    /// Maximum computing time of one image in a decoder process, in whole seconds.
    package var maxTime = Duration.seconds(60)
    /// Formats that are accepted.
    package var formats: [ImageFormat] = ImageFormat.usual
    /// Decode threads; 0 for one per core, and one more with decoder processes.
    package var threads = 0
    /// Maximum pixels of an image.
    package var maxPixels = 50_000_000
    /// Maximum width and maximum height of an image.
    package var maxDimension = 30_000
    /// Maximum frames of an animation.
    package var maxFrames = 500
    /// Maximum scans of a progressive JPEG.
    package var maxScans = 100
    /// Maximum bytes of decode memory.
    package var maxMemory = 1 << 30
  }
}
