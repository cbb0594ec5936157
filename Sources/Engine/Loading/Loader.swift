internal import Caching
internal import Jobs
internal import Logging
internal import Synchronization

/// Carries out a load, from its source to a stored image or a failure.
///
/// Input: a load that has just started. Output: its durable end. One transaction ends all jobs that want only the image;
/// the others get a pending result and continue in the ``Finisher``. Runs on the decode threads, with the load's priority.
struct Loader: Sendable {
  let loads: Loads
  let urls: URLLoader
  let files: FileLoader
  let finisher: Finisher
  let completer: JobCompleter

  /// Never throws: every outcome is stored, published and logged.
  ///
  /// - Parameter refusal: the reason why no request may be sent to the origin; the cache may still have the image.
  func carryOut(_ load: Load, _ permits: OriginPermits, refusal: FetchError?) async {
    do throws(JobFailure) {
      let loaded = try await obtain(load, permits, refusal)
      // The image is complete: the time to store it does not count against the jobs' timeouts.
      load.pause()
      if loaded.replacesTimeout { await requeueJobsWithTimeLeft(load, permits) }
      await end(load, permits, with: loaded)
    } catch {
      var wasCut = false
      // The transfer was stopped for a stored response that cannot be used any more.
      if case .fetch(.timeout) = error { wasCut = await requeueJobsWithTimeLeft(load, permits) }
      await end(load, permits, after: error, claimsEqual: !wasCut)
    }
    loads.end(load)
  }

  private func obtain(
    _ load: Load, _ permits: OriginPermits, _ refusal: FetchError?
  ) async throws(JobFailure) -> LoadedImage {
    await load.awaitPredecessor()
    switch load.leader.submission.source {
    case .url: return try await urls.obtain(for: load, permits, refusal: refusal)
    case .captured(let digest, _, _):
      return try await files.ingest(files.open(captured: digest), for: load)
    case .local(let name): return try await files.ingest(files.open(local: name), for: load)
    }
  }
}

/// Obtains the image behind a URL for a load: from the cache, from the origin, or from both.
///
/// Input: a load whose source is a URL. Output: its image, reserved so that it is not deleted before the load has ended.
/// Runs on the decode threads; the transfer itself runs on the fetcher's thread.
struct URLLoader: Sendable {
  let cache: ResponseCache
  let fetcher: any ImageFetcher
  let origins: OriginLimits
  let kept: PartialTransfers
  let ingest: ImageIngest
  let background: BackgroundQueue
  let bytes: DailyBytes
  /// Nil if tracing is off.
  let tracing: TraceRules?
  /// The largest response, in bytes. The load enforces the jobs' own limits.
  let maxBytes: Int
  /// The timeout of a request that no job waits for. The load enforces the jobs' own timeouts.
  let timeout: Duration
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
      response = try await send(url, conditions.compactMap(\.self), elsewhere)
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

