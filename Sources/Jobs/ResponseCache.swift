internal import Caching
internal import Logging
internal import Synchronization

/// The shared cache (RFC 9111): which stored responses answer which jobs, and what is stored of new ones.
final class ResponseCache: Sendable {
  private struct State {
    var uses: [CacheEntry.ID: Timestamp] = [:]
    var counts = CacheCounts()
  }

  private let configuration: CacheConfiguration
  private let store: any CacheStore
  private let images: any ImageStore
  let memory: ImageMemory
  let variants = KnownVariants()
  private let log: Logger
  private let state = Mutex(State())

  init(
    _ configuration: CacheConfiguration, store: any CacheStore, images: any ImageStore, log: Logger
  ) {
    self.configuration = configuration
    self.store = store
    self.images = images
    self.log = log
    memory = ImageMemory(capacity: configuration.isEnabled ? configuration.memory : 0)
  }

  var isOn: Bool { configuration.isEnabled && configuration.disk > 0 }

  private var fallback: Int? {
    configuration.defaultTTL > .zero ? Int(configuration.defaultTTL.inSeconds) : nil
  }

  // MARK: Answering

  /// What to do for a job.
  func answer(_ job: Job, at now: Timestamp, within reuse: Reuse) async -> Reuse.Answer {
    await answers([(job, reuse)], at: now)[0]
  }

  /// What to do for each of the jobs, looked up at once.
  func answers(_ jobs: [(job: Job, reuse: Reuse)], at now: Timestamp) async -> [Reuse.Answer] {
    let keys = jobs.map { isOn && $0.reuse.mode != .noStore ? $0.job.cacheKey : nil }
    let found = await entries(for: keys.compactMap(\.self))
    var stored = found[...]
    return zip(jobs, keys).map { asked, key in
      let entries = key == nil ? [] : stored.popFirst() ?? []
      return asked.reuse.answer(from: entries, at: now, fallback: fallback)
    }
  }

  private func entries(for keys: [Fingerprint]) async -> [[CacheEntry]] {
    guard !keys.isEmpty else { return [] }
    do throws(StoreError) { return try await store.entries(for: keys) } catch {
      log.error("the cache can't be read", metadata: ["error": "\(error)"])
      return keys.map { _ in [] }
    }
  }

  /// Whether the entry's image is there, unharmed.
  func isWhole(_ entry: CacheEntry) async -> Bool {
    if memory.holds(entry.image.digest) { return true }
    return (try? await images.verify(entry.image.digest, bytes: entry.image.bytes)) ?? false
  }

  func drop(_ entry: CacheEntry) async {
    memory.remove(entry.image.digest)
    do throws(StoreError) { try await store.drop([entry.id]) } catch {
      log.error("a cache entry can't be dropped", metadata: ["error": "\(error)"])
    }
  }

  /// An entry answered a job.
  func used(_ entry: CacheEntry, _ status: CacheOutcome.Status, at now: Timestamp) {
    state.withLock { state in
      state.uses[entry.id] = now
      state.counts.count(status)
    }
  }

  /// A variant was used.
  func used(_ variant: CacheEntry.ID, at now: Timestamp) {
    state.withLock { $0.uses[variant] = now }
  }

  /// Writes down which entries were used since this was last done: the order in which they give way depends on it.
  func noteUses() async {
    let uses = state.withLock { state in
      defer { state.uses = [:] }
      return state.uses
    }
    guard !uses.isEmpty else { return }
    do throws(StoreError) { try await store.touch(uses) } catch {
      log.error("the cache's uses can't be noted", metadata: ["error": "\(error)"])
    }
  }

  // MARK: After the origin was asked

