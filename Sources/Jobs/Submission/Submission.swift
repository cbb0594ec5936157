/// What a client requested: the source of an image and the options. It never changes after submission.
package struct Submission: Sendable, Equatable {
  package var source: Source
  /// URLs that are tried in order after the URL before them failed.
  package var alternatives: [SourceURL] = []
  /// The required SHA-256 of the image's bytes.
  package var integrity: ImageDigest?
  /// Replaces the URL as the key for the cache and for shared loads.
  package var cacheKey: String?
  package var cacheMode: CacheMode = .default
  /// The freshness lifetime of a response that states none, in seconds.
  package var cacheTTL: Int?
  /// Additional request header fields, in the given order.
  package var headers: [HeaderField] = []
  /// The time limit of the transfer; nil means the configured one.
  package var timeout: Duration?
  /// The limit of the body in bytes; nil means the configured one.
  package var maxBytes: Int?
  /// The limit of the image's pixels (width × height); nil means the configured one.
  package var maxPixels: Int?
  /// The maximum number of tries after retryable errors; nil means the configured one.
  package var maxAttempts: Int?
  /// How long the finished job is kept; nil means the configured retention.
  package var retention: Duration?
  /// Whether the client asked for little data (`Save-Data: on`).
  package var savesData = false
  /// The receiver of webhook messages when the job ends.
  package var webhook: Webhook?
  /// The trace context of the client's request, if the request was traced.
  package var trace: TraceContext?
  /// The variants to make with the image: up to ``VariantRequest/most``, with different names.
  package var variants: [VariantRequest] = []
  /// Whether only the variants are stored, not the original. Requires at least one variant.
  package var dropsOriginal = false
  /// The deliveries to make before the job succeeds: up to ``DeliveryRequest/most``.
  package var deliveries: [DeliveryRequest] = []
  /// The canonical spelling of each host that was given in another spelling.
  package var hosts: [HostSpelling] = []

  /// The defaults of the batch; nil if the job belongs to no batch or the defaults are short. They only
  /// affect how a store encodes the submission, so comparisons ignore them.
  package var defaults: SharedDefaults? {
    get { sharing.defaults }
    set { sharing.defaults = newValue }
  }
  private var sharing = Sharing()

  /// A submission without options.
  package init(source: Source) { self.source = source }

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
package struct HostSpelling: Sendable, Equatable, Codable {
  /// As the client sent it: ``SourceURL/host``.
  package let given: String
  /// The canonical spelling.
  package let one: String
}

/// The source of a job's image.
package enum Source: Sendable, Equatable, Codable {
  /// Fetched from the URL, or from `lowData` while the network is constrained.
  case url(SourceURL, lowData: SourceURL?)
  /// The name of a file in the configured local folder.
  case local(String)
  /// An uploaded image in the image store.
  case captured(ImageDigest, bytes: Int, contentType: String)
}

/// The cache modes of the Fetch standard (section 2.2.5).
package enum CacheMode: String, Sendable, CaseIterable, Initial {
  case `default`, reload
  case noStore = "no-store"
  case noCache = "no-cache"
  case forceCache = "force-cache"
  case onlyIfCached = "only-if-cached"

  /// The standard behavior of HTTP caches.
  package static let initial = CacheMode.default
}

/// A header field (RFC 9110 section 5), with name and value as given.
package struct HeaderField: Sendable, Equatable, Codable {
  /// A token.
  package var name: String
  /// Contains no line break and no NUL, and no white space at its ends.
  package var value: String

  /// Does not check the characters; the caller must.
  package init(name: String, value: String) {
    self.name = name
    self.value = value
  }
}
