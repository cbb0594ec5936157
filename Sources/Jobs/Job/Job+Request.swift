package import Caching

/// What a job requests from an origin, and which jobs can share a response.
extension Job {
  /// The URL of the next request; nil for sources other than URLs.
  package var url: SourceURL? { submission.url(of: target) }

  /// The origin (RFC 6454) of the next request, with the canonical spelling of its host; nil if there will be
  /// no request.
  package var origin: String? {
    pending == nil && submission.asksOrigin ? url.map { submission.origin(of: $0) } : nil
  }

  /// Equal for jobs that share one load: the same resource, request header fields and options of
  /// ``JobOption/Identity/load``. If the header fields may be private to the owner, only jobs of the same owner are
  /// equal.
  package var request: Fingerprint? {
    // A job that has its image shares no load.
    guard pending == nil else { return nil }
    return resource.map {
      // The text contains spaces, so it cannot be a field name.
      Fingerprint(
        of: $0 + ownerParts + fieldParts + ["options of the load"] + shared.loadParts)
    }
  }

  /// The key of a partial transfer. It depends on the credentials, so that a transfer is never resumed with
  /// other credentials.
  package var partial: Fingerprint? {
    resource.map { Fingerprint(of: $0 + ownerParts + fieldParts) }
  }

  /// The cache key (RFC 9111 section 2) of responses for this job: the URL's, or that of its `cache_key`. If
  /// the job sends header fields that may be private to its owner, the key is the owner's alone.
  package var cacheKey: Fingerprint? {
    if submission.headers.isEmpty { return sharedCacheKey }
    let fields = submission.ownFields.map(Field.init)
    let names = Set(fields.map { $0.name.lowercased() }).sorted()
    let parts = names.flatMap { [$0, SelectingField(name: $0, of: fields).value ?? ""] }
    return resource.map { Fingerprint(of: $0 + ownerParts + parts) }
  }

  /// The cache key of responses that are for all owners.
  package var sharedCacheKey: Fingerprint? { resource.map { Fingerprint(of: $0) } }

  /// Identifies the owner and the `Authorization` and `Cookie` fields of the request, because a shared cache
  /// has special rules for them. Nil if it sends none.
  package var credentials: Fingerprint? {
    let ruled = submission.headers.filter(\.hasCachingRules)
    return ruled.isEmpty
      ? nil
      : Fingerprint(of: [owner.name] + ruled.flatMap { [$0.name.lowercased(), $0.value] })
  }

  /// A `cache_key` is valid for one owner, so that no owner can decide what another one receives. It is also
  /// separate for each URL of the job, so that the response or failure of one URL is not used for another.
  private var resource: [String]? {
    guard let url else { return nil }
    guard let key = submission.cacheKey else {
      return Self.resource(url) + (isApart ? ["owner", owner.name] : [])
    }
    return ["key", owner.name, key, target.name]
  }

  /// Returns the job that would request `url` directly, as this job does after a redirect.
  package func redirected(to url: SourceURL, withFields: Bool) -> Job {
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

  private var fieldParts: [String] {
    submission.headers.map { ($0.name.lowercased(), $0.value) }.sorted { $0 < $1 }
      .flatMap { [$0.0, $0.1] }
  }

  /// The cache key of a URL's responses that are for all owners. All entries of the URL are found by it.
  package static func cacheKey(of url: SourceURL) -> Fingerprint { Fingerprint(of: resource(url)) }
}

extension URLCandidate {
  /// The part of a `cache_key` that identifies the URL.
  fileprivate var name: String {
    switch self {
    case .regular: "regular"
    case .lowData: "low_data"
    case .alternative(let place): "alternative \(place)"
    }
  }
}

extension Submission {
  /// Records the canonical spelling of each host, so that the per-origin limits treat all spellings as one
  /// origin. The spelling is stored with the job. Therefore all instances use the same origins, and only the
  /// fetcher needs the rules of spelling.
  package mutating func spellHosts(by fetcher: some ImageFetcher) {
    guard case .url(let regular, let lowData) = source else { return }
    spellHost(of: regular, by: fetcher)
    if let lowData { spellHost(of: lowData, by: fetcher) }
    for url in alternatives { spellHost(of: url, by: fetcher) }
  }

  private mutating func spellHost(of url: SourceURL, by fetcher: some ImageFetcher) {
    guard !url.hasPlainHost, !hosts.contains(where: { $0.given == url.host }) else { return }
    let one = fetcher.canonicalSpelling(of: url.host)
    if one != url.host { hosts.append(HostSpelling(given: url.host, one: one)) }
  }

  /// Returns the origin of one of the submission's URLs.
  package func origin(of url: SourceURL) -> String {
    url.origin(spelling: spelling(of: url.host))
  }

  /// Returns the canonical spelling of one of the submission's hosts.
  func spelling(of host: String) -> String { hosts.first { $0.given == host }?.one ?? host }

  /// Header fields that may be private to the client. Their responses are not shared with other owners unless
  /// the response allows it.
  ///
  /// `Authorization` and `Cookie` are not included, because a shared cache has its own rules for them (RFC
  /// 9111 section 3.5, ``Storing``).
  var ownFields: [HeaderField] { headers.filter { !$0.isHarmless && !$0.hasCachingRules } }

  /// Whether the private fields only identify the client. With other fields, such as `X-Forwarded-Host`, the
  /// origin may send a different image to each client and declare it public. One owner could then decide what
  /// other owners receive.
  package var hasOnlyIdentifyingFields: Bool { ownFields.allSatisfy(\.isIdentifying) }
}

extension HeaderField {
  /// Whether the field only describes the wanted image, not the client.
  fileprivate var isHarmless: Bool {
    let name = name.lowercased()
    return name == "accept" || name.hasPrefix("accept-")
      || ["user-agent", "dnt", "save-data"].contains(name)
  }

  fileprivate var hasCachingRules: Bool { ["authorization", "cookie"].contains(name.lowercased()) }

  /// Whether the field only identifies the client.
  fileprivate var isIdentifying: Bool { ["x-api-key", "x-auth-token"].contains(name.lowercased()) }
}

extension HeaderField {
  package init(_ field: Field) { self.init(name: field.name, value: field.value) }
}

extension Field {
  package init(_ field: HeaderField) { self.init(name: field.name, value: field.value) }
}

/// A job to submit.
package struct NewJob: Sendable, Equatable {
  /// The source of the image, and how to fetch it.
  package var submission: Submission
  /// The job's priority in the queue.
  package var priority: Priority
  /// The owner's labels.
  package var tags: [String]

  package init(submission: Submission, priority: Priority = .normal, tags: [String] = []) {
    self.submission = submission
    self.priority = priority
    self.tags = tags
  }

  /// Approximate bytes of its record, without the defaults of its batch.
  package var keptBytes: Int {
    let defaults = submission.defaults
    let ownTags = defaults?.tags == tags ? [] : tags
    return 256 + submission.textBytes(beyond: defaults?.submission)
      + ownTags.reduce(0) { $0 + $1.utf8.count }
  }
}

/// A job in the response to a submission.
package struct SubmittedJob: Sendable {
  package let id: JobID
  /// The present state of the job. Nil if an earlier submission with the same idempotency key created the
  /// job, and it has expired or been purged.
  package let snapshot: JobSnapshot?

  /// An existing job.
  package init(_ snapshot: JobSnapshot) { (id, self.snapshot) = (snapshot.job.id, snapshot) }
  /// A job that expired or was purged.
  package init(gone id: JobID) { (self.id, snapshot) = (id, nil) }
}
