public import Jobs

extension Configuration {
  /// `jobs`: limits of the queue, workers, retries and retention.
  public struct Jobs: Sendable, Equatable {
    /// The number of workers: loads that can run concurrently.
    public var workers = 64
    /// Maximum number of queued jobs that were not submitted in batches. Above it, `POST` requests are refused.
    public var maxQueued = 100_000
    /// Maximum number of queued jobs from batches. Above it, no more lines are read.
    public var maxQueuedLines = 4_000_000
    /// How long a finished job is kept.
    public var retention: Duration = .seconds(86_400)
    /// The longest `retention` that a client may ask for.
    public var maxRetention: Duration = .seconds(365 * 86_400)
    /// Maximum number of attempts if errors are retryable.
    public var maxAttempts = 3
    /// Maximum time for all deliveries of a job, from the start of the first one.
    public var deliverTimeout: Duration = .seconds(300)
    /// How long to wait between attempts.
    public var retryBackoff = Backoff()
  }

  /// `cluster`: this instance among those that share its stores.
  public struct Cluster: Sendable, Equatable {
    /// The instance's name; nil for the host name.
    public var name: String?
    /// The URL at which other instances reach this one; nil if they can't.
    public var url: String?
    /// How long an instance keeps its jobs without renewing its lease.
    public var lease: Duration = .seconds(8)
  }

  /// `jobs.retry_backoff`: doubled after each attempt, with full jitter.
  public struct Backoff: Sendable, Equatable {
    /// The longest wait before the second attempt.
    public var initial: Duration = .milliseconds(500)
    /// The longest wait before any attempt.
    public var maximum: Duration = .seconds(30)
  }

  /// `fetch`: requests to origins.
  public struct Fetch: Sendable, Equatable {
    /// Maximum time to connect, including TLS.
    public var connectTimeout: Duration = .seconds(5)
    /// Maximum time of a transfer.
    public var timeout: Duration = .seconds(60)
    /// Maximum time without receiving a byte.
    public var stallTimeout: Duration = .seconds(15)
    /// Maximum bytes of an image.
    public var maxBytes = 32 << 20
    /// Maximum number of redirects.
    public var maxRedirects = 5
    /// Maximum number of concurrent transfers from one origin.
    public var maxPerHost = 6
    /// Maximum number of new requests per second to one origin; 0 for no limit.
    public var ratePerHost = 0.0
    /// The `User-Agent` header field.
    public var userAgent = "imagefetch/\(App.version)"
    /// The URL of an egress proxy.
    public var proxy: String?
    /// URL schemes that are allowed.
    public var allowSchemes: [Scheme] = [.https, .http]
    /// CIDRs exempt from the built-in block list.
    public var allowNetworks: [String] = []
    /// CIDRs that are blocked in addition to the built-in block list.
    public var denyNetworks: [String] = []
    /// Names (`example.org`) and subtrees (`*.example.org`) that are allowed, in lower case; empty for all.
    public var allowHosts: [String] = []
    /// Names and subtrees that are never connected to.
    public var denyHosts: [String] = []
    /// Ports that are allowed; empty for all.
    public var allowPorts: [Int] = [80, 443]
  }

  /// A URL scheme that can be fetched.
  public enum Scheme: String, Sendable, Equatable, CaseIterable {
    case https
    case http
  }

  /// Where images are decoded.
  public enum Isolation: String, Sendable, Equatable, CaseIterable {
    /// In sandboxed decoder processes.
    case process
    /// In the service's own process.
    case none
  }

  /// `decode`: limits of images and how they are decoded.
  public struct Decode: Sendable, Equatable {
    /// Where images are decoded.
    public var isolation = Isolation.process
    /// Maximum number of idle decoder processes; 0 for eight per core, at most 32.
    public var processes = 0
    /// Maximum computing time of one image in a decoder process, in whole seconds.
    public var maxTime = Duration.seconds(60)
    /// Formats that are accepted.
    public var formats: [ImageFormat] = ImageFormat.usual
    /// Decode threads; 0 for one per core, and one more with decoder processes.
    public var threads = 0
    /// Maximum pixels of an image.
    public var maxPixels = 50_000_000
    /// Maximum width and maximum height of an image.
    public var maxDimension = 30_000
    /// Maximum frames of an animation.
    public var maxFrames = 500
    /// Maximum scans of a progressive JPEG.
    public var maxScans = 100
    /// Maximum bytes of decode memory.
    public var maxMemory = 1 << 30
  }
}
