internal import Caching
internal import Logging

/// Obtains what is behind a URL for a load: from the cache, from the origin, or from both.
struct ResourceRun: Sendable {
  typealias Obtained = LoadRun.Obtained

  let load: Load
  let crew: Crew
  let passes: OriginPasses
  /// Why the origin may not be asked at the moment.
  var refusal: FetchError?

  private var job: Job { load.leader }
  private var base: LoadRun { LoadRun(load: load, crew: crew, passes: passes) }

  func obtain() async throws(JobFailure) -> Obtained {
    guard let url = job.url else { throw .internal }
    switch await crew.cache.answer(job, at: crew.now(), within: Reuse(job)) {
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
    guard await hold(entry) else { return nil }
    crew.cache.used(entry, outcome.status, at: crew.now())
    return Obtained(image: entry.image, cache: outcome)
  }

  /// Sees to it that a stored response's image stays until the load is settled. One that is gone, or harmed, is
  /// forgotten.
  private func hold(_ entry: CacheEntry) async -> Bool {
    let isHeld = try? await crew.keeper.hold(
      entry.image.digest, bytes: entry.image.bytes, as: load.holder)
    if isHeld == true, await crew.cache.isWhole(entry) { return true }
    await crew.cache.drop(entry)
    return false
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

  /// One request, or two where the first one's answer to a range is of no use.
  private func exchange(
    _ url: SourceURL, _ known: CacheEntry?, _ kept: KeptTransfer?
  ) async throws(JobFailure) -> Obtained {
    let conditions = known.map { Validation.conditions(for: $0.response) } ?? []
    let began = crew.now()
    let response: FetchedResponse
    do throws(FetchError) {
      response = try await send(url, conditions.map(HeaderField.init) + (kept?.conditions ?? []))
    } catch {
      if kept != nil, case .originStatus(416, _) = error {
        return try await exchange(url, known, nil)
      }
      if let kept { await setAside(kept.staged, after: .fetch(error)) }
      throw .fetch(error)
    }
    switch response.status {
    case 304:
      guard let known, let obtained = try await confirm(known, by: response, began) else {
        return try await exchange(url, nil, nil)
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
    _ url: SourceURL, _ conditions: [HeaderField]
  ) async throws(FetchError) -> FetchedResponse {
    // Each member's own limits are narrower, and watched by the load.
    var request = FetchRequest(
      url: url, headers: job.submission.headers, conditions: conditions, timeout: .seconds(86_400),
      maxBytes: crew.configuration.maxBytes)
    let (origins, passes) = (crew.origins, passes)
    request.admission = { origin async throws(FetchError) in
      passes.add(try await origins.admit(origin))
    }
    load.reporter.requestBegins()
    do throws(FetchError) {
      let response = try await crew.fetcher.fetch(request)
      passes.note(.answered)
      load.reporter.responseCame(response)
      return response
    } catch {
      passes.note(OriginState.Outcome(error))
      if case .blocked = error { load.reporter.requestWasRefused() }
      throw error
    }
  }

  // MARK: The answer

  private func confirm(
    _ known: CacheEntry, by response: FetchedResponse, _ began: Timestamp
  ) async throws(JobFailure) -> Obtained? {
    guard let entry = crew.cache.freshened(known, by: response, began: began, at: crew.now()),
      await hold(entry)
    else { return nil }
    let outcome = crew.cache.outcome(.revalidated, of: entry, for: job, at: crew.now())
    crew.cache.used(entry, .revalidated, at: crew.now())
    return Obtained(image: entry.image, cache: outcome, entry: entry)
  }

  private func take(
    _ response: FetchedResponse, _ began: Timestamp, continuing kept: KeptTransfer?
  ) async throws(JobFailure) -> Obtained {
    let range = response.field("content-range").flatMap(ContentRange.init)
    let total = kept == nil ? response.contentLength : range?.total
    if let total { load.came(bytes: total) }
    if let kept, let total { load.reporter.resumes(from: kept.count, total: total) }
    await crew.tellDepartures(from: load)
    let staged = try await stage(for: response, continuing: kept)
    let taken: ImageIntake.Taken
    do throws(JobFailure) {
      taken = try await crew.intake.take(
        response.body, after: kept.map { StoredImageReader($0.bytes) }, to: staged, for: load, crew)
    } catch {
      passes.giveBack()
      await setAside(staged, after: error)
      throw error
    }
    passes.giveBack()
    try await base.publish(taken)
    let image = StoredImage(
      description: taken.description, digest: taken.digest, bytes: taken.bytes, url: response.url,
      variant: .regular, modifiedAt: response.lastModified(now: crew.now()) ?? crew.now())
    return crew.cache.obtained(image, by: response, for: job, began: began, at: crew.now())
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

extension HeaderField {
  init(_ field: Field) { self.init(name: field.name, value: field.value) }
}

extension Field {
  init(_ field: HeaderField) { self.init(name: field.name, value: field.value) }
}
