internal import HTTP
internal import HTTPTypes
internal import Jobs
internal import Synchronization

/// `GET|HEAD /image`: an image by its URL, for `<img src>`.
extension Routes {
  /// What a view's query may say beside who signed it.
  public static var viewMembers: Set<String> {
    let job = [
      "url", "low_data_url", "alternatives", "cache_key", "integrity", "priority", "cache",
      "cache_ttl",
      "timeout", "max_bytes", "max_pixels", "max_attempts", "retention", "tags", "variants",
    ]
    return Set(job + VariantQuery.names + ["variant", "wait", "placeholder"])
  }

  func view(_ exchange: Exchange) async throws(Problem) -> Response {
    let expires = try checkSignature(exchange)
    let (job, request, wait) = try viewRequest(exchange)
    let named = try request.named(of: job.submission)

    // Who has no place to wait gets what there is.
    let place = try? place(for: exchange)
    let limit = place == nil ? .zero : wait?.limit ?? configuration.maxWait
    defer { place?.release() }
    let snapshot = try await asking { () throws(JobsError) in
      try await service.view(job, atMost: limit)
    }
    var response = try await described(snapshot.job) { () async throws(Problem) in
      // Its own words: the job may be one that somebody made who calls it otherwise.
      try await picture(of: snapshot, request, named: named, exchange)
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

  /// - Returns: until when the URL is good; nil where none needs a signature.
  /// - Throws: `forbidden`.
  private func checkSignature(_ exchange: Exchange) throws(Problem) -> Timestamp? {
    guard configuration.signsViews else { return nil }
    let (request, signatures) = (exchange.request, configuration.view.signatures)
    return try signatures.check(path: request.path, query: request.query, at: service.now())
  }

  /// What a view asks for: a page that is looked at often asks the same again and again.
  private func viewRequest(_ exchange: Exchange) throws(Problem) -> ViewRequest {
    let asked = RecentViews.Key(
      query: exchange.request.query ?? "", prefer: exchange.fields[.prefer],
      savesData: exchange.savesData)
    if let known = recentViews.known(asked) { return known }
    let request = try parsed(exchange)
    recentViews.note(request, for: asked)
    return request
  }

  private func parsed(_ exchange: Exchange) throws(Problem) -> ViewRequest {
    var query = Query(exchange.request.query)
    // They mean nothing where nothing is signed, so that a URL works there too.
    for name in ["expires", "signature"] { _ = query.one(name) }
    let wait = Wait(&query, exchange.fields, longest: configuration.maxWait)
    let picture = ImageRequest(&query, self)
    var decoder = decoder(for: exchange)
    // Whoever made the URL may have it so, whoever asks by it.
    decoder.maxPriority = nil
    let viewed = decoder.viewedJob(from: &query)
    try query.finish(with: decoder.mistakes)
    // Without one there was a mistake.
    guard var job = viewed else { throw Problem(.missingURL, "A view needs a url.") }
    if job.submission.variants.isEmpty,
      let variant = picture.variant?.request(within: configuration.limits)
    {
      job.submission.variants = [variant]
    }
    return (job, picture, wait)
  }

  /// An answer or a problem with a link to the job (RFC 8288).
  private func described(
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

  /// For as long as the image is fresh a browser needn't ask again, but for no longer than its URL is good. What stands
  /// in for the regular image while the network is constrained may be replaced at any time.
  private func cacheControl(of job: Job, until expires: Timestamp?) -> String {
    let ends = [job.cache?.freshUntil, expires].compactMap { $0 }
    guard job.image?.variant == .regular, job.cache?.freshUntil != nil, let end = ends.min() else {
      return "no-cache"
    }
    let seconds = (end - service.now()).components.seconds
    return seconds > 0 ? "max-age=\(seconds)" : "no-cache"
  }
}

/// What a view's request comes to.
typealias ViewRequest = (job: NewJob, picture: ImageRequest, wait: Wait?)

/// The latest views' requests, read. Those with a mistake are not among them.
final class RecentViews: Sendable {
  /// All that a reading depends on.
  struct Key: Hashable {
    let query: String
    let prefer: String?
    let savesData: Bool
  }

  /// In bytes of queries, which what was read takes some times as much as.
  private let requests = Mutex(LRUCache<Key, ViewRequest>(capacity: 256 << 10))

  func known(_ key: Key) -> ViewRequest? { requests.withLock { $0.value(for: key) } }

  func note(_ request: ViewRequest, for key: Key) {
    // An entry's own size, at the least.
    let cost = 256 + key.query.utf8.count + (key.prefer?.utf8.count ?? 0)
    _ = requests.withLock { $0.set(request, for: key, cost: cost) }
  }
}
