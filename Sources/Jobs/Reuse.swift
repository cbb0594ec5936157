internal import Caching

/// What a job asks of the cache (Fetch standard, sections 2.2.5 and 4.6).
struct Reuse: Sendable {
  let mode: CacheMode
  /// The request's fields, for `Vary`.
  let fields: [Field]
  /// Freshness that the job gives to responses which say nothing of their own, in seconds.
  let lifetime: Int?
  /// The digest that the image must have.
  let integrity: ImageDigest?

  init(_ job: Job) {
    mode = job.submission.cacheMode
    fields = job.submission.headers.map(Field.init)
    lifetime = job.submission.cacheTTL
    integrity = job.submission.integrity
  }

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
  ///   - stored: what the cache has under the resource's key.
  ///   - fallback: freshness in seconds that the operator gives; nil leaves it to heuristics.
  func answer(from stored: [CacheEntry], at now: Timestamp, fallback: Int?) -> Answer {
    if mode == .noStore || mode == .reload { return .fetch }
    guard let entry = choice(of: stored) else { return mode == .onlyIfCached ? .notCached : .fetch }
    let freshness = freshness(of: entry, at: now, fallback: fallback)
    switch mode {
    case .forceCache, .onlyIfCached:
      return .use(entry, CacheOutcome(freshness.isFresh ? .hit : .stale, freshness), isStale: false)
    case .noStore, .reload, .noCache: return .validate(entry)
    case .default: break
    }
    if freshness.isFresh { return .use(entry, CacheOutcome(.hit, freshness), isStale: false) }
    guard freshness.permitsStaleWhileRevalidating else { return .validate(entry) }
    return .use(entry, CacheOutcome(.stale, freshness), isStale: true)
  }

  func freshness(of entry: CacheEntry, at now: Timestamp, fallback: Int?) -> Freshness {
    Freshness(of: entry.response, at: now.milliseconds, assigned: lifetime, fallback: fallback)
  }

  /// A stored image with other bytes than the job wants is no answer.
  private func choice(of stored: [CacheEntry]) -> CacheEntry? {
    let fitting = stored.filter { integrity == nil || $0.image.digest == integrity }
    return Selection.choose(fitting.map(\.response), for: fields).map { fitting[$0] }
  }
}

extension CacheOutcome {
  init(_ status: Status, _ freshness: Freshness) {
    self.init(
      status, age: freshness.age,
      freshUntil: freshness.freshUntil.map { Timestamp(milliseconds: $0) })
  }
}
