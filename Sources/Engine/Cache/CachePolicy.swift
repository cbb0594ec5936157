internal import Caching
internal import Jobs
internal import Settings
internal import Synchronization

/// How a job may use the cache (Fetch standard, sections 2.2.5 and 4.6).
struct CachePolicy: Sendable {
  let mode: CacheMode
  /// The client's own header fields, which `Vary` compares.
  let fields: [Field]
  /// The job's `cache_ttl`: freshness in seconds of responses that state none.
  let lifetime: Int?
  /// The digest that the image must have.
  let integrity: ImageDigest?
  private let credentials: Fingerprint?
  /// The key of entries that only this job and jobs with the same headers and credentials may use.
  let key: Fingerprint?
  /// The key of entries that all jobs may use.
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

  /// The keys of all entries that may answer the job.
  var keys: [Fingerprint] { (key == shared ? [shared] : [key, shared]).compactMap(\.self) }

  /// How to answer the job.
  enum Answer: Sendable {
    /// Use the stored response. If `isStale`, revalidate it afterwards (RFC 5861 section 3).
    case use(CacheEntry, CacheOutcome, isStale: Bool)
    /// Ask the origin whether the stored response is still current.
    case validate(CacheEntry)
    /// Fetch the image from the origin.
    case fetch
    /// Nothing is stored, and the job forbids asking the origin.
    case notCached
  }

  /// - Parameters:
  ///   - stored: the entries stored under the job's keys.
  ///   - fallback: the operator's default freshness in seconds; nil: use heuristics.
  func answer(from stored: [CacheEntry], at now: Timestamp, fallback: Int?) -> Answer {
    if mode == .noStore || mode == .reload { return .fetch }
    guard let entry = newestUsable(of: stored) else {
      return mode == .onlyIfCached ? .notCached : .fetch
    }
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

  /// Whether the entry may be used without asking the origin: it has no credentials or the job's own.
  private func isOwn(_ entry: CacheEntry) -> Bool {
    entry.credentials == nil || entry.credentials == credentials
  }

  func freshness(of entry: CacheEntry, at now: Timestamp, fallback: Int?) -> Freshness {
    // A response to another owner's credentials is fresh only if the origin says so; this job's `cache_ttl` does not
    // apply.
    Freshness(
      of: entry.response, over: entry.path, at: now.milliseconds,
      assigned: isOwn(entry) ? lifetime : nil, fallback: fallback)
  }

  /// Returns the newest entry that the job may use, directly or after revalidation.
  func newestUsable(of stored: [CacheEntry]) -> CacheEntry? {
    let fitting = stored.filter(mayTake)
    return Selection.newest(of: fitting.map(\.response)).map { fitting[$0] }
  }

  /// Returns a response that was reached by redirects as an entry of its own URL; nil if it is not the response of
  /// `url`.
  func direct(_ known: CacheEntry, at url: SourceURL, hasFields: Bool) -> CacheEntry? {
    guard let key, !known.path.redirects.isEmpty, known.path.hadFields == hasFields,
      known.image.url == url
    else { return nil }
    var direct = known
    direct.id.key = key
    direct.path = StoredPath(redirects: [], hadFields: hasFields)
    return direct
  }

  /// Returns the entries that match the job's request, whatever digest it requires.
  func matching(_ stored: [CacheEntry]) -> [CacheEntry] { stored.filter(matches) }

  private func mayTake(_ entry: CacheEntry) -> Bool {
    // A stored image with another digest than the job requires can't be used.
    (integrity == nil || entry.image.digest == integrity) && matches(entry)
  }

  private func matches(_ entry: CacheEntry) -> Bool {
    guard entry.id.key == key || entry.isForAll else { return false }
    return entry.path.matches(entry.response, client: fields)
  }
}

extension CacheEntry {
  /// Whether every response of the entry says itself that it may be used for everyone.
  var isForAll: Bool { path.isShareable(response) }

  /// Returns the conditional request that revalidates the entry (RFC 9111 section 4.3.1).
  /// - Parameter asked: the URL of the job. With a `cache_key` it may differ from the URL that was fetched before.
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

/// The operator's settings of the cache.
package struct CacheConfiguration: Sendable, Equatable {
  /// Whether responses are cached.
  package var isEnabled = true
  /// Bytes of images cached in memory.
  package var memory = 100_000_000
  /// Bytes of cached images on disk.
  var disk = 1_000_000_000
  /// Whether a job may be answered with a response that another owner's job fetched.
  var isShared = true
  /// Freshness of responses that state none; zero: use the heuristics of RFC 9111 section 4.2.2.
  package var defaultTTL: Duration = .seconds(86_400)
}

extension CacheConfiguration {
  /// The configuration keys of these settings.
  static let settings: [Setting<CacheConfiguration>] = [
    Setting(
      "cache.enabled", \.isEnabled, .boolean,
      "Whether responses are cached; otherwise every job asks its origin."),
    Setting(
      "cache.memory", \.memory, .size(0...(1 << 40)),
      "Maximum bytes of cached images in memory."),
    Setting(
      "cache.disk", \.disk, .size(0 ... .petabyte),
      "Maximum bytes of cached images on disk."),
    Setting(
      "cache.shared", \.isShared, .boolean,
      "Whether owners share cached responses."),
    Setting(
      "cache.default_ttl", \.defaultTTL, .duration(.zero ... .days(3650)),
      "How long a response without freshness information is fresh; 0 for the heuristic of RFC 9111."
    ),
  ]
}

/// Remembers cache keys that were looked up and not found, so that a job's load need not repeat the lookup of its
/// submission.
///
/// An entry is forgotten when this instance stores a response under the key. Another instance may have stored one
/// meanwhile, so a miss is remembered for ten seconds only.
final class CacheMisses: Sendable {
  typealias Instant = ContinuousClock.Instant

  private enum KeyState {
    /// A lookup with this number is under way.
    case lookingUp(UInt64)
    case missing(since: Instant)
    /// A response was stored after the lookup began.
    case unknown
  }

  private struct State {
    var keys = LRUCache<Fingerprint, KeyState>(capacity: 4_096)
    var count: UInt64 = 0
  }

  private static let memory = Duration.seconds(10)
  private let state = Mutex(State())

  /// Returns whether none of the keys has a stored response.
  func areMissing(_ keys: [Fingerprint], at now: Instant = .now) -> Bool {
    state.withLock { state in
      keys.allSatisfy { key in
        guard case .missing(let since) = state.keys.value(for: key) else { return false }
        return since.duration(to: now) < Self.memory
      }
    }
  }

  /// Records that a lookup of these keys begins.
  /// - Returns: the number to pass to ``recordLookup(_:of:as:at:)``.
  func beginLookup(of keys: [Fingerprint]) -> UInt64 {
    state.withLock { state in
      state.count += 1
      for key in keys { state.keys.set(.lookingUp(state.count), for: key) }
      return state.count
    }
  }

  /// Records the number of entries that a lookup found for each key. Ignores keys that were stored or looked up again
  /// since it began.
  func recordLookup(
    _ counts: [Int], of keys: [Fingerprint], as number: UInt64, at now: Instant = .now
  ) {
    state.withLock { state in
      for (key, count) in zip(keys, counts) where count == 0 {
        guard case .lookingUp(number) = state.keys.value(for: key) else { continue }
        state.keys.set(.missing(since: now), for: key)
      }
    }
  }

  /// Records that a response was stored under the key.
  func recordStored(_ key: Fingerprint) { _ = state.withLock { $0.keys.set(.unknown, for: key) } }
}
