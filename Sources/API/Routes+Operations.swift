internal import HTTP
internal import HTTPTypes
internal import Jobs

/// What the service says of itself.
extension Routes {
  func operation(_ route: Route, _ exchange: Exchange) async throws(Problem) -> Response {
    try exchange.refuseQuery()
    switch route {
    case .livez: return status("live")
    case .readyz: return try readiness()
    case .metrics:
      return text(Array(await metrics().utf8), "text/plain; version=0.0.4; charset=utf-8")
    case .activity: return text(activity().json, "application/json")
    case .openAPI: return text(openAPI, "application/yaml")
    case .openAPIJSON: return text(openAPIJSON(), "application/json")
    case .problem: return try problemPage(exchange)
    case .dashboard: return dashboard().answer(exchange.fields)
    case .jobs, .batch, .upload, .form, .job, .fetch, .image, .preview, .jobEvents, .events,
      .cache, .network, .view, .batches, .ofBatch, .batchLines, .batchClose, .batchResults,
      .batchRetry, .batchEvents, .unknown:
      throw Problem(.notFound, "There is no such path.")
    }
  }

  private func readiness() throws(Problem) -> Response {
    switch service.state {
    case .ready: return status("ready")
    case .starting:
      throw Problem(.starting, "This service will take work in a moment.").with(.retryAfter, "1")
    case .full: throw Problem(JobsError.store(.full))
    case .draining: throw Problem(JobsError.draining)
    }
  }

  private func problemPage(_ exchange: Exchange) throws(Problem) -> Response {
    let word = exchange.request.path.dropFirst(Destination.problems.count)
    guard let code = ProblemCode(name: String(word)) else {
      throw Problem(.notFound, "No problem has this code.")
    }
    return code.page.answer(exchange.fields)
  }

  private func status(_ word: String) -> Response {
    text(Array(#"{"status":"\#(word)"}"#.utf8), "application/json")
  }

  private func text(_ bytes: [UInt8], _ type: String) -> Response {
    let fields: HTTPFields = [.contentType: type, .cacheControl: "no-cache"]
    return Response(status: .ok, fields: fields, content: .bytes(bytes))
  }
}
