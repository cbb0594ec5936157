internal import Caching
internal import Jobs
internal import Logging
internal import Synchronization

/// The shared cache (RFC 9111): which stored responses answer which jobs, and what is stored of new ones.
///
/// In comes a job, or a response that came for one; out goes what may be used, or an entry to be stored. Runs on the
/// caller's thread; the store has its own.
final class ResponseCache: Sendable {
  private struct State {
    var uses: [CacheEntry.ID: Timestamp] = [:]
    var counts = CacheCounts()
  }

  private let configuration: CacheConfiguration
  private let store: any CacheStore
  private let images: any ImageStore
  private let keeper: ImageKeeper
  let memory: ImageMemory
  let variants = KnownVariants()
  private let misses = CacheMisses()
  private let log: Logger
  private let state = Mutex(State())

  init(
    _ configuration: CacheConfiguration, store: any CacheStore, images: any ImageStore,
    keeper: ImageKeeper, log: Logger
  ) {
    self.configuration = configuration
    self.store = store
    self.images = images
    self.keeper = keeper
    self.log = log
    memory = ImageMemory(capacity: configuration.isEnabled ? configuration.memory : 0)
  }

  var isOn: Bool { configuration.isEnabled && configuration.disk > 0 }

  /// Of all entries' images, in bytes.
  var limit: Int { configuration.disk }

  private var fallback: Int? {
    configuration.defaultTTL > .zero ? Int(configuration.defaultTTL.inSeconds) : nil
  }

  /// The job store has taken in an entry. To be called before the job that brought it is published.
  func noteStored(_ entry: CacheEntry) { misses.noteStored(entry.id.key) }

  // MARK: Answering

  /// What to do for a job.
  func answer(_ job: Job, at now: Timestamp) async -> CachePolicy.Answer {
    await answers([job], at: now)[0]
  }

  /// What to do for each of the jobs, looked up at once.
  func answers(_ jobs: [Job], at now: Timestamp) async -> [CachePolicy.Answer] {
    let policies = jobs.map(CachePolicy.init)
    let keys = policies.map { isOn && $0.mode != .noStore ? $0.keys : [] }
    var stored = await entries(for: keys.flatMap(\.self))[...]
    return zip(policies, keys).map { policy, keys in
      let entries = stored.prefix(keys.count).flatMap(\.self)
      stored = stored.dropFirst(keys.count)
      return policy.answer(from: entries, at: now, fallback: fallback)
    }
  }

  /// Decides how a job proceeds at a URL that a redirect leads to.
  /// - Parameters:
  ///   - hasFields: whether the client's own fields go along.
  ///   - known: the response that is stored for the job's own URL. Where redirects had led from there to this URL, it is a response of
  ///     this URL too.
  func answer(
    at url: SourceURL, hasFields: Bool, for job: Job, redirected known: CacheEntry?,
    at now: Timestamp
  ) async -> CachePolicy.Answer {
    let policy = CachePolicy(job.asking(url, withFields: hasFields))
    guard isOn, policy.mode != .noStore, policy.mode != .reload else { return .fetch }
    // Responses of that URL itself. One that other redirects had led to is only as fresh as they are.
    let stored = await entries(for: policy.keys).flatMap(\.self)
      .filter(\.path.redirects.isEmpty)
    let direct = known.flatMap { policy.direct($0, at: url, hasFields: hasFields) }
    let answer = policy.answer(
      from: stored + [direct].compactMap(\.self), at: now, fallback: fallback)
    // The store knows it by its own id.
    switch (answer, known) {
    case (.use(direct, let outcome, let isStale), let known?):
      return .use(known, outcome, isStale: isStale)
    case (.validate(direct), let known?): return .validate(known)
    default: return answer
    }
  }

  private func entries(for keys: [Fingerprint]) async -> [[CacheEntry]] {
    guard !keys.isEmpty, !misses.know(keys) else { return keys.map { _ in [] } }
    let look = misses.beginLooking(for: keys)
    do throws(StoreError) {
      let entries = try await store.entries(for: keys)
      misses.noteFound(entries.map(\.count), of: keys, as: look)
      return entries
    } catch {
      log.error("the cache can't be read", metadata: ["error": "\(error)"])
      return keys.map { _ in [] }
    }
  }

  /// What is left of an entry's image.
  enum ImageState {
    /// It is there, unharmed.
    case whole
    /// It isn't, or is harmed.
    case gone
    /// The store can't be asked.
    case unknown
  }

