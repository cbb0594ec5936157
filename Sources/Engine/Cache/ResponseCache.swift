internal import Caching
internal import Jobs
internal import Logging
internal import Synchronization

/// The cache (RFC 9111): decides which stored responses answer which jobs, and what is stored of new responses.
///
/// Input: a job, or a response that was fetched for one. Output: a stored response to use, or an entry to store. Runs
/// on the caller's thread; the store has its own.
final class ResponseCache: Sendable {
  private struct State {
    var uses: [CacheEntry.ID: Timestamp] = [:]
    var counts = CacheCounts()
  }

  private let configuration: CacheConfiguration
  private let store: any CacheStore
  private let images: any ImageStore
  private let keeper: ImageLifecycle
  let memory: ImageMemory
  let variants = VariantDigests()
  private let misses = CacheMisses()
  private let log: Logger
  private let state = Mutex(State())

  init(
    _ configuration: CacheConfiguration, store: any CacheStore, images: any ImageStore,
    keeper: ImageLifecycle, log: Logger
  ) {
    self.configuration = configuration
    self.store = store
    self.images = images
    self.keeper = keeper
    self.log = log
    memory = ImageMemory(capacity: configuration.isEnabled ? configuration.memory : 0)
  }

  var isOn: Bool { configuration.isEnabled && configuration.disk > 0 }

  /// Limit for the bytes of all entries' images.
  var limit: Int { configuration.disk }

  private var fallback: Int? {
    configuration.defaultTTL > .zero ? Int(configuration.defaultTTL.inSeconds) : nil
  }

  /// Records that the store has saved an entry. Call it before the job that fetched the response is published.
  func recordStored(_ entry: CacheEntry) { misses.recordStored(entry.id.key) }

  // MARK: Answering

  /// Decides how a job proceeds at its own URL.
  func answer(_ job: Job, at now: Timestamp) async -> CachePolicy.Answer {
    await answers([job], at: now)[0]
  }

  /// Decides for several jobs with one lookup.
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
  ///   - hasFields: whether the client's own fields are sent to this URL.
  ///   - known: the stored response of the job's own URL. If redirects led from there to this URL, it is a response of
  ///     this URL too.
  func answer(
    at url: SourceURL, hasFields: Bool, for job: Job, redirected known: CacheEntry?,
    at now: Timestamp
  ) async -> CachePolicy.Answer {
    let policy = CachePolicy(job.redirected(to: url, withFields: hasFields))
    guard isOn, policy.mode != .noStore, policy.mode != .reload else { return .fetch }
    // Use only responses of this URL itself. A response reached by other redirects is only as fresh as those are.
    let stored = await entries(for: policy.keys).flatMap(\.self)
      .filter(\.path.redirects.isEmpty)
    let direct = known.flatMap { policy.direct($0, at: url, hasFields: hasFields) }
    let answer = policy.answer(
      from: stored + [direct].compactMap(\.self), at: now, fallback: fallback)
    // The store knows the response by its original id.
    switch (answer, known) {
    case (.use(direct, let outcome, let isStale), let known?):
      return .use(known, outcome, isStale: isStale)
    case (.validate(direct), let known?): return .validate(known)
    default: return answer
    }
  }

  private func entries(for keys: [Fingerprint]) async -> [[CacheEntry]] {
    guard !keys.isEmpty, !misses.areMissing(keys) else { return keys.map { _ in [] } }
    let look = misses.beginLookup(of: keys)
    do throws(StoreError) {
      let entries = try await store.entries(for: keys)
      misses.recordLookup(entries.map(\.count), of: keys, as: look)
      return entries
    } catch {
      log.error("failed to read cache entries", metadata: ["error": "\(error)"])
      return keys.map { _ in [] }
    }
  }

  /// The state of an entry's image.
  enum ImageState {
    /// The bytes are complete.
    case complete
    /// The bytes are missing or corrupt.
    case gone
    /// The store could not be asked.
    case unknown
  }

  /// Returns the state of the entry's image, for a caller that then stores a reference to it. Storing the reference
  /// fails if the image was evicted; a copy in memory does not show that.
  func state(of entry: CacheEntry) async -> ImageState {
    if memory.contains(entry.image.digest) { return .complete }
    return await storedState(of: entry)
  }

  private func storedState(of entry: CacheEntry) async -> ImageState {
    do throws(StoreError) {
      return try await images.verify(entry.image.digest, bytes: entry.image.bytes)
        ? .complete : .gone
    } catch {
      log.error("failed to verify a cached image", metadata: ["error": "\(error)"])
      return .unknown
    }
  }

  /// Reserves the image of an entry until the reservation of `holder` ends. Deletes the entry if the image is missing
  /// or corrupt, but not if the store could not be asked.
  ///
  /// An image that was evicted meanwhile can still be reserved. So its bytes are verified in the image store, not in
  /// memory. They are verified after the reservation, when no instance may delete them.
  func reserve(_ entry: CacheEntry, as holder: JobID) async -> ImageState {
    var state = ImageState.gone
    do throws(StoreError) {
      let isHeld = try await keeper.reserveStored(
        entry.image.digest, bytes: entry.image.bytes, as: holder)
      if isHeld { state = await storedState(of: entry) }
    } catch {
      log.error("failed to reserve a cached image", metadata: ["error": "\(error)"])
      state = .unknown
    }
    if state == .gone { await delete([entry]) }
    return state
  }

