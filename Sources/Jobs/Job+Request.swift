/// What a job asks of an origin, and which other jobs ask the same.
extension Job {
  /// What its next request is for; nil for other sources than URLs.
  public var url: SourceURL? { submission.url(of: target) }

  /// The origin (RFC 6454) that its next request goes to; nil where there will be none.
  public var origin: String? { submission.asksOrigin ? url?.origin : nil }

  /// Equal for jobs that share one transfer: the same resource, the same request header fields, the same cache mode.
  public var request: Fingerprint? {
    resource.map { Fingerprint(of: $0 + ["mode", submission.cacheMode.rawValue] + fieldParts) }
  }

  /// Under which the bytes of a broken-off transfer are kept: one credential's bytes never continue another's.
  public var partial: Fingerprint? { resource.map { Fingerprint(of: $0 + fieldParts) } }

  /// Under which the cache keeps responses (RFC 9111 section 2): the URL's, or that of the key which stands for it.
  public var cacheKey: Fingerprint? { resource.map { Fingerprint(of: $0) } }

  /// A `cache_key` stands for URLs of its owner's only: it would else let one owner decide what another one gets.
  private var resource: [String]? {
    guard let url else { return nil }
    guard let key = submission.cacheKey else { return Self.resource(url) }
    return ["key", owner.name, key, target == .lowData ? "low_data" : "regular"]
  }

  private static func resource(_ url: SourceURL) -> [String] { ["url", url.string] }

  private var fieldParts: [String] {
    submission.headers.map { ($0.name.lowercased(), $0.value) }.sorted { $0 < $1 }
      .flatMap { [$0.0, $0.1] }
  }

  /// Under which the cache keeps a URL's responses.
  static func cacheKey(of url: SourceURL) -> Fingerprint { Fingerprint(of: resource(url)) }
}
