package import Caching

/// What a job asks of an origin, and which other jobs ask the same.
extension Job {
  /// What its next request is for; nil for other sources than URLs.
  public var url: SourceURL? { submission.url(of: target) }

  /// The origin (RFC 6454) that its next request goes to, however its host was spelled; nil where there will be none.
  public var origin: String? {
    pending == nil && submission.asksOrigin ? url.map { submission.origin(of: $0) } : nil
  }

  /// Equal for jobs that share one transfer: the same resource, the same request header fields, the same cache mode, the
  /// same freshness given; with fields that may be its owner's alone, only the same owner's; and either all keep the image
  /// or none does.
  public var request: Fingerprint? {
    // It has its image: it shares no load any more.
    guard pending == nil else { return nil }
    return resource.map {
      Fingerprint(
        of: $0 + ownerParts + ["mode", submission.cacheMode.rawValue] + freshnessParts + fieldParts
          + keepingParts)
    }
  }

  /// Under which the bytes of a broken-off transfer are kept: one credential's bytes never continue another's.
  public var partial: Fingerprint? {
    resource.map { Fingerprint(of: $0 + ownerParts + fieldParts) }
  }

  /// Under which the cache keeps responses that are for this job and its like (RFC 9111 section 2): the URL's, or that
  /// of the key which stands for it; one of its owner's own where it sends fields that may be the owner's alone.
  public var cacheKey: Fingerprint? {
    if submission.headers.isEmpty { return sharedCacheKey }
    let fields = submission.ownFields.map(Field.init)
    let names = Set(fields.map { $0.name.lowercased() }).sorted()
    let parts = names.flatMap { [$0, SelectingField(name: $0, of: fields).value ?? ""] }
    return resource.map { Fingerprint(of: $0 + ownerParts + parts) }
  }

  /// Under which the cache keeps responses to the same resource that are for everyone.
  public var sharedCacheKey: Fingerprint? { resource.map { Fingerprint(of: $0) } }

  /// Its owner and the credentials that it sends, by which a shared cache has rules; nil: it sends none.
  public var credentials: Fingerprint? {
    let ruled = submission.headers.filter(\.isRuled)
    return ruled.isEmpty
      ? nil
      : Fingerprint(of: [owner.name] + ruled.flatMap { [$0.name.lowercased(), $0.value] })
  }

  /// A `cache_key` stands for URLs of its owner's only: it would else let one owner decide what another one gets. And for
  /// each of a job's URLs apart: whoever asks for one must not fail, nor be answered, by what was asked of another.
  private var resource: [String]? {
    guard let url else { return nil }
    guard let key = submission.cacheKey else {
      return Self.resource(url) + (isApart ? ["owner", owner.name] : [])
    }
    return ["key", owner.name, key, target.name]
  }

  /// The job that would ask for that URL itself, as this one does where a redirect leads there.
  package func asking(_ url: SourceURL, withFields: Bool) -> Job {
    var submission = self.submission
    submission.source = .url(url, lowData: nil)
    submission.cacheKey = nil
    if !withFields { submission.headers = [] }
    var job = Job(
      id: id, owner: owner, submission: submission, priority: priority, tags: [],
      createdAt: createdAt)
    job.isApart = isApart
    return job
  }

  private static func resource(_ url: SourceURL) -> [String] { ["url", url.string] }

  private var ownerParts: [String] {
    submission.ownFields.isEmpty ? [] : ["fields of", owner.name]
  }

  /// One owner's `cache_ttl` would else have all who share the transfer take a stored image. The name contains a space, because
  /// no field's name does.
  private var freshnessParts: [String] { submission.cacheTTL.map { ["cache ttl", "\($0)"] } ?? [] }

  private var keepingParts: [String] { submission.dropsOriginal ? ["dropped"] : [] }

  private var fieldParts: [String] {
    submission.headers.map { ($0.name.lowercased(), $0.value) }.sorted { $0 < $1 }
      .flatMap { [$0.0, $0.1] }
  }

  /// Under which the cache keeps a URL's responses that are for everyone, and by which it finds all of them.
  package static func cacheKey(of url: SourceURL) -> Fingerprint { Fingerprint(of: resource(url)) }
}

extension URLCandidate {
  /// What it is to a `cache_key`.
  fileprivate var name: String {
    switch self {
    case .regular: "regular"
    case .lowData: "low_data"
    case .alternative(let place): "alternative \(place)"
    }
  }
}

extension Submission {
  /// Has one host be one origin to the limits, however it is spelled. The job keeps it, so that all who share the queue
  /// go by the same origins, and whoever looks need not know how hosts are spelled.
  package mutating func spellHosts(by fetcher: some ImageFetcher) {
    guard case .url(let regular, let lowData) = source else { return }
    spellHost(of: regular, by: fetcher)
    if let lowData { spellHost(of: lowData, by: fetcher) }
    for url in alternatives { spellHost(of: url, by: fetcher) }
  }

  private mutating func spellHost(of url: SourceURL, by fetcher: some ImageFetcher) {
    guard !url.hasPlainHost, !hosts.contains(where: { $0.given == url.host }) else { return }
    let one = fetcher.spelling(of: url.host)
    if one != url.host { hosts.append(HostSpelling(given: url.host, one: one)) }
  }

  /// The origin of one of its URLs.
  package func origin(of url: SourceURL) -> String {
    url.origin(spelling: spelling(of: url.host))
  }

  /// The one spelling of one of its hosts.
  func spelling(of host: String) -> String { hosts.first { $0.given == host }?.one ?? host }

  /// The fields that may be the client's alone: what comes for them is for nobody else, unless it says so.
  ///
  /// `Authorization` and `Cookie` are not among them, as a shared cache has rules for what comes for them (RFC 9111
  /// section 3.5, ``Storing``).
  package var ownFields: [HeaderField] { headers.filter { !$0.isHarmless && !$0.isRuled } }

  /// Whether its own fields say at most who asks. Of two requests that are told apart by others, such as
  /// `X-Forwarded-Host`, the origin may give each another picture and call both public: one owner would decide what
  /// the others get.
  package var saysOnlyWhoAsks: Bool { ownFields.allSatisfy(\.isKey) }
}

extension HeaderField {
  /// Whether it says how a picture is wanted, and nothing of who wants it.
  fileprivate var isHarmless: Bool {
    let name = name.lowercased()
    return name == "accept" || name.hasPrefix("accept-")
      || ["user-agent", "dnt", "save-data"].contains(name)
  }

  fileprivate var isRuled: Bool { ["authorization", "cookie"].contains(name.lowercased()) }

  /// Whether it says who asks, and nothing else.
  fileprivate var isKey: Bool { ["x-api-key", "x-auth-token"].contains(name.lowercased()) }
}

extension HeaderField {
  package init(_ field: Field) { self.init(name: field.name, value: field.value) }
}

extension Field {
  package init(_ field: HeaderField) { self.init(name: field.name, value: field.value) }
}
