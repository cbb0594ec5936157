internal import HTTP
internal import HTTPTypes
internal import Jobs

/// Health, metrics, activity, instances, the API's description, problem pages and the dashboard.
extension Routes {
  func operation(_ route: Route, _ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    switch route {
    case .livez: return status("live")
    case .readyz: return try readiness()
    case .metrics:
      return text(Array(await metrics().utf8), "text/plain; version=0.0.4; charset=utf-8")
    case .activity: return text(try await lastActivity(), "application/json")
    case .instances: return text(try await instances(), "application/json")
    case .openAPI: return text(openAPI, "application/yaml")
    case .openAPIJSON: return text(openAPIJSON(), "application/json")
    case .problem: return try problemPage(exchange)
    case .problems: return problems(exchange.fields)
    case .dashboard: return dashboard().answer(exchange.fields)
    case .jobs, .batch, .upload, .form, .job, .fetch, .webhooks, .sendWebhook, .image, .preview,
      .jobEvents, .events, .cache, .network, .view, .batches, .ofBatch, .batchLines, .batchClose,
      .batchResults, .batchRetry, .batchEvents, .batchWebhooks, .sendBatchWebhook, .unknown:
      throw Problem(.notFound, "This path does not exist.")
    }
  }

  private func instances() async throws(Problem) -> [UInt8] {
    let present: [PresentInstance]
    do throws(JobsError) { present = try await service.instances() } catch { throw Problem(error) }
    let this = service.instance
    var writer = JSONWriter()
    writer.object { writer in
      writer.key("instances")
      writer.array(present.indices) {
        $0.instance(present[$1], leads: $1 == 0, isThis: present[$1].instance == this)
      }
    }
    return writer.bytes
  }

  private func lastActivity() async throws(Problem) -> [UInt8] {
    do throws(JobsError) { return try await activity().json } catch { throw Problem(error) }
  }

  private func readiness() throws(Problem) -> Response {
    switch service.state {
    case .ready: return status("ready")
    case .starting:
      throw Problem(.starting, "The service is starting. Retry after the time in Retry-After.")
        .with(.retryAfter, "1")
    case .full: throw Problem(JobsError.store(.full))
    case .stuck:
      throw Problem(
        .overloaded,
        "The service cannot decode images at the moment. It accepts jobs, but they wait."
      )
      .with(.retryAfter, "5")
    case .draining: throw Problem(JobsError.draining)
    }
  }

  private func problems(_ fields: HTTPFields) -> Response {
    let isProgram = Accept(fields[.accept]).names("application/json")
    var response = ProblemPage.index(asJSON: isProgram).answer(fields)
    response.fields[.vary] = "Accept"
    return response
  }

  private func problemPage(_ exchange: AuthorizedRequest) throws(Problem) -> Response {
    let word = exchange.request.path.dropFirst(Destination.problems.count)
    guard let code = ProblemCode(name: String(word)) else {
      throw Problem(.notFound, "This problem code does not exist.")
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

extension JSONWriter {
  fileprivate mutating func instance(_ present: PresentInstance, leads: Bool, isThis: Bool) {
    object { writer in
      writer.key("number")
      writer.int(Int(present.instance.number))
      for (name, text) in [
        ("name", present.name), ("version", present.version), ("since", present.since.description),
      ] as [(StaticString, String?)] {
        writer.key(name)
        if let text { writer.string(text) } else { writer.null() }
      }
      writer.key("loading")
      writer.int(present.loading)
      writer.key("running")
      writer.int(present.running)
      writer.key("oldest_running_seconds")
      writer.double(present.oldest.roundedSeconds)
      writer.key("workers")
      if let workers = present.workers { writer.int(workers) } else { writer.null() }
      writer.key("leads")
      writer.bool(leads)
      writer.key("this")
      writer.bool(isThis)
    }
  }
}
