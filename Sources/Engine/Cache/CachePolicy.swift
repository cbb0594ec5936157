internal import Caching
internal import Jobs

/// What a job asks of the cache (Fetch standard, sections 2.2.5 and 4.6).
struct CachePolicy: Sendable {
  let mode: CacheMode
  /// The client's own fields, for `Vary`.
  let fields: [Field]
  /// Freshness that the job gives to responses which say nothing of their own, in seconds.
  let lifetime: Int?
  /// The digest that the image must have.
  let integrity: ImageDigest?
  private let credentials: Fingerprint?
  /// Where the entries are that are for this job and its like.
  let key: Fingerprint?
  /// Where those are that are for everyone.
  let shared: Fingerprint?

  init(_ job: Job) {
    mode = job.submission.cacheMode
    fields = job.submission.headers.map(Field.init)
    lifetime = job.submission.cacheTTL
    integrity = job.submission.integrity
    credentials = job.credentials
    shared = job.sharedCacheKey
    key = job.submission.headers.isEmpty ? shared : job.cacheKey
  }

  /// Where entries that may answer the job are.
  var keys: [Fingerprint] { (key == shared ? [shared] : [key, shared]).compactMap(\.self) }

  /// What to do.
  enum Answer: Sendable {
    /// The stored response is the answer; stale, it is to be freshened afterwards (RFC 5861 section 3).
    case use(CacheEntry, CacheOutcome, isStale: Bool)
    /// The stored response is to be confirmed by the origin.
    case validate(CacheEntry)
    /// The origin is to be asked.
    case fetch
    /// Nothing is stored, and the origin may not be asked.
    case notCached
  }

  /// - Parameters:
  ///   - stored: what the cache has under the job's keys.
  ///   - fallback: freshness in seconds that the operator gives; nil leaves it to heuristics.
  func answer(from stored: [CacheEntry], at now: Timestamp, fallback: Int?) -> Answer {
    if mode == .noStore || mode == .reload { return .fetch }
    guard let entry = choice(of: stored) else { return mode == .onlyIfCached ? .notCached : .fetch }
    let freshness = freshness(of: entry, at: now, fallback: fallback)
    switch mode {
    case .forceCache, .onlyIfCached:
      guard freshness.isFresh || isOwn(entry) else {
        return mode == .onlyIfCached ? .notCached : .validate(entry)
      }
      return .use(entry, CacheOutcome(freshness.isFresh ? .hit : .stale, freshness), isStale: false)
    case .noStore, .reload, .noCache: return .validate(entry)
    case .default: break
    }
    if freshness.isFresh { return .use(entry, CacheOutcome(.hit, freshness), isStale: false) }
    guard freshness.permitsStaleWhileRevalidating else { return .validate(entry) }
    return .use(entry, CacheOutcome(.stale, freshness), isStale: true)
  }

  /// Whether it may be used without the origin's word: it may be stored for everyone, or for this job's credentials.
  private func isOwn(_ entry: CacheEntry) -> Bool {
    entry.credentials == nil || entry.credentials == credentials
  }

  func freshness(of entry: CacheEntry, at now: Timestamp, fallback: Int?) -> Freshness {
    // What others' credentials brought is fresh by the origin's word, not by this job's.
    Freshness(
      of: entry.response, over: entry.path, at: now.milliseconds,
      assigned: isOwn(entry) ? lifetime : nil, fallback: fallback)
  }

  /// The newest that the job may take, as it is or once it is confirmed.
  func choice(of stored: [CacheEntry]) -> CacheEntry? {
    let fitting = stored.filter(mayTake)
    return Selection.newest(of: fitting.map(\.response)).map { fitting[$0] }
  }

  /// A response that redirects had led to, as one of its own URL; nil where it is another URL's.
  func direct(_ known: CacheEntry, at url: SourceURL, hasFields: Bool) -> CacheEntry? {
    guard let key, !known.path.redirects.isEmpty, known.path.hadFields == hasFields,
      known.image.url == url
    else { return nil }
    var direct = known
    direct.id.key = key
    direct.path = StoredPath(redirects: [], hadFields: hasFields)
    return direct
  }

  /// All that answer what the job asks, whatever image it wants.
  func matching(_ stored: [CacheEntry]) -> [CacheEntry] { stored.filter(matches) }

  private func mayTake(_ entry: CacheEntry) -> Bool {
    // A stored image with other bytes than the job wants is no answer.
    (integrity == nil || entry.image.digest == integrity) && matches(entry)
  }

  private func matches(_ entry: CacheEntry) -> Bool {
    guard entry.id.key == key || entry.isForAll else { return false }
    return entry.path.matches(entry.response, client: fields)
  }
}

extension CacheEntry {
  /// Whether each response that it is made of says itself that it is for everyone.
  var isForAll: Bool { path.isForAll(response) }

  /// What the origin is asked to confirm it by (RFC 9111 section 4.3.1).
  /// - Parameter asked: the URL that the job asks for; by a `cache_key` it stands for the one that was asked before.
  func conditions(asking asked: SourceURL) -> FetchConditions {
    FetchConditions(
      url: path.redirects.isEmpty ? asked : image.url ?? asked,
      fields: Validation.conditions(for: response).map(HeaderField.init))
  }
}

extension CacheOutcome {
  init(_ status: Status, _ freshness: Freshness) {
    self.init(
      status, age: freshness.age,
      freshUntil: freshness.freshUntil.map { Timestamp(milliseconds: $0) })
  }
}
