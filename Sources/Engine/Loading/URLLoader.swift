internal import Caching
internal import Jobs
internal import Logging
internal import Synchronization

/// Obtains the image behind a URL for a load: from the cache, from the origin, or from both.
///
/// Input: a load whose source is a URL. Output: its image, reserved so that it is not deleted before the load has ended.
/// Runs on the decode threads; the transfer itself runs on the fetcher's thread.
struct URLLoader: Sendable {
  let cache: ResponseCache
  let requests: OriginRequests
  let kept: PartialTransfers
  let ingest: ImageIngest
  let background: BackgroundQueue
  let bytes: DailyBytes
  let now: WallClock

  /// - Parameter refusal: the reason why the origin may not be asked now; nil if it may.
  func obtain(
    for load: Load, _ permits: OriginPermits, refusal: FetchError? = nil
  ) async throws(JobFailure) -> LoadedImage {
    try await URLLoad(load: load, permits: permits, refusal: refusal, parts: self).obtain()
  }
}

/// One load's path through the cache and the origin.
private struct URLLoad: Sendable {
  let load: Load
  let permits: OriginPermits
  let refusal: FetchError?
  let parts: URLLoader

  private var job: Job { load.leader }
  private var cache: ResponseCache { parts.cache }

  func obtain() async throws(JobFailure) -> LoadedImage {
    guard let url = job.url else { throw .internal }
    switch await cache.answer(job, at: parts.now()) {
    case .use(let entry, let outcome, let isStale):
      if let loaded = try await reuse(entry, outcome) {
        if isStale { parts.background.addRefresh(of: job) }
        return loaded
      }
      return try await requestImage(url, nil)
    case .validate(let entry): return try await requestImage(url, entry)
    case .fetch: return try await requestImage(url, nil)
    case .notCached: throw .notCached
    }
  }

  /// Returns a stored response as the result; nil if its image is lost.
  private func reuse(
    _ entry: CacheEntry, _ outcome: CacheOutcome
  ) async throws(JobFailure) -> LoadedImage? {
    // No job waits any more. A reservation would have to be released.
    guard !load.isCancelled else { throw .fetch(.cancelled) }
    switch await cache.reserve(entry, as: load.reserving()) {
    case .complete:
      cache.recordUse(of: entry, outcome.status, at: parts.now())
      return LoadedImage(image: entry.image, cache: outcome)
    case .gone: return nil
    case .unknown:
      // The store did not answer, so "not cached" would be wrong.
      guard job.submission.asksOrigin else { throw .internal }
      return nil
    }
  }

  // MARK: Asking the origin

  /// - Parameter known: a stored response to validate; nil if there is none.
  private func requestImage(_ url: SourceURL, _ known: CacheEntry?) async throws(JobFailure)
    -> LoadedImage
  {
    guard job.submission.asksOrigin else { throw .notCached }
    if outcome(of: known, replacing: .timeout(seconds: 0)) != nil { load.beginFallback() }
    do throws(JobFailure) {
      if let refusal { throw .fetch(refusal) }
      let loaded = try await exchange(url, known, await parts.kept.claim(for: load))
      load.endFallback()
      return loaded
    } catch .fetch(let error) {
      guard let known, let outcome = outcome(of: known, replacing: error),
        var loaded = try await reuse(known, outcome)
      else {
        // After a timeout the fallback stays: jobs that still have time are requeued, see ``Load/removeJobsWithTimeLeft()``.
        if !error.isTimeout { load.endFallback() }
        throw .fetch(error)
      }
      loaded.replaced = error
      return loaded
    }
  }

  private func outcome(of known: CacheEntry?, replacing error: FetchError) -> CacheOutcome? {
    known.flatMap { cache.outcome(of: $0, replacing: error, for: job, at: parts.now()) }
  }

