/// What a client asked for: the source and how to obtain it. It never changes after submission.
public struct Submission: Sendable, Equatable {
  /// Where the image comes from.
  public var source: Source
  /// Tried in order when the URL before failed for any reason but cancelling.
  public var alternatives: [SourceURL] = []
  /// The digest that the bytes must have.
  public var integrity: ImageDigest?
  /// Stands for the URL in the cache and in coalescing.
  public var cacheKey: String?
  /// How the cache may take part.
  public var cacheMode: CacheMode = .default
  /// Freshness given to a response that says nothing of its own, in seconds.
  public var cacheTTL: Int?
  /// Extra request header fields, in the order given.
  public var headers: [HeaderField] = []
  /// For the whole transfer; nil: the configuration's.
  public var timeout: Duration?
  /// Of the body; nil: the configuration's.
  public var maxBytes: Int?
  /// Of the decoded image; nil: the configuration's.
  public var maxPixels: Int?
  /// Tries for retryable errors; nil: the configuration's.
  public var maxAttempts: Int?
  /// How long the finished job is kept; nil: the configuration's.
  public var retention: Duration?
  /// Whether the client asked for little data (`Save-Data: on`).
  public var savesData = false
  /// Whom to tell of the job's end.
  public var webhook: Webhook?
  /// Where its client's request stands in a trace, where that is kept.
  public var trace: TraceContext?
  /// Made with the image, and there when it is: up to ``VariantRequest/most``, each of another name.
  public var variants: [VariantRequest] = []
  /// Whether the image's own bytes are not kept, but its variants, of which there is at least one.
  public var dropsOriginal = false
  /// Where image and variants are brought before success is told: up to ``DeliveryRequest/most``.
  public var deliveries: [DeliveryRequest] = []
  /// Hosts of its URLs that were given in another spelling than their origins go by.
  public package(set) var hosts: [HostSpelling] = []

  /// The defaults of its batch; nil where it is not a line or the defaults are short. They only decide how a store keeps the
  /// submission, so comparisons ignore them.
  public var defaults: SharedDefaults? {
    get { sharing.defaults }
    set { sharing.defaults = newValue }
  }
  private var sharing = Sharing()

  /// A submission with every option left to the configuration.
  public init(source: Source) { self.source = source }

  private struct Sharing: Sendable, Equatable {
    var defaults: SharedDefaults?
    static func == (_: Sharing, _: Sharing) -> Bool { true }
  }

  /// Whether the job may send requests at all.
  package var asksOrigin: Bool {
    guard case .url = source else { return false }
    return cacheMode != .onlyIfCached
  }
}

/// How a host is spelled.
public struct HostSpelling: Sendable, Equatable, Codable {
  /// By the client: ``SourceURL/host``.
  public let given: String
  /// Once for all spellings of it, by the fetcher.
  public let one: String
}

/// Where a job's image comes from.
public enum Source: Sendable, Equatable, Codable {
  /// Fetched from the URL; from `lowData` in its place while the network is constrained.
  case url(SourceURL, lowData: SourceURL?)
  /// A named file below the configured root.
  case local(String)
  /// Bytes that the client sent, kept in the image store under their digest.
  case captured(ImageDigest, bytes: Int, contentType: String)
}

/// The Fetch standard's cache modes (section 2.2.5).
public enum CacheMode: String, Sendable, CaseIterable, Initial {
  case `default`, reload
  case noStore = "no-store"
  case noCache = "no-cache"
  case forceCache = "force-cache"
  case onlyIfCached = "only-if-cached"

  /// As HTTP has it.
  public static let initial = CacheMode.default
}

/// One header field (RFC 9110 section 5), name and value as given.
public struct HeaderField: Sendable, Equatable, Codable {
  /// A token.
  public var name: String
  /// Without line breaks or NUL; no white space around it.
  public var value: String

  /// A field; whoever makes it has checked the characters.
  public init(name: String, value: String) {
    self.name = name
    self.value = value
  }
}