  /// Deletes entries. Their images stay if anything else refers to them.
  func delete(_ entries: [CacheEntry]) async {
    guard !entries.isEmpty else { return }
    for entry in entries { memory.remove(entry.image.digest) }
    do throws(StoreError) { try await store.delete(entries.map(\.id)) } catch {
      log.error("failed to delete cache entries", metadata: ["error": "\(error)"])
    }
  }

  /// Records that an entry answered a job.
  func recordUse(of entry: CacheEntry, _ status: CacheOutcome.Status, at now: Timestamp) {
    state.withLock { state in
      state.uses[entry.id] = now
      state.counts.count(status)
    }
  }

  /// Records that a variant was used.
  func recordUse(of variant: CacheEntry.ID, at now: Timestamp) {
    state.withLock { $0.uses[variant] = now }
  }

  /// Returns the last use of an entry, if the store does not know it yet. Eviction needs it, so that entries in
  /// constant use are not evicted.
  var lastUse: CacheEntry.LastUse { { [self] id in state.withLock { $0.uses[id] } } }

  /// Saves the last uses of entries in the store, because eviction depends on them.
  func saveUses() async {
    let uses = state.withLock { $0.uses }
    guard !uses.isEmpty else { return }
    do throws(StoreError) { try await store.touch(uses) } catch {
      log.error("failed to save the last use of cache entries", metadata: ["error": "\(error)"])
      return
    }
    state.withLock { state in
      for (id, moment) in uses where state.uses[id] == moment { state.uses[id] = nil }
    }
  }

  // MARK: Responses of the origin

  /// Returns the loaded image of a new response, with the entry to store if it may be stored.
  func loadedImage(
    _ image: StoredImage, from response: FetchedResponse, for job: Job, began: Timestamp,
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

  /// Deletes the entries that would have answered the job: a full response means that none of them is suitable (RFC
  /// 9111 section 4.3.3). Otherwise an old entry would be used again if the new response can't be stored.
  /// - Parameter new: the entry that replaces the one with the same id when the job ends. Nil if the response may not
  ///   be stored or the job drops its original.
  func deleteSuperseded(by response: FetchedResponse, replacedBy new: CacheEntry?, for job: Job)
    async
  {
    guard isOn, job.submission.cacheMode != .noStore else { return }
    var policies = [CachePolicy(job)]
    if !response.redirects.isEmpty {
      policies.append(CachePolicy(job.redirected(to: response.url, withFields: response.hadFields)))
    }
    var old: [CacheEntry] = []
    for policy in policies {
      old += policy.matching(await entries(for: policy.keys).flatMap(\.self))
    }
    await delete(old.filter { $0.id != new?.id })
  }

  /// Returns the loaded image after a 304, with the updated entry; nil if the 304 is about another response.
  func revalidatedImage(
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

  /// Answers a job with a stored response of the URL that redirects led to. The response is also stored for the job's
  /// own URL if all redirects may be stored.
  func redirectedImage(
    _ known: CacheEntry, _ outcome: CacheOutcome, by response: FetchedResponse, for job: Job,
    began: Timestamp, at now: Timestamp
  ) -> LoadedImage {
    var image = known.image
    image.url = response.url
    let policy = CachePolicy(job)
    let path = response.path(of: policy.fields, began: began)
    guard var entry = entry(image, known.response, over: path, for: job, policy) else {
      // The job has to ask for the redirect again, so the freshness of the stored response is of no use to it.
      return LoadedImage(image: image, cache: CacheOutcome(outcome.status, age: outcome.age))
    }
    entry.credentials = known.credentials ?? entry.credentials
    let freshness = policy.freshness(of: entry, at: now, fallback: fallback)
    return LoadedImage(
      image: image, cache: CacheOutcome(outcome.status, freshness), entry: entry)
  }

  /// The response is stored for the job's URL. If a redirect may not be stored, it is stored for the URL that answered.
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
      let asking = job.redirected(to: url, withFields: path.hadFields)
      last = entry(image, response, over: .direct, for: asking, CachePolicy(asking))
    }
    return LoadedImage(image: image, cache: CacheOutcome(status), entry: last)
  }

  /// Returns nil if the response may not be stored.
  private func entry(
    _ image: StoredImage, _ response: StoredResponse, over path: StoredPath, for job: Job,
    _ policy: CachePolicy
  ) -> CacheEntry? {
    let isForAll = job.submission.hasOnlyIdentifyingFields && path.isShareable(response)
    guard let url = job.url, let key = isForAll ? policy.shared : policy.key,
      path.permitsStoring(response, status: 200, client: policy.fields)
    else { return nil }
    let id = CacheEntry.ID(key: key, selector: Fingerprint(of: [path.selector(of: response)]))
    var entry = CacheEntry(
      id: id, resource: Job.cacheKey(of: url), response: response, path: path, image: image)
    if !path.isPublic(response), path.everHadFields { entry.credentials = job.credentials }
    return entry
  }

