internal import HTTP
internal import HTTPTypes
internal import Jobs

/// `GET|HEAD /image`: an image by its URL, for `<img src>`.
extension Routes {
  /// What a view's query may say beside who signed it.
  public static var viewMembers: Set<String> {
    let job = [
      "url", "low_data_url", "alternatives", "cache_key", "integrity", "priority", "cache",
      "cache_ttl",
      "timeout", "max_bytes", "max_pixels", "max_attempts", "retention", "tags",
    ]
    return Set(job + VariantQuery.names + ["wait", "placeholder"])
  }

  func view(_ exchange: Exchange) async throws(Problem) -> Response {
    guard configuration.view.isEnabled else { throw Problem(.notFound, "There is no such path.") }
    let expires = try checkSignature(exchange)
    var query = Query(exchange.request.query)
    // They mean nothing where nothing is signed, so that a URL works there too.
    for name in ["expires", "signature"] { _ = query.one(name) }
    let wait = Wait(&query, exchange.fields, longest: configuration.maxWait)
    let wish = ImageRequest(&query, self)
    var job = try viewedJob(&query, exchange)
    if let request = wish.variant?.request(within: configuration.limits) {
      job.submission.variants = [request]
    }

    // Who has no place to wait gets what there is.
    let place = try? place(for: exchange)
    let limit = place == nil ? .zero : wait?.limit ?? configuration.maxWait
    defer { place?.release() }
    let snapshot = try await asking { () throws(JobsError) in
      try await service.view(job, atMost: limit)
    }
    var response = try await described(snapshot.job) { () async throws(Problem) in
      try await picture(of: snapshot, wish, exchange)
    }
    if response.fields[.eTag] != nil {
      response.fields[.cacheControl] = cacheControl(of: snapshot.job, until: expires)
    }
    if case .url(_, lowData: _?) = job.submission.source {
      response.fields.append(HTTPField(name: .vary, value: "Save-Data"))
    }
    if let applied = wait?.preferenceApplied {
      response.fields.append(HTTPField(name: .preferenceApplied, value: applied))
    }
    return response
  }

  /// - Returns: until when the URL is good; nil where none needs a signature.
  /// - Throws: `forbidden`.
  private func checkSignature(_ exchange: Exchange) throws(Problem) -> Timestamp? {
    guard configuration.signsViews else { return nil }
    let (request, signatures) = (exchange.request, configuration.view.signatures)
    return try signatures.check(path: request.path, query: request.query, at: service.now())
  }

  private func viewedJob(_ query: inout Query, _ exchange: Exchange) throws(Problem) -> NewJob {
    var decoder = decoder(savesData: exchange.savesData)
    let job = decoder.viewedJob(from: &query)
    try query.finish(with: decoder.mistakes)
    // Without one there was a mistake.
    guard let job else { throw Problem(.missingURL, "A view needs a url.") }
    return job
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
