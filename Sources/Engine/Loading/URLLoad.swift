internal import Caching
internal import Jobs
internal import Logging
internal import Synchronization

/// Obtains what is behind a URL for a load: from the cache, from the origin, or from both.
struct URLLoad: Sendable {
  typealias Obtained = LoadTask.Obtained

  let load: Load
  let crew: Crew
  let permits: OriginPermits
  /// Why the origin may not be asked at the moment.
  var refusal: FetchError?

  private var job: Job { load.leader }
  private var base: LoadTask { LoadTask(load: load, crew: crew, permits: permits) }

  func obtain() async throws(JobFailure) -> Obtained {
    guard let url = job.url else { throw .internal }
    switch await crew.cache.answer(job, at: crew.now(), within: CachePolicy(job)) {
    case .use(let entry, let outcome, let isStale):
      if let obtained = try await reuse(entry, outcome) {
        if isStale { crew.background.freshen(job) }
        return obtained
      }
      return try await ask(url, nil)
    case .validate(let entry): return try await ask(url, entry)
    case .fetch: return try await ask(url, nil)
    case .notCached: throw .notCached
    }
  }

  /// A stored response as the answer, if its image is still there.
  private func reuse(
    _ entry: CacheEntry, _ outcome: CacheOutcome
  ) async throws(JobFailure) -> Obtained? {
    switch await hold(entry) {
    case .whole:
      crew.cache.used(entry, outcome.status, at: crew.now())
      return Obtained(image: entry.image, cache: outcome)
    case .gone: return nil
    case .unknown:
      // That it is not cached would be a lie.
      guard job.submission.asksOrigin else { throw .internal }
      return nil
    }
  }

  /// Sees to it that a stored response's image stays until the load is settled. One that is gone, or harmed, is
  /// forgotten; one that the store can't tell of just now is not.
  private func hold(_ entry: CacheEntry) async -> ResponseCache.ImageState {
    var state = ResponseCache.ImageState.gone
    do throws(StoreError) {
      let isHeld = try await crew.keeper.hold(
        entry.image.digest, bytes: entry.image.bytes, as: load.reserving())
      if isHeld { state = await crew.cache.state(of: entry) }
    } catch {
      crew.log.error("a cached image can't be held", metadata: ["error": "\(error)"])
      state = .unknown
    }
    if state == .gone { await crew.cache.drop(entry) }
    return state
  }

  // MARK: Asking the origin

  /// - Parameter known: a stored response to be validated.
  private func ask(_ url: SourceURL, _ known: CacheEntry?) async throws(JobFailure) -> Obtained {
    guard job.submission.asksOrigin else { throw .notCached }
    do throws(JobFailure) {
      if let refusal { throw .fetch(refusal) }
      return try await exchange(url, known, await crew.kept(for: load))
    } catch .fetch(let error) {
      guard let known,
        let outcome = crew.cache.outcome(of: known, replacing: error, for: job, at: crew.now()),
        let obtained = try await reuse(known, outcome)
      else { throw .fetch(error) }
      return obtained
    }
  }

  /// One request, or two where the first one's answer to a range or to a condition is of no use.
  /// - Parameter looksElsewhere: whether stored responses of URLs that redirects lead to are to be confirmed there.
  private func exchange(
    _ url: SourceURL, _ known: CacheEntry?, _ kept: KeptTransfer?, looksElsewhere: Bool = true
  ) async throws(JobFailure) -> Obtained {
    let conditions = [known?.conditions(asking: url), kept?.conditions(asking: url)]
    let elsewhere = looksElsewhere ? KnownElsewhere(for: job, crew.cache) : nil
    let began = crew.now()
    let response: FetchedResponse
    do throws(FetchError) {
      response = try await send(url, conditions.compactMap(\.self), elsewhere)
    } catch {
      if kept != nil, case .originStatus(416, _) = error {
        return try await exchange(url, known, nil)
      }
      if let kept { await setAside(kept.staged, after: .fetch(error)) }
      throw .fetch(error)
    }
    switch response.status {
    case 304:
      guard let confirmed = elsewhere?.entry(at: response.url) ?? known,
        let obtained = await confirm(confirmed, by: response, began)
      else {
        return try await exchange(url, nil, nil, looksElsewhere: false)
      }
      return obtained
    case 206:
      guard let kept, kept.isContinued(by: response) else {
        return try await exchange(url, known, nil)
      }
      return try await take(response, began, continuing: kept)
    default: return try await take(response, began, continuing: nil)
    }
  }