  /// Sends one request, or a second one if the response to a range or a condition cannot be used.
  /// - Parameter looksElsewhere: whether stored responses of the URLs behind redirects are validated there.
  private func exchange(
    _ url: SourceURL, _ known: CacheEntry?, _ kept: PartialTransfer?, looksElsewhere: Bool = true
  ) async throws(JobFailure) -> LoadedImage {
    let conditions = [known?.conditions(asking: url), kept?.conditions(asking: url)]
    let elsewhere =
      looksElsewhere ? KnownElsewhere(for: job, known, cache, now: parts.now) : nil
    let began = parts.now()
    let response: FetchedResponse
    do throws(FetchError) {
      response = try await parts.requests.send(
        url, conditions.compactMap(\.self), elsewhere, for: load, permits)
    } catch {
      if kept != nil, case .originStatus(416, _) = error {
        return try await exchangeAgain(url, known)
      }
      if let kept { await parts.kept.keep(kept.staged, of: load, after: .fetch(error)) }
      throw .fetch(error)
    }
    if response.isStored {
      load.stages?.end(.fetch)
      permits.release()
      guard let (entry, outcome) = elsewhere?.answer(at: response.url),
        try await reuse(entry, outcome) != nil
      else { return try await exchangeAgain(url, nil, looksElsewhere: false) }
      return cache.redirectedImage(
        entry, outcome, by: response, for: job, began: began, at: parts.now())
    }
    switch response.status {
    case 304:
      load.stages?.end(.fetch)
      guard let confirmed = elsewhere?.entry(at: response.url) ?? known,
        let loaded = await confirm(confirmed, by: response, began)
      else {
        return try await exchangeAgain(url, nil, looksElsewhere: false)
      }
      return loaded
    case 206:
      if let kept, kept.isContinued(by: response),
        let loaded = try await ingest(response, began, continuing: kept)
      {
        return loaded
      }
    default:
      if let loaded = try await ingest(response, began, continuing: nil) { return loaded }
    }
    load.stages?.end(.decode)
    load.stages?.end(.fetch)
    // Not the missing range. End this transfer first: both use the same permit.
    _ = consume response
    return try await exchangeAgain(url, known)
  }

  /// Starts again at the first origin. The permits of redirect targets are released first, because the same redirect may
  /// need them again.
  private func exchangeAgain(
    _ url: SourceURL, _ known: CacheEntry?, looksElsewhere: Bool = true
  ) async throws(JobFailure) -> LoadedImage {
    permits.releaseRedirects()
    return try await exchange(url, known, nil, looksElsewhere: looksElsewhere)
  }

  // MARK: The answer

  private func confirm(
    _ known: CacheEntry, by response: FetchedResponse, _ began: Timestamp
  ) async -> LoadedImage? {
    let loaded = cache.revalidatedImage(
      known, by: response, for: job, began: began, at: parts.now())
    guard let loaded, await cache.reserve(known, as: load.reserving()) == .complete else {
      return nil
    }
    cache.recordUse(of: known, .revalidated, at: parts.now())
    if loaded.entry == nil { await cache.delete([known]) }
    return loaded
  }

  /// - Returns: nil if a 206 response had more bytes than its range, so that the image's bytes are unknown.
  private func ingest(
    _ response: FetchedResponse, _ began: Timestamp, continuing kept: PartialTransfer?
  ) async throws(JobFailure) -> LoadedImage? {
    let rest = kept.flatMap { RestOfImage(response, after: $0) }
    let total = rest?.total ?? response.contentLength
    if let kept, let total { load.tracker.resumes(from: kept.count, total: total) }
    if let total { await parts.ingest.announce(bytes: total, of: load) }
    let staged = try await stage(for: response, continuing: kept)
    defer {
      let charges = load.charge(transferred: load.tracker.progress.bytes.arrived)
      parts.bytes.add(charges, at: parts.now())
    }
    let ingested: ImageIngest.Ingested
    do throws(JobFailure) {
      ingested = try await parts.ingest.ingest(
        rest ?? response.body, after: kept.map { StoredImageReader($0.bytes) }, to: staged,
        for: load)
    } catch {
      if let rest, rest.isExceeded { return nil }
      // The permit is released with the response, because the transfer may continue until then.
      await parts.kept.keep(staged, of: load, after: error)
      if case .codec(.unsupportedFormat) = error, let coding = response.unsupportedCoding {
        throw .fetch(.unsupportedCoding(coding))
      }
      throw error
    }
    permits.release()
    let moment = parts.now()
    let image = StoredImage(
      description: ingested.description, digest: ingested.digest, bytes: ingested.bytes,
      url: response.url, variant: .regular,
      modifiedAt: min(response.lastModified(now: moment) ?? moment, moment))
    var loaded = cache.loadedImage(image, from: response, for: job, began: began, at: moment)
    if load.dropsOriginal { loaded.forgetResponse() }
    await cache.deleteSuperseded(by: response, replacedBy: loaded.entry, for: job)
    try await parts.ingest.staging.keep(ingested, in: &loaded, for: load)
    return loaded
  }

  private func stage(
    for response: FetchedResponse, continuing kept: PartialTransfer?
  ) async throws(JobFailure) -> any StagedImage {
    if let kept { return kept.staged }
    let staged = try await parts.ingest.staging.stage(for: load.leader.id)
    parts.kept.identify(staged, of: load, response)
    return staged
  }
}

extension LoadedImage {
  /// The image's bytes will be dropped, so the response cannot answer a later job.
  fileprivate mutating func forgetResponse() {
    entry = nil
    cache?.freshUntil = nil
  }
}