  /// Sends one request, and follows its redirects within the origins' limits. Records the outcome in the load's progress
  /// and in the origins' circuit breakers.
  private func send(
    _ url: SourceURL, _ conditions: [FetchConditions], _ elsewhere: KnownElsewhere?
  ) async throws(FetchError) -> FetchedResponse {
    let (owner, origins) = (job.owner, parts.origins)
    var request = FetchRequest(
      url: url, for: owner, headers: job.submission.headers, conditions: conditions,
      timeout: load.isBackground ? parts.timeout : load.timeLeft ?? .seconds(86_400),
      maxBytes: parts.maxBytes)
    if let elsewhere {
      request.lookUp = { await elsewhere.lookUp($0, hasFields: $1) }
    }
    request.admission = { [permits] origin async throws(FetchError) in
      permits.recordRedirect()
      permits.add(try await origins.admit(origin, for: owner))
    }
    if let tracing = parts.tracing, tracing.isPropagated, let trace = job.trace(by: tracing) {
      request.headers.append(trace.field(of: job))
    }
    if permits.isEmpty {
      let origin = job.submission.origin(of: url)
      permits.add(try await origins.admit(origin, for: owner, within: request.timeout))
      if let left = load.timeLeft { request.timeout = left }
    }
    // The load may be cancelled before its task is known to it: see ``Load/run(as:)``.
    guard !load.isCancelled else { throw .cancelled }
    load.tracker.requestBegins()
    load.stages?.begin(.fetch)
    do throws(FetchError) {
      let response = try await parts.fetcher.fetch(request)
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

/// Stores the bytes of interrupted transfers, so that a later transfer can resume.
struct PartialTransfers: Sendable {
  let spool: any ImageSpool
  let loads: Loads
  let now: WallClock
  let log: Logger

  /// The size of all partial transfers, in bytes.
  var bytes: Int { spool.partialBytes }

  /// Takes the partial transfer of the load's job out of the spool; nil if there is none. The load owns it from then on.
  func claim(for load: Load) async -> PartialTransfer? {
    let job = load.leader
    guard job.mayKeepBytes, let key = job.partial else { return nil }
    await loads.awaitEnds(of: key, before: load)
    do throws(StoreError) { return try await spool.takePartial(key) } catch {
      log.warning(
        "failed to read a partial transfer", metadata: ["job": "\(job.id)", "error": "\(error)"])
      return nil
    }
  }

  /// Records the validator of the bytes in a stage, so that they can be kept. Does nothing if no transfer could resume
  /// after them.
  func identify(_ staged: any StagedImage, of load: Load, _ response: FetchedResponse) {
    guard load.leader.mayKeepBytes, let key = load.leader.partial,
      let partial = response.partial(now: now())
    else { return }
    staged.identify(key, partial)
  }

  /// Keeps the received bytes for the next request, unless the bytes themselves caused the failure.
  func keep(_ staged: any StagedImage, of load: Load, after failure: JobFailure) async {
    guard case .fetch = failure, !load.discardsBytes else { return }
    do throws(StoreError) { try await staged.keepPartial() } catch {
      log.warning(
        "failed to store a partial transfer",
        metadata: ["job": "\(load.leader.id)", "error": "\(error)"])
    }
  }

  /// Deletes the partial transfer of a purged job, by its ``Job/partial``.
  func delete(_ key: Fingerprint) async {
    do throws(StoreError) { try await spool.deletePartial(key) } catch {
      log.error("failed to delete a partial transfer", metadata: ["error": "\(error)"])
    }
  }
}

extension Job {
  fileprivate var mayKeepBytes: Bool { submission.cacheMode != .noStore }
}

/// Resuming after the bytes of an earlier transfer (RFC 9110 sections 13.1.5 and 14).
extension PartialTransfer {
  /// The fields that request the missing bytes, or the whole image if the representation has changed.
  /// - Parameter asked: the job's URL. With a `cache_key` it may differ from the URL of the earlier request.
  func conditions(asking asked: SourceURL) -> FetchConditions {
    FetchConditions(
      url: response.isRedirected ? response.url : asked,
      fields: [
        HeaderField(name: "Range", value: "bytes=\(count)-"),
        HeaderField(name: "If-Range", value: response.validator),
      ])
  }

  /// Whether a 206 response is the rest of these bytes: its URL, unit, start, total and validator all agree.
  func isContinued(by answer: FetchedResponse) -> Bool {
    // A range of a coded body does not continue decoded bytes.
    guard answer.headers.contentCodings.isEmpty, let range = answer.contentRange,
      let total = total(with: range),
      response.url == answer.url || (!response.isRedirected && answer.redirects.isEmpty),
      range.first == count, range.last + 1 == total,
      response.total == nil || response.total == total,
      answer.contentLength.map({ $0 == total - count }) ?? true
    else { return false }
    return matchesValidator(of: answer)
  }

  /// The size of the whole image. If the range does not state it (`bytes 5-9/*`), the first response did.
  func total(with range: ContentRange) -> Int? { range.total ?? response.total }

  /// In reply to `If-Range` an origin must repeat the entity tag, but not the date (section 15.3.7).
  private func matchesValidator(of answer: FetchedResponse) -> Bool {
    if response.validator.hasPrefix("\"") { return answer.field("etag") == response.validator }
    return answer.field("last-modified").map { $0 == response.validator } ?? true
  }
}

/// The missing bytes of an image. Checks that their number is that of `Content-Range`, which a chunked body, or one that
/// ends with its connection, does not ensure.
final class RestOfImage: ImageBytes {
  /// The size of the whole image, in bytes.
  let total: Int
  private let count: Int
  private let body: any ImageBytes
  private let received = Mutex(0)

  /// - Parameter response: a response that continues the kept bytes. Returns nil if the image's size is unknown.
  init?(_ response: FetchedResponse, after kept: PartialTransfer) {
    guard let total = response.contentRange.flatMap({ kept.total(with: $0) }) else { return nil }
    (self.total, count, body) = (total, total - kept.count, response.body)
  }

  /// Whether more bytes arrived than the range has. It is then unknown which of them belong to the image.
  var isExceeded: Bool { received.withLock { $0 > count } }

  var codedCount: Int { body.codedCount }

  /// - Throws: `.truncated` also if there are too many bytes, or none.
  func next() async throws(FetchError) -> [UInt8]? {
    let piece: [UInt8]?
    // A body without bytes is a truncated one here: the image has the kept bytes.
    do throws(FetchError) { piece = try await body.next() } catch .noData { piece = nil }
    let sum = received.withLock { received in
      received += piece?.count ?? 0
      return received
    }
    guard piece == nil ? sum == count : sum <= count else {
      throw .truncated(received: sum, expected: count)
    }
    return piece
  }
}

extension FetchedResponse {
  /// The range of a 206 response (RFC 9110 section 14.4); nil if there is none.
  var contentRange: ContentRange? { field("content-range").flatMap(ContentRange.init) }

  /// The `Last-Modified` of the response (RFC 9110 section 8.8.2); nil if it is missing or not a valid date.
  func lastModified(now: Timestamp) -> Timestamp? {
    headers.last { $0.name.lowercased() == "last-modified" }
      .flatMap { Timestamp(httpDate: $0.value, now: now) }
  }

  /// The value of the last field of that name.
  /// - Parameter name: in lower case.
  func field(_ name: String) -> String? { headers.last { $0.name.lowercased() == name }?.value }

  /// The data needed to resume this response later; nil if it cannot be resumed.
  func partial(now: Timestamp) -> PartialResponse? {
    guard status != 203, field("accept-ranges")?.lowercased() != "none",
      headers.contentCodings.isEmpty,
      !headers.contains(where: \.forbidsStoring),
      !redirects.contains(where: { $0.headers.contains(where: \.forbidsStoring) }),
      let validator = validator(now: now)
    else { return nil }
    return PartialResponse(
      url: url, isRedirected: !redirects.isEmpty, validator: validator, total: contentLength)
  }

  /// The strong validator: an entity tag that isn't weak; else a Last-Modified that lies a second or more before the
  /// response's Date (section 8.8.2.2). A weak entity tag says that not even the date is to be trusted.
  func validator(now: Timestamp) -> String? {
    if let tag = field("etag") {
      return tag.hasPrefix("\"") && tag.hasSuffix("\"") && tag.utf8.count >= 2 ? tag : nil
    }
    guard let modified = field("last-modified"), let date = field("date"),
      let changed = Timestamp(httpDate: modified, now: now),
      let sent = Timestamp(httpDate: date, now: now), sent - changed >= .seconds(1)
    else { return nil }
    return modified
  }
}

extension HeaderField {
  /// Whether the field is a `Cache-Control` with `no-store` (RFC 9111 section 5.2.2.5).
  fileprivate var forbidsStoring: Bool {
    name.lowercased() == "cache-control"
      && value.lowercased().split(separator: ",").contains { part in
        part.split(separator: " ").first == "no-store"
      }
  }
}

/// Reads an image whose bytes are on this machine: an uploaded one, or one from the operator's folder of local images.
struct FileLoader: Sendable {
  let images: any ImageStore
  /// Nil if the operator configured none.
  let locals: (any LocalImages)?
  let ingest: ImageIngest
  /// The largest image, in bytes.
  let maxBytes: Int
  let now: WallClock
  let log: Logger

  func open(captured digest: ImageDigest) async throws(JobFailure) -> StoredBytes {
    do throws(StoreError) {
      if let stored = try await images.open(digest) { return stored }
      throw .unavailable(detail: "the captured bytes are gone")
    } catch {
      log.error("failed to read an uploaded image", metadata: ["error": "\(error)"])
      throw JobFailure(error)
    }
  }

  func open(local name: String) async throws(JobFailure) -> StoredBytes {
    guard let locals else { throw .localNotFound(name: name) }
    do throws(LocalImageError) { return try await locals.open(name) } catch {
      log.warning(
        "failed to read a local image", metadata: ["name": "\(name)", "error": "\(error)"])
      throw .localNotFound(name: name)
    }
  }

  func ingest(
    _ stored: StoredBytes, for load: Load
  ) async throws(JobFailure) -> LoadedImage {
    await ingest.announce(bytes: stored.count, of: load)
    guard stored.count <= maxBytes else { throw .fetch(.tooLarge(limit: maxBytes)) }
    let staged = try await ingest.staging.stage(for: load.leader.id)
    let ingested = try await ingest.ingest(StoredImageReader(stored), to: staged, for: load)
    let image = StoredImage(
      description: ingested.description, digest: ingested.digest, bytes: ingested.bytes, url: nil,
      variant: .regular, modifiedAt: now())
    var loaded = LoadedImage(image: image)
    try await ingest.staging.keep(ingested, in: &loaded, for: load)
    return loaded
  }
}

extension StoredImage {
  /// Returns the image as a job sees it whose URL is `target`: the regular or the low-data one.
  func seen(as target: URLCandidate) -> StoredImage {
    var image = self
    image.variant = target == .lowData ? .lowData : .regular
    image.isKept = true
    return image
  }
}

/// Reads a stored image's bytes in pieces of 64 KiB.
final class StoredImageReader: ImageBytes {
  private let stored: StoredBytes
  private let position = Position()
  private static let pieceSize = 64 << 10

  /// Only one task reads: the contract of ``ImageBytes``.
  private final class Position: @unchecked Sendable { var offset = 0 }

  init(_ stored: StoredBytes, from offset: Int = 0) {
    self.stored = stored
    position.offset = offset
  }

  func next() async throws(FetchError) -> [UInt8]? {
    if Task.isCancelled { throw .cancelled }
    let count = min(Self.pieceSize, stored.count - position.offset)
    guard count > 0 else { return nil }
    let piece = stored.read(at: position.offset, count: count)
    guard piece.count == count else {
      throw .truncated(received: position.offset + piece.count, expected: stored.count)
    }
    position.offset += count
    return piece
  }
}
