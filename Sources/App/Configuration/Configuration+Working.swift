public import Jobs

extension Configuration {
  /// `jobs`: queueing, working and keeping them.
  public struct Jobs: Sendable, Equatable {
    /// Jobs in flight.
    public var workers = 64
    /// Jobs waiting; beyond it `POST` is refused.
    public var maxQueued = 100_000
    /// Jobs of lists waiting; beyond it no more lines are taken.
    public var maxQueuedLines = 4_000_000
    /// How long a finished job is kept.
    public var retention: Duration = .seconds(86_400)
    /// The longest that a client may have one kept, by its own `retention`.
    public var maxRetention: Duration = .seconds(365 * 86_400)
    /// Tries for retryable errors.
    public var maxAttempts = 3
    /// For all deliveries of a job, from the beginning of the first one.
    public var deliverTimeout: Duration = .seconds(300)
    /// How long to wait between tries.
    public var retryBackoff = Backoff()
  }

  /// `cluster`: this process among those that share its jobs.
  public struct Cluster: Sendable, Equatable {
    /// What people call it; nil: as the machine is called.
    public var name: String?
    /// Where the others reach it; nil: they don't.
    public var url: String?
    /// How long an instance may be silent before others take its jobs over.
    public var lease: Duration = .seconds(8)
  }

  /// `jobs.retry_backoff`: doubled each time, with full jitter.
  public struct Backoff: Sendable, Equatable {
    /// Before the second try.
    public var initial: Duration = .milliseconds(500)
    /// Before any.
    public var maximum: Duration = .seconds(30)
  }

  /// `fetch`: getting images from origins.
  public struct Fetch: Sendable, Equatable {
    /// Until connected, TLS included.
    public var connectTimeout: Duration = .seconds(5)
    /// For the whole transfer.
    public var timeout: Duration = .seconds(60)
    /// Without a byte.
    public var stallTimeout: Duration = .seconds(15)
    /// Bytes of an image.
    public var maxBytes = 32 << 20
    /// Redirects followed.
    public var maxRedirects = 5
    /// Transfers at once from one origin.
    public var maxPerHost = 6
    /// New requests a second to one origin; 0 is no limit.
    public var ratePerHost = 0.0
    /// The `User-Agent` header field.
    public var userAgent = "imagefetch/\(App.version)"
    /// An egress proxy's URL.
    public var proxy: String?
    /// URL schemes fetched.
    public var allowSchemes: [Scheme] = [.https, .http]
    /// CIDRs taken out of the built-in block list.
    public var allowNetworks: [String] = []
    /// CIDRs blocked beside it.
    public var denyNetworks: [String] = []
    /// Names (`example.org`) and subtrees (`*.example.org`), lower case; empty is all.
    public var allowHosts: [String] = []
    /// Names and subtrees never fetched from.
    public var denyHosts: [String] = []
    /// Ports fetched from; empty is all.
    public var allowPorts: [Int] = [80, 443]
  }

  /// A URL scheme that can be fetched.
  public enum Scheme: String, Sendable, Equatable, CaseIterable {
    /// With TLS.
    case https
    /// Without.
    case http
  }

  /// What an image's bytes are read in.
  public enum Isolation: String, Sendable, Equatable, CaseIterable {
    /// Processes that can do nothing else.
    case process
    /// The service itself.
    case none
  }

  /// `decode`: the images that are taken.
  public struct Decode: Sendable, Equatable {
    /// Where they are decoded.
    public var isolation = Isolation.process
    /// Decoder processes kept for the next image; 0 is eight a core, 32 at most.
    public var processes = 0
    /// Computing that an image may take, in a decoder process; of whole seconds.
    public var maxTime = Duration.seconds(60)
    /// Formats decoded.
    public var formats: [ImageFormat] = ImageFormat.usual
    /// Threads that decode; 0 is one a core, one more with decoder processes.
    public var threads = 0
    /// Pixels of an image.
    public var maxPixels = 50_000_000
    /// Its width and its height.
    public var maxDimension = 30_000
    /// Frames of an animation.
    public var maxFrames = 500
    /// Scans of a progressive JPEG.
    public var maxScans = 100
    /// Bytes of pixels being decoded at once.
    public var maxMemory = 1 << 30
  }
}