  /// What a new response is for the job that had it fetched, and for the cache.
  func obtained(
    _ image: StoredImage, by response: FetchedResponse, for job: Job, began: Timestamp,
    at now: Timestamp
  ) -> LoadRun.Obtained {
    let reuse = Reuse(job)
    guard isOn, reuse.mode != .noStore else {
      return LoadRun.Obtained(image: image, cache: CacheOutcome(.bypass))
    }
    state.withLock { $0.counts.count(.miss) }
    let fields = response.headers.map(Field.init)
    let stored = StoredResponse(
      to: reuse.fields, fields: fields, requestTime: began.milliseconds,
      responseTime: now.milliseconds, assignedLifetime: reuse.lifetime)
    let freshness = Freshness(
      of: stored, at: now.milliseconds, assigned: reuse.lifetime, fallback: fallback)
    guard let key = job.cacheKey,
      Storing.permits(request: reuse.fields, response: fields, status: 200)
    else { return LoadRun.Obtained(image: image, cache: CacheOutcome(.miss)) }
    let id = CacheEntry.ID(key: key, selector: Fingerprint(of: [stored.selector]))
    return LoadRun.Obtained(
      image: image, cache: CacheOutcome(.miss, freshness),
      entry: CacheEntry(id: id, response: stored, image: image))
  }

  /// The entry as a 304 leaves it; nil when that is about another one.
  func freshened(
    _ entry: CacheEntry, by response: FetchedResponse, began: Timestamp, at now: Timestamp
  ) -> CacheEntry? {
    let fields = response.headers.map(Field.init)
    guard
      let stored = Validation.freshen(
        entry.response, with: fields, requestTime: began.milliseconds,
        responseTime: now.milliseconds)
    else { return nil }
    var entry = entry
    entry.response = stored
    return entry
  }

  func outcome(
    _ status: CacheOutcome.Status, of entry: CacheEntry, for job: Job, at now: Timestamp
  ) -> CacheOutcome {
    CacheOutcome(status, Reuse(job).freshness(of: entry, at: now, fallback: fallback))
  }

  /// The entry in the place of an error, where the origin allowed that for a time (RFC 5861 section 4).
  func outcome(
    of entry: CacheEntry, replacing error: FetchError, for job: Job, at now: Timestamp
  ) -> CacheOutcome? {
    guard job.submission.cacheMode == .default, error.isOriginsFault else { return nil }
    let freshness = Reuse(job).freshness(of: entry, at: now, fallback: fallback)
    return freshness.permitsStaleIfError ? CacheOutcome(.stale, freshness) : nil
  }

  // MARK: For people

  /// Forgets an image that a key's responses brought.
  func forget(_ image: ImageDigest, under key: Fingerprint) async {
    memory.remove(image)
    for entry in await entries(for: [key]).joined() where entry.image.digest == image {
      await drop(entry)
    }
  }

  /// Forgets what was made of an image.
  func forgetVariants(of image: ImageDigest) async {
    do throws(StoreError) { _ = try await store.drop(key: Rendition.key(of: image)) } catch {
      log.error("an image's variants can't be dropped", metadata: ["error": "\(error)"])
    }
  }

  func counts() async throws(StoreError) -> CacheCounts {
    let (entries, bytes) = try await store.cacheCounts()
    var counts = state.withLock { $0.counts }
    (counts.entries, counts.bytes, counts.memoryBytes) = (entries, bytes, memory.bytes)
    return counts
  }

  /// - Parameter key: nil: everything.
  func forget(_ key: Fingerprint?) async throws(StoreError) -> Int {
    memory.clear()
    variants.clear()
    guard let key else { return try await store.clear() }
    let images = Set(try await store.entries(for: [key]).joined().map(\.image.digest))
    var count = try await store.drop(key: key)
    for image in images { count += try await store.drop(key: Rendition.key(of: image)) }
    return count
  }
}

extension CacheCounts {
  mutating func count(_ status: CacheOutcome.Status) {
    switch status {
    case .hit, .stale: hits += 1
    case .revalidated: revalidations += 1
    case .miss: misses += 1
    case .bypass: break
    }
  }
}

extension FetchError {
  /// Whether it is one in whose place a stale response may be used: a status of 500, 502, 503 or 504, or no answer.
  var isOriginsFault: Bool {
    switch self {
    case .originStatus(let status, _): [500, 502, 503, 504].contains(status)
    case .dnsFailure, .connectFailure, .unreachable, .tlsFailure, .timeout, .stalled, .truncated,
      .noData:
      true
    case .blocked, .tooManyRedirects, .badRedirect, .tooLarge, .cancelled: false
    }
  }
}