  /// Returns the outcome if the entry may be used instead of an error (RFC 5861 section 4, `stale-if-error`); nil if
  /// not.
  func outcome(
    of entry: CacheEntry, replacing error: FetchError, for job: Job, at now: Timestamp
  ) -> CacheOutcome? {
    guard job.submission.cacheMode == .default, error.permitsStaleResponse else {
      return nil
    }
    let freshness = CachePolicy(job).freshness(of: entry, at: now, fallback: fallback)
    return freshness.permitsStaleIfError ? CacheOutcome(.stale, freshness) : nil
  }

  // MARK: For operators

  /// Returns where the responses that led to the job's image are cached; nil if the job has no image.
  static func image(of job: Job) -> CachedImage? {
    guard let image = job.image else { return nil }
    var keys = Set(CachePolicy(job).keys)
    // If a redirect may not be stored, the entry belongs to the URL that answered.
    if let url = image.url, url != job.url {
      for hasFields in [true, false] {
        keys.formUnion(CachePolicy(job.redirected(to: url, withFields: hasFields)).keys)
      }
    }
    return CachedImage(image.digest, under: keys)
  }

  /// Deletes the entries of an image and its variants. Reads the store, because other instances may have stored entries
  /// that are unknown here.
  func deleteEntries(of image: CachedImage) async throws(StoreError) {
    _ = try await store.delete(key: image.variants)
    let entries = try await store.entries(for: Array(image.keys)).joined()
    let ids = entries.filter { $0.image.digest == image.digest }.map(\.id)
    if !ids.isEmpty { try await store.delete(ids) }
  }

  /// Deletes the variants of an image.
  func deleteVariants(of image: ImageDigest) async {
    do throws(StoreError) { _ = try await store.delete(key: Rendition.key(of: image)) } catch {
      log.error("failed to delete an image's variants", metadata: ["error": "\(error)"])
    }
  }

  func counts() async throws(StoreError) -> CacheCounts {
    var counts = ownCounts
    (counts.entries, counts.bytes) = try await store.cacheCounts()
    return counts
  }

  /// The counts of this process: outcomes, and bytes in memory.
  var ownCounts: CacheCounts {
    var counts = state.withLock { $0.counts }
    counts.memoryBytes = memory.bytes
    return counts
  }

  /// Clears the caches in memory, after entries were deleted from the store.
  func clearMemory() {
    memory.clear()
    variants.clear()
  }

  /// Deletes all entries of a URL with their variants, whichever owner fetched them.
  /// - Parameter url: nil: everything.
  /// - Returns: the number of deleted entries.
  func deleteEntries(of url: SourceURL?) async throws(StoreError) -> Int {
    clearMemory()
    guard let url else { return try await store.clear() }
    var count = 0
    while true {
      // In transactions of 500 entries, so that other writers don't wait for long however many variations of the
      // request are cached.
      let images = try await store.delete(resource: Job.cacheKey(of: url), count: 500)
      if images.isEmpty { return count }
      count += images.count
      count += try await store.delete(keys: Set(images).map { Rendition.key(of: $0) })
    }
  }
}

/// The image of a load, and the cache entry to store with it.
struct LoadedImage: Sendable {
  var image: StoredImage
  /// Nil unless the source is a URL.
  var cache: CacheOutcome?
  /// The entry to store.
  var entry: CacheEntry?
  /// The image's bytes if they are few: then the job store keeps them, unless the original is dropped.
  var embedded: EmbeddedImage?
  /// The variants that the decode was asked for. They decide at which scale a JPEG is read.
  var wanted: [VariantRequest] = []
  /// The variants that the decode made.
  var variants: [VariantRequest: [UInt8]] = [:]
  /// Whether the bytes are available until the load ends.
  var isAvailable = true
  /// The error that was replaced by this stored response.
  var replaced: FetchError?

  /// Whether this stored response replaces a transfer that timed out. Jobs with more time left may still succeed with a
  /// transfer.
  var replacesTimeout: Bool { replaced?.isTimeout ?? false }
}

extension FetchedResponse {
  /// Returns the redirects and request fields that led to this response, in the form that the cache stores.
  /// - Parameters:
  ///   - client: the client's own fields.
  ///   - began: start of the fetch.
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

  /// The earliest time at which the last request was sent.
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
  /// Whether a stale response may replace this error: status 500, 502, 503 or 504, the equivalents of common gateways,
  /// or no response.
  var permitsStaleResponse: Bool {
    switch self {
    case .originStatus(let status, _):
      [500, 502, 503, 504].contains(status) || TransientStatus.isOfGateway(status)
    case .dnsFailure, .connectFailure, .noResponse, .unreachable, .tlsFailure, .timeout, .stalled,
      .truncated, .noData:
      true
    default: false
    }
  }

  var isTimeout: Bool { if case .timeout = self { true } else { false } }
}