  /// What is left of the entry's image, for whoever has the store refer to it then: the store knows whether the image has
  /// given way, and memory doesn't.
  func state(of entry: CacheEntry) async -> ImageState {
    if memory.holds(entry.image.digest) { return .whole }
    return await storedState(of: entry)
  }

  private func storedState(of entry: CacheEntry) async -> ImageState {
    do throws(StoreError) {
      return try await images.verify(entry.image.digest, bytes: entry.image.bytes) ? .whole : .gone
    } catch {
      log.error("a cached image can't be looked at", metadata: ["error": "\(error)"])
      return .unknown
    }
  }

  /// Sees to it that a stored response's image stays until the reservation of `holder` ends. One that is gone, or
  /// harmed, is forgotten; not where the store can't be asked just now.
  ///
  /// One that has given way meanwhile can be reserved as well. So its bytes are looked for where they are kept, not in
  /// memory, and once nobody may remove them any more.
  func hold(_ entry: CacheEntry, as holder: JobID) async -> ImageState {
    var state = ImageState.gone
    do throws(StoreError) {
      let isHeld = try await keeper.hold(
        entry.image.digest, bytes: entry.image.bytes, as: holder)
      if isHeld { state = await storedState(of: entry) }
    } catch {
      log.error("a cached image can't be held", metadata: ["error": "\(error)"])
      state = .unknown
    }
    if state == .gone { await drop([entry]) }
    return state
  }