/// Sends the requests of loads to origins.
struct OriginRequests: Sendable {
  let fetcher: any ImageFetcher
  let origins: OriginLimits
  /// Nil if tracing is off.
  let tracing: TraceRules?
  /// The largest response, in bytes. The load enforces the jobs' own limits.
  let maxBytes: Int
  /// The timeout of a request that no job waits for. The load enforces the jobs' own timeouts.
  let timeout: Duration

  /// Sends one request, and follows its redirects within the origins' limits. Records the outcome in the load's progress
  /// and in the origins' circuit breakers.
  fileprivate func send(
    _ url: SourceURL, _ conditions: [FetchConditions], _ elsewhere: KnownElsewhere?,
    for load: Load, _ permits: OriginPermits
  ) async throws(FetchError) -> FetchedResponse {
    var request = FetchRequest(
      url: url, for: load.leader.owner, headers: load.leader.submission.headers,
      conditions: conditions,
      timeout: load.isBackground ? timeout : load.timeLeft ?? .seconds(86_400), maxBytes: maxBytes)
    if let elsewhere {
      request.lookUp = { await elsewhere.lookUp($0, hasFields: $1) }
    }
    request.admission = { [origins, owner = load.leader.owner] origin async throws(FetchError) in
      permits.recordRedirect()
      permits.add(try await origins.admit(origin, for: owner))
    }
    if let tracing, tracing.isPropagated, let trace = load.leader.trace(by: tracing) {
      request.headers.append(trace.field(of: load.leader))
    }
    if permits.isEmpty {
      let origin = load.leader.submission.origin(of: url)
      permits.add(
        try await origins.admit(origin, for: load.leader.owner, within: request.timeout))
      if let left = load.timeLeft { request.timeout = left }
    }
    // The load may be cancelled before its task is known to it: see ``Load/run(as:)``.
    guard !load.isCancelled else { throw .cancelled }
    load.tracker.requestBegins()
    load.stages?.begin(.fetch)
    do throws(FetchError) {
      let response = try await fetcher.fetch(request)
      permits.recordAnswer()
      load.tracker.responseReceived(response)
      return response
    } catch {
      load.stages?.end(.fetch)
      permits.recordFailure(error, path: String(url.pathAndQuery.prefix { $0 != "?" }))
      if case .blocked = error, permits.hasNoRedirect { load.tracker.requestWasRefused() }
      throw error
    }
  }
}

extension TraceContext {
  /// The `traceparent` field for the origin: its span is a child of the job's `fetch`.
  fileprivate func field(of job: Job) -> HeaderField {
    let below = TraceContext(
      traceHigh: traceHigh, traceLow: traceLow, span: job.span(of: .fetch), isSampled: isSampled)
    return HeaderField(name: "traceparent", value: below.traceparent)
  }
}

/// Stored responses of the URLs behind redirects. A redirect and the response behind it are cached separately: when the
/// redirect must be requested again, the response may still be fresh, or be validated at its own URL.
private final class KnownElsewhere: Sendable {
  private struct State {
    var confirmable: [SourceURL: CacheEntry] = [:]
    var answers: [SourceURL: (CacheEntry, CacheOutcome)] = [:]
  }

  private let job: Job
  /// The stored response of the job's own URL, if it must be validated.
  private let known: CacheEntry?
  private let cache: ResponseCache
  private let now: WallClock
  private let state = Mutex(State())

  init(for job: Job, _ known: CacheEntry?, _ cache: ResponseCache, now: @escaping WallClock) {
    (self.job, self.known, self.cache, self.now) = (job, known, cache, now)
  }

  func lookUp(_ url: SourceURL, hasFields: Bool) async -> KnownResponse {
    let answer = await cache.answer(
      at: url, hasFields: hasFields, for: job, redirected: known, at: now())
    switch answer {
    case .use(let entry, let outcome, isStale: false):
      state.withLock { $0.answers[url] = (entry, outcome) }
      return .answers
    case .use(let entry, _, isStale: true), .validate(let entry):
      let conditions = entry.conditions(asking: url)
      guard conditions.url == url else { return .conditions([]) }
      state.withLock { $0.confirmable[url] = entry }
      return .conditions(conditions.fields)
    case .fetch, .notCached: return .conditions([])
    }
  }

  /// The cache entry that a 304 response of the URL validates.
  func entry(at url: SourceURL) -> CacheEntry? { state.withLock { $0.confirmable[url] } }

  /// The fresh cache entry that replaces a request for the URL.
  func answer(at url: SourceURL) -> (CacheEntry, CacheOutcome)? {
    state.withLock { $0.answers[url] }
  }
}