  private func send(
    _ url: SourceURL, _ conditions: [FetchConditions], _ elsewhere: KnownElsewhere?
  ) async throws(FetchError) -> FetchedResponse {
    // Each member's own limits are narrower, and watched by the load.
    var request = FetchRequest(
      url: url, headers: job.submission.headers, conditions: conditions, timeout: .seconds(86_400),
      maxBytes: crew.configuration.maxBytes)
    if let elsewhere {
      request.conditionsElsewhere = { await elsewhere.conditions(at: $0, hasFields: $1) }
    }
    let (origins, permits) = (crew.origins, permits)
    request.admission = { origin async throws(FetchError) in
      permits.add(try await origins.admit(origin))
    }
    load.tracker.requestBegins()
    do throws(FetchError) {
      let response = try await crew.fetcher.fetch(request)
      permits.noteAnswer()
      load.tracker.responseCame(response)
      return response
    } catch {
      permits.note(error, path: String(url.pathAndQuery.prefix { $0 != "?" }))
      if case .blocked = error { load.tracker.requestWasRefused() }
      throw error
    }
  }

  // MARK: The answer

  private func confirm(
    _ known: CacheEntry, by response: FetchedResponse, _ began: Timestamp
  ) async -> Obtained? {
    let obtained = crew.cache.confirmed(
      known, by: response, for: job, began: began, at: crew.now())
    guard let obtained, await hold(known) == .whole else { return nil }
    crew.cache.used(known, .revalidated, at: crew.now())
    if obtained.entry == nil { await crew.cache.drop(known) }
    return obtained
  }

  private func take(
    _ response: FetchedResponse, _ began: Timestamp, continuing kept: KeptTransfer?
  ) async throws(JobFailure) -> Obtained {
    let range = response.field("content-range").flatMap(ContentRange.init)
    let total = kept == nil ? response.contentLength : range?.total
    if let total { load.received(bytes: total) }
    if let kept, let total { load.tracker.resumes(from: kept.count, total: total) }
    await crew.completeEarlyEnds(from: load)
    let staged = try await stage(for: response, continuing: kept)
    let ingested: ImageIngest.Ingested
    do throws(JobFailure) {
      ingested = try await crew.ingest.take(
        response.body, after: kept.map { StoredImageReader($0.bytes) }, to: staged, for: load, crew)
    } catch {
      permits.release()
      await setAside(staged, after: error)
      throw error
    }
    permits.release()
    let embedded = try await base.keep(ingested)
    let image = StoredImage(
      description: ingested.description, digest: ingested.digest, bytes: ingested.bytes,
      url: response.url,
      variant: .regular, modifiedAt: response.lastModified(now: crew.now()) ?? crew.now())
    var obtained = crew.cache.obtained(
      image, by: response, for: job, began: began, at: crew.now())
    obtained.embedded = embedded
    return obtained
  }

  private func stage(
    for response: FetchedResponse, continuing kept: KeptTransfer?
  ) async throws(JobFailure) -> any StagedImage {
    if let kept { return kept.staged }
    let staged = try await base.storing { () async throws(StoreError) in
      try await crew.images.stage()
    }
    if let key = job.partial, mayKeepBytes, let partial = response.partial(now: crew.now()) {
      staged.identify(key, partial)
    }
    return staged
  }

  private var mayKeepBytes: Bool { job.submission.cacheMode != .noStore }

  /// Leaves what came to the next request, unless it was the bytes' fault.
  private func setAside(_ staged: any StagedImage, after failure: JobFailure) async {
    guard case .fetch = failure, !load.forgetsBytes else { return }
    do throws(StoreError) { try await staged.setAside() } catch {
      crew.log.warning(
        "broken-off bytes can't be kept",
        metadata: ["job": "\(job.id)", "error": "\(error)"])
    }
  }
}

/// Stored responses of the URLs that redirects lead a job to: each is confirmed by its own URL, if at all.
private final class KnownElsewhere: Sendable {
  private let job: Job
  private let cache: ResponseCache
  private let found = Mutex<[SourceURL: CacheEntry]>([:])

  init(for job: Job, _ cache: ResponseCache) { (self.job, self.cache) = (job, cache) }

  func conditions(at url: SourceURL, hasFields: Bool) async -> [HeaderField] {
    guard let entry = await cache.entry(at: url, hasFields: hasFields, for: job) else { return [] }
    let conditions = entry.conditions(asking: url)
    guard conditions.url == url else { return [] }
    found.withLock { $0[url] = entry }
    return conditions.fields
  }

  func entry(at url: SourceURL) -> CacheEntry? { found.withLock { $0[url] } }
}

extension Crew {
  /// What is kept of an earlier transfer for the job, its own from now on.
  func kept(for load: Load) async -> KeptTransfer? {
    let job = load.leader
    guard job.submission.cacheMode != .noStore, let key = job.partial else { return nil }
    await loads.awaitEnds(of: key, before: load)
    do throws(StoreError) { return try await partials.take(key) } catch {
      log.warning(
        "kept bytes can't be read", metadata: ["job": "\(job.id)", "error": "\(error)"])
      return nil
    }
  }
}