  /// Forgets entries; their images stay for whoever else has them.
  func drop(_ entries: [CacheEntry]) async {
    guard !entries.isEmpty else { return }
    for entry in entries { memory.remove(entry.image.digest) }
    do throws(StoreError) { try await store.drop(entries.map(\.id)) } catch {
      log.error("cache entries can't be dropped", metadata: ["error": "\(error)"])
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

  /// When an entry was last used, as far as the store doesn't know: what is read all the time must not be evicted.
  var lastUse: CacheEntry.LastUse { { [self] id in state.withLock { $0.uses[id] } } }

  /// Stores which entries were used since this was last done: the order of eviction depends on it.
  func noteUses() async {
    let uses = state.withLock { $0.uses }
    guard !uses.isEmpty else { return }
    do throws(StoreError) { try await store.touch(uses) } catch {
      log.error("the cache's uses can't be noted", metadata: ["error": "\(error)"])
      return
    }
    state.withLock { state in
      for (id, moment) in uses where state.uses[id] == moment { state.uses[id] = nil }
    }
  }

  // MARK: After the origin was asked

  /// What a new response is for the job that had it fetched, and for the cache.
  func obtained(
    _ image: StoredImage, by response: FetchedResponse, for job: Job, began: Timestamp,
    at now: Timestamp
  ) -> LoadedImage {
    let policy = CachePolicy(job)
    guard isOn, policy.mode != .noStore else {
      return LoadedImage(image: image, cache: CacheOutcome(.bypass))
    }
    state.withLock { $0.counts.count(.miss) }
    let stored = StoredResponse(
      to: response.hadFields ? policy.fields : [], fields: response.headers.map(Field.init),
      requestTime: response.asked(after: began).milliseconds, responseTime: now.milliseconds,
      assignedLifetime: policy.lifetime)
    let path = response.path(of: policy.fields, began: began)
    return obtained(.miss, image, stored, over: path, for: job, policy, at: now)
  }

  /// Forgets what would have answered the job: a full response says that nothing of that is suitable (RFC 9111 section
  /// 4.3.3). Where it isn't kept itself, the old one would be fresh again.
  /// - Parameter new: takes the place of the entry of its id when the job ends. Nil where the response may not be stored,
  ///   or the job drops its bytes: what it says of the old one is the same.
  func dropSuperseded(by response: FetchedResponse, keptAs new: CacheEntry?, for job: Job) async {
    guard isOn, job.submission.cacheMode != .noStore else { return }
    var policies = [CachePolicy(job)]
    if !response.redirects.isEmpty {
      policies.append(CachePolicy(job.asking(response.url, withFields: response.hadFields)))
    }
    var old: [CacheEntry] = []
    for policy in policies {
      old += policy.matching(await entries(for: policy.keys).flatMap(\.self))
    }
    await drop(old.filter { $0.id != new?.id })
  }

  /// What a 304 is for the job, and for the cache; nil when it is about another response.
  func confirmed(
    _ known: CacheEntry, by response: FetchedResponse, for job: Job, began: Timestamp,
    at now: Timestamp
  ) -> LoadedImage? {
    let stored = Validation.freshen(
      known.response, with: response.headers.map(Field.init),
      requestTime: response.asked(after: began).milliseconds, responseTime: now.milliseconds)
    guard let stored else { return nil }
    var image = known.image
    image.url = response.url
    let policy = CachePolicy(job)
    let path = response.path(of: policy.fields, began: began)
    return obtained(.revalidated, image, stored, over: path, for: job, policy, at: now)
  }

  /// Makes the answer to a job from a stored response of the URL that redirects led to. The cache stores it for the job's
  /// own URL too, if all of the redirects may be stored.
  func redirected(
    to known: CacheEntry, _ outcome: CacheOutcome, by response: FetchedResponse, for job: Job,
    began: Timestamp, at now: Timestamp
  ) -> LoadedImage {
    var image = known.image
    image.url = response.url
    let policy = CachePolicy(job)
    let path = response.path(of: policy.fields, began: began)
    guard var entry = entry(image, known.response, over: path, for: job, policy) else {
      // Until when it may be used is of no use to a job that has to ask for the redirect again.
      return LoadedImage(image: image, cache: CacheOutcome(outcome.status, age: outcome.age))
    }
    entry.credentials = known.credentials ?? entry.credentials
    let freshness = policy.freshness(of: entry, at: now, fallback: fallback)
    return LoadedImage(
      image: image, cache: CacheOutcome(outcome.status, freshness), entry: entry)
  }

  /// The cache keeps the response for the URL that was asked for, or, where a redirect may not be stored, for the one
  /// that answered.
  private func obtained(
    _ status: CacheOutcome.Status, _ image: StoredImage, _ response: StoredResponse,
    over path: StoredPath, for job: Job, _ policy: CachePolicy, at now: Timestamp
  ) -> LoadedImage {
    if let entry = entry(image, response, over: path, for: job, policy) {
      let freshness = policy.freshness(of: entry, at: now, fallback: fallback)
      return LoadedImage(image: image, cache: CacheOutcome(status, freshness), entry: entry)
    }
    var last: CacheEntry?
    if let url = image.url, !path.redirects.isEmpty {
      let asking = job.asking(url, withFields: path.hadFields)
      last = entry(image, response, over: .direct, for: asking, CachePolicy(asking))
    }
    return LoadedImage(image: image, cache: CacheOutcome(status), entry: last)
  }

  /// Nil for what may not be stored.
  private func entry(
    _ image: StoredImage, _ response: StoredResponse, over path: StoredPath, for job: Job,
    _ policy: CachePolicy
  ) -> CacheEntry? {
    let isForAll = job.submission.saysOnlyWhoAsks && path.isForAll(response)
    guard let url = job.url, let key = isForAll ? policy.shared : policy.key,
      path.permitsStoring(response, status: 200, client: policy.fields)
    else { return nil }
    let id = CacheEntry.ID(key: key, selector: Fingerprint(of: [path.selector(of: response)]))
    var entry = CacheEntry(
      id: id, resource: Job.cacheKey(of: url), response: response, path: path, image: image)
    if !path.isPublic(response), path.everHadFields { entry.credentials = job.credentials }
    return entry
  }

  /// The entry in the place of an error, where the origin allowed that for a time (RFC 5861 section 4).
  func outcome(
    of entry: CacheEntry, replacing error: FetchError, for job: Job, at now: Timestamp
  ) -> CacheOutcome? {
    guard job.submission.cacheMode == .default, error.isOriginsFault else {
      return nil
    }
    let freshness = CachePolicy(job).freshness(of: entry, at: now, fallback: fallback)
    return freshness.permitsStaleIfError ? CacheOutcome(.stale, freshness) : nil
  }

  // MARK: For people

  /// Where an image is that responses to a job brought; nil where it has none.
  static func image(of job: Job) -> CachedImage? {
    guard let image = job.image else { return nil }
    var keys = Set(CachePolicy(job).keys)
    // Where a redirect was not to be stored, it is the answering URL's.
    if let url = image.url, url != job.url {
      for hasFields in [true, false] {
        keys.formUnion(CachePolicy(job.asking(url, withFields: hasFields)).keys)
      }
    }
    return CachedImage(image.digest, under: keys)
  }

  /// Forgets an image, and what was made of it. The store itself is asked: others may have put there what is not known here
  /// yet.
  func forget(_ image: CachedImage) async throws(StoreError) {
    _ = try await store.drop(key: image.variants)
    let entries = try await store.entries(for: Array(image.keys)).joined()
    let ids = entries.filter { $0.image.digest == image.digest }.map(\.id)
    if !ids.isEmpty { try await store.drop(ids) }
  }

  /// Forgets what was made of an image.
  func forgetVariants(of image: ImageDigest) async {
    do throws(StoreError) { _ = try await store.drop(key: Rendition.key(of: image)) } catch {
      log.error("an image's variants can't be dropped", metadata: ["error": "\(error)"])
    }
  }

  func counts() async throws(StoreError) -> CacheCounts {
    var counts = ownCounts
    (counts.entries, counts.bytes) = try await store.cacheCounts()
    return counts
  }

  /// Counts of this process: outcomes, and bytes held in memory.
  var ownCounts: CacheCounts {
    var counts = state.withLock { $0.counts }
    counts.memoryBytes = memory.bytes
    return counts
  }

  /// Forgets what is in memory, where the store has dropped something.
  func clearMemory() {
    memory.clear()
    variants.clear()
  }

  /// Forgets what there is of a URL, whoever had it fetched, and what was made of it.
  /// - Parameter url: nil: everything.
  /// - Returns: how many entries there were.
  func forget(_ url: SourceURL?) async throws(StoreError) -> Int {
    clearMemory()
    guard let url else { return try await store.clear() }
    var count = 0
    while true {
      // So many a commit that nobody waits for long, however many fields somebody varied.
      let images = try await store.drop(resource: Job.cacheKey(of: url), count: 500)
      if images.isEmpty { return count }
      count += images.count
      count += try await store.drop(keys: Set(images).map { Rendition.key(of: $0) })
    }
  }
}

/// An image that a load came to, and what the cache has to do with it.
struct LoadedImage: Sendable {
  var image: StoredImage
  /// Nil for other sources than URLs.
  var cache: CacheOutcome?
  /// For the cache to keep.
  var entry: CacheEntry?
  /// The image's bytes, where they are few: the job store is to keep them, unless they are dropped.
  var embedded: EmbeddedImage?
  /// What its decode was to make on its way: a JPEG's scale follows from all of that.
  var wanted: [VariantRequest] = []
  /// What its decode made on its way.
  var variants: [VariantRequest: [UInt8]] = [:]
  /// Whether its bytes are there until the load ends.
  var isAtHand = true
  /// The error in whose place it is, as a stored response.
  var replaced: FetchError?

  /// Whether it takes the place of a transfer whose time was over, and which may not have been in vain for whoever has more.
  var wasCut: Bool { replaced?.isTimeout ?? false }
}

extension FetchedResponse {
  /// How it was come by, as the cache keeps that.
  /// - Parameters:
  ///   - client: the client's own fields.
  ///   - began: when the fetch did.
  fileprivate func path(of client: [Field], began: Timestamp) -> StoredPath {
    let stored = redirects.map { redirect in
      StoredRedirect(
        status: redirect.status, to: client, hadFields: redirect.hadFields,
        fields: redirect.headers.map(Field.init),
        requestTime: (began + redirect.asked).milliseconds,
        responseTime: (began + redirect.answered).milliseconds)
    }
    return StoredPath(redirects: stored, hadFields: hadFields)
  }

  /// When its own request was sent, at the earliest.
  fileprivate func asked(after began: Timestamp) -> Timestamp {
    began + (redirects.last?.answered ?? .zero)
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
  /// Whether it is one in whose place a stale response may be used: a status of 500, 502, 503 or 504, what a gateway
  /// says in their place, or no answer.
  var isOriginsFault: Bool {
    switch self {
    case .originStatus(let status, _):
      [500, 502, 503, 504].contains(status) || TransientStatus.isOfGateway(status)
    case .dnsFailure, .connectFailure, .noResponse, .unreachable, .tlsFailure, .timeout, .stalled,
      .truncated, .noData:
      true
    case .blocked, .badHost, .tooManyRedirects, .badRedirect, .tooLarge, .headerTooLarge,
      .unsupportedCoding,
      .brokenCoding,
      .cancelled:
      false
    }
  }

  var isTimeout: Bool { if case .timeout = self { true } else { false } }
}
