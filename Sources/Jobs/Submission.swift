/// What a client requested: the source of an image and the options. It never changes after submission.
public struct Submission: Sendable, Equatable {
  public var source: Source
  /// URLs that are tried in order after the URL before them failed.
  public var alternatives: [SourceURL] = []
  /// The required SHA-256 of the image's bytes.
  public var integrity: ImageDigest?
  /// Replaces the URL as the key for the cache and for shared loads.
  public var cacheKey: String?
  public var cacheMode: CacheMode = .default
  /// The freshness lifetime of a response that states none, in seconds.
  public var cacheTTL: Int?
  /// Additional request header fields, in the given order.
  public var headers: [HeaderField] = []
  /// The time limit of the transfer; nil means the configured one.
  public var timeout: Duration?
  /// The limit of the body in bytes; nil means the configured one.
  public var maxBytes: Int?
  /// The limit of the image's pixels (width × height); nil means the configured one.
  public var maxPixels: Int?
  /// The maximum number of tries after retryable errors; nil means the configured one.
  public var maxAttempts: Int?
  /// How long the finished job is kept; nil means the configured retention.
  public var retention: Duration?
  /// Whether the client asked for little data (`Save-Data: on`).
  public var savesData = false
  /// The receiver of webhook messages when the job ends.
  public var webhook: Webhook?
  /// The trace context of the client's request, if the request was traced.
  public var trace: TraceContext?
  /// The variants to make with the image: up to ``VariantRequest/most``, with different names.
  public var variants: [VariantRequest] = []
  /// Whether only the variants are stored, not the original. Requires at least one variant.
  public var dropsOriginal = false
  /// The deliveries to make before the job succeeds: up to ``DeliveryRequest/most``.
  public var deliveries: [DeliveryRequest] = []
  /// The canonical spelling of each host that was given in another spelling.
  public package(set) var hosts: [HostSpelling] = []

  /// The defaults of the batch; nil if the job belongs to no batch or the defaults are short. They only
  /// affect how a store encodes the submission, so comparisons ignore them.
  public var defaults: SharedDefaults? {
    get { sharing.defaults }
    set { sharing.defaults = newValue }
  }
  private var sharing = Sharing()

  /// A submission without options.
  public init(source: Source) { self.source = source }

  private struct Sharing: Sendable, Equatable {
    var defaults: SharedDefaults?
    static func == (_: Sharing, _: Sharing) -> Bool { true }
  }

  /// Whether the job may send requests.
  package var asksOrigin: Bool {
    guard case .url = source else { return false }
    return cacheMode != .onlyIfCached
  }
}

/// Two spellings of one host.
public struct HostSpelling: Sendable, Equatable, Codable {
  /// As the client sent it: ``SourceURL/host``.
  public let given: String
  /// The canonical spelling.
  public let one: String
}

/// The source of a job's image.
public enum Source: Sendable, Equatable, Codable {
  /// Fetched from the URL, or from `lowData` while the network is constrained.
  case url(SourceURL, lowData: SourceURL?)
  /// The name of a file in the configured local folder.
  case local(String)
  /// An uploaded image in the image store.
  case captured(ImageDigest, bytes: Int, contentType: String)
}

/// The cache modes of the Fetch standard (section 2.2.5).
public enum CacheMode: String, Sendable, CaseIterable, Initial {
  case `default`, reload
  case noStore = "no-store"
  case noCache = "no-cache"
  case forceCache = "force-cache"
  case onlyIfCached = "only-if-cached"

  /// The standard behavior of HTTP caches.
  public static let initial = CacheMode.default
}

/// A header field (RFC 9110 section 5), with name and value as given.
public struct HeaderField: Sendable, Equatable, Codable {
  /// A token.
  public var name: String
  /// Contains no line break and no NUL, and no white space at its ends.
  public var value: String

  /// Does not check the characters; the caller must.
  public init(name: String, value: String) {
    self.name = name
    self.value = value
  }
}
