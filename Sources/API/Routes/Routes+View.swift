internal import HTTP
internal import HTTPTypes
internal import Jobs
internal import Synchronization

/// `GET|HEAD /image`: an image by its URL, for `<img src>`.
extension Routes {
  /// The query parameters of `GET /image`, except `expires` and `signature`.
  package static var viewParameters: Set<String> {
    let options = JobOption.all(of: .view).map(\.rawValue)
    let variant = VariantOption.queried.map(\.rawValue)
    return Set(options + variant + ["variant", "wait", "placeholder"])
  }

  func view(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    let expires = try checkSignature(exchange)
    let (job, request, wait) = try viewRequest(exchange)
    let named = try request.named(of: job.submission)

    // If no connection may wait, the response has the current state.
    let place = try? reserveConnection(for: exchange)
    let limit = place == nil ? .zero : wait?.limit ?? configuration.maxWait
    defer { place?.release() }
    let snapshot = try await callEngine { () throws(JobsError) in
      try await service.view(job, atMost: limit)
    }
    var response = try await addingJobLink(snapshot.job) { () async throws(Problem) in
      // Uses the names of this request's variants: the job may have been created by a request with other names.
      try await imageResponse(of: snapshot, request, named: named, exchange)
    }
    if response.fields[.eTag] != nil {
      response.fields[.cacheControl] = cacheControl(of: snapshot.job, until: expires)
    }
    if case .url(_, lowData: _?) = job.submission.source {
      response.fields.append(HTTPField(name: .vary, value: "Save-Data"))
    }
    response.fields.acknowledge(wait)
    return response
  }

  /// - Returns: the time when the URL expires; nil if signatures are not required.
  /// - Throws: `forbidden`.
  private func checkSignature(_ exchange: AuthorizedRequest) throws(Problem) -> Timestamp? {
    guard configuration.requiresSignedViews else { return nil }
    let (request, signatures) = (exchange.request, configuration.view.signatures)
    return try signatures.check(path: request.path, query: request.query, at: service.now())
  }

  /// The parsed request. Pages repeat the same requests, so the latest results are cached.
  private func viewRequest(_ exchange: AuthorizedRequest) throws(Problem) -> ViewRequest {
    let asked = ViewRequestCache.Key(
      query: exchange.request.query ?? "", prefer: exchange.fields[.prefer],
      savesData: exchange.savesData)
    if let known = recentViews.value(for: asked) { return known }
    let request = try parsed(exchange)
    recentViews.store(request, for: asked)
    return request
  }

  private func parsed(_ exchange: AuthorizedRequest) throws(Problem) -> ViewRequest {
    var query = Query(exchange.request.query)
    // Ignored if signatures are not required, so that signed URLs work there too.
    for name in ["expires", "signature"] { _ = query.value(name) }
    let wait = Wait(&query, exchange.fields, longest: configuration.maxWait)
    let picture = ImageRequest(&query, self)
    var decoder = decoder(for: exchange)
    // The priority is part of the URL. The client's limit does not apply.
    decoder.maxPriority = nil
    let viewed = decoder.viewedJob(from: &query)
    try query.checkComplete(with: decoder.mistakes)
    // `viewed` is nil only if there was a mistake.
    guard var job = viewed else { throw Problem(.missingURL, "url is missing.") }
    if job.submission.variants.isEmpty,
      let variant = picture.variant?.request(within: configuration.limits)
    {
      job.submission.variants = [variant]
    }
    return (job, picture, wait)
  }

  /// Adds a link to the job (RFC 8288) to the response or problem.
  private func addingJobLink(
    _ job: Job, _ answer: () async throws(Problem) -> Response
  ) async throws(Problem) -> Response {
    let link = "</jobs/\(job.id)>; rel=\"describedby\""
    do throws(Problem) {
      var response = try await answer()
      response.fields[.link] = link
      return response
    } catch {
      throw error.with(.link, link)
    }
  }

  /// The response may be cached while the image is fresh, but not longer than its URL is valid. A low-data image may be
  /// replaced at any time, so it is always revalidated.
  private func cacheControl(of job: Job, until expires: Timestamp?) -> String {
    let ends = [job.cache?.freshUntil, expires].compactMap { $0 }
    guard job.image?.variant == .regular, job.cache?.freshUntil != nil, let end = ends.min() else {
      return "no-cache"
    }
    let seconds = (end - service.now()).components.seconds
    return seconds > 0 ? "max-age=\(seconds)" : "no-cache"
  }
}

/// The parsed form of a `GET /image` request.
typealias ViewRequest = (job: NewJob, picture: ImageRequest, wait: Wait?)

/// An LRU cache of parsed `GET /image` requests. Requests with mistakes are not cached.
final class ViewRequestCache: Sendable {
  /// Everything that the result of parsing depends on.
  struct Key: Hashable {
    let query: String
    let prefer: String?
    let savesData: Bool
  }

  /// The capacity is in bytes of queries. The parsed requests take a few times as much.
  private let requests = Mutex(LRUCache<Key, ViewRequest>(capacity: 256 << 10))

  func value(for key: Key) -> ViewRequest? { requests.withLock { $0.value(for: key) } }

  func store(_ request: ViewRequest, for key: Key) {
    // Includes the approximate size of an entry.
    let cost = 256 + key.query.utf8.count + (key.prefer?.utf8.count ?? 0)
    _ = requests.withLock { $0.set(request, for: key, cost: cost) }
  }
}
