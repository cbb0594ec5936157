package import HTTP
internal import HTTPTypes
package import Jobs
package import Logging
internal import Waiting

/// The HTTP API: turns a ``Request`` into a ``Response``.
///
/// Input: requests that the HTTP server has parsed, and a ``JobService`` that runs the jobs. Output: responses, logs
/// and request metrics. The API stores nothing itself, except rate limits, reservations and a cache of parsed requests.
///
/// Reading order: `Route` (paths and methods), `Routes` (authentication, limits, dispatch), `Routes+Submit` with
/// `SubmissionDecoder` (JSON to jobs), `JobDocument` (jobs to JSON), `Routes+Image`, `Batches/`, and `ProblemCode` with
/// `Problem+Errors` (all error texts).
///
/// Each request runs as a task on Swift's shared threads. Only `BodyParser` has a thread of its own, for long JSON
/// bodies.
package struct Routes: Sendable {
  let service: any JobService
  let configuration: APIConfiguration
  let openAPI: [UInt8]
  let openAPIJSON: @Sendable () -> [UInt8]
  let dashboard: @Sendable () -> WebPage
  let metrics: @Sendable () async -> String
  let activity: @Sendable () async throws(JobsError) -> Activity
  let log: Logger
  private let authentication: Authentication
  private let limiter = RateLimiter()
  private let proxies: TrustedProxies
  private let crossOrigin: CrossOrigin
  private let crossSiteGuard: CrossSiteGuard
  /// Bytes of received JSON bodies, and of responses made from many jobs.
  let memory: Budget
  /// Bytes of images that are sent from memory.
  let images: Budget
  /// Connections that wait for an event.
  let connections: Budget
  /// Open streams of `GET /events`.
  let eventStreams: Budget
  /// Limits concurrent pages of batch results.
  let resultPages = FairSemaphore<RateLimiter.Client>(ShareBounds(2, ofClient: 1))
  /// Parses long bodies.
  let bodyParser = BodyParser()
  private let requestIDs = RequestIDs()
  private let requestMetrics = RequestMetrics()
  let recentViews = ViewRequestCache()

  /// - Parameters:
  ///   - openAPI: the bytes of `openapi.yaml`.
  ///   - openAPIJSON: the same document as JSON. Called at the first request.
  ///   - dashboard: the page at `/`. Called at each request.
  ///   - metrics: the response of `/metrics`, in Prometheus' text format 0.0.4.
  ///   - activity: the figures for `/activity`.
  package init(
    service: any JobService, configuration: APIConfiguration, openAPI: [UInt8],
    openAPIJSON: @escaping @Sendable () -> [UInt8], dashboard: @escaping @Sendable () -> WebPage,
    metrics: @escaping @Sendable () async -> String,
    activity: @escaping @Sendable () async throws(JobsError) -> Activity, log: Logger
  ) {
    self.service = service
    self.configuration = configuration
    self.openAPI = openAPI
    self.openAPIJSON = openAPIJSON
    self.dashboard = dashboard
    self.metrics = metrics
    self.activity = activity
    self.log = log
    authentication = Authentication(tokens: configuration.tokens)
    proxies = TrustedProxies(isTrusted: configuration.isTrustedProxy)
    crossOrigin = CrossOrigin(origins: configuration.corsOrigins)
    crossSiteGuard = CrossSiteGuard(configuration, crossOrigin)
    memory = Budget(configuration.bodyLimits.budget) { service.now() }
    images = Budget(Self.imageMemory) { service.now() }
    connections = Budget(configuration.maxConnections) { service.now() }
    // The total is limited by ``connections``.
    eventStreams = Budget(.max, ofClient: APIConfiguration.maxEventStreams) { service.now() }
  }

  /// Bytes of images, variants and previews that are sent from memory, for all clients.
  static let imageMemory = 64 << 20

  /// Replaces all tokens. Streams that were opened with other tokens end. `tokens` must not be empty, and there must
  /// have been tokens before.
  package func replaceTokens(_ tokens: [Token]) { authentication.replace(tokens) }

  /// Responds to one request. Does not suspend if the engine has the result in memory.
  package func respond(to request: Request) async -> Response {
    let start = ContinuousClock.now
    let requestID = requestIDs.name(request.fields[.xRequestID])
    let destination = Destination(path: request.path)
    var allowance: RateLimitState?
    var response: Response
    do throws(Problem) {
      response = try await answer(request, to: destination, &allowance)
    } catch {
      let isPage =
        destination.route.hasProblemPages && request.method == .get
        && Accept(request.fields[.accept]).names("text/html")
      response = answer(error, requestID, asPage: isPage)
    }
    if let allowance {
      response.fields[.rateLimitPolicy] = allowance.policy
      response.fields[.rateLimit] = allowance.state
    }
    response.fields.append(HTTPField(name: .xRequestID, value: requestID))
    crossOrigin.addFields(for: request.fields[.origin], to: &response.fields)
    if let origin = crossOrigin.newlyRefused(request.fields) {
      log.notice(
        "a page's origin is not in server.cors_origins", metadata: ["origin": "\(origin)"])
    }
    let took = ContinuousClock.now - start
    requestMetrics.record(destination.route, request.method, response.status, took: took)
    log.debug(
      "request answered",
      metadata: [
        "request_id": "\(requestID)", "method": "\(request.method)", "path": "\(request.path)",
        "status": "\(response.status.code)",
        "milliseconds": "\((took.inSeconds * 1e6).rounded() / 1e3)",
      ])
    return response
  }

  /// The response to a request that the HTTP server refused.
  /// - Parameter origin: the `Origin` field, if it was received.
  package func refuse(_ refusal: Refusal, origin: String?) -> Response {
    let requestID = requestIDs.next()
    var response = answer(Problem(refusal), requestID)
    response.fields.append(HTTPField(name: .xRequestID, value: requestID))
    crossOrigin.addFields(for: origin, to: &response.fields)
    requestMetrics.record(.unknown, .get, response.status, took: .zero)
    return response
  }

  private func answer(
    _ request: Request, to destination: Destination, _ allowance: inout RateLimitState?
  ) async throws(Problem) -> Response {
    let route = destination.route
    if !route.isProbe {
      // A signed URL may be used on any page.
      let makesJobs = route == .view && !configuration.requiresSignedViews
      do { try crossSiteGuard.check(request.method, request.fields, makesJobs: makesJobs) } catch {
        if let page = crossSiteGuard.newlyRefused(request.fields) {
          log.info(
            "refused request of a web page",
            metadata: [
              "page": "\(page)", "host": "\(request.fields[.hostField]?.prefix(256) ?? "")",
              "reason": "\(error.detail)",
            ])
        }
        throw error
      }
    }
    let isThere = route != .unknown && (route != .view || configuration.view.isEnabled)
    if request.method == .options, isThere { return options(request, route) }
    let (identity, client) = try identifyClient(request, at: route, &allowance)
    guard isThere else {
      let isOff = route == .view
      throw Problem(
        .notFound,
        isOff ? "GET /image is disabled. Set view.enabled to use it." : "This path does not exist.")
    }
    guard route.methods.contains(request.method) else {
      throw Problem(.methodNotAllowed, "The path accepts \(route.allow).").with(.allow, route.allow)
    }
    var response = try await handle(
      AuthorizedRequest(request: request, id: destination.id, identity: identity, client: client),
      at: route)
    // Done here, so that no route's stream outlives its token.
    if let identity, case .stream(let stream) = response.content {
      response.content = .stream(authentication.bind(stream, to: identity))
    }
    return response
  }

  private func handle(_ exchange: AuthorizedRequest, at route: Route) async throws(Problem)
    -> Response
  {
    switch route {
    case .jobs:
      exchange.request.method == .post
        ? try await submit(exchange, at: route) : try await list(exchange)
    case .batch, .upload, .form: try await submit(exchange, at: route)
    case .job:
      switch exchange.request.method {
      case .patch: try await edit(exchange)
      case .delete: try await cancel(exchange)
      default: try await job(exchange)
      }
    case .fetch: try await fetchAgain(exchange)
    case .webhooks: try await webhooks(exchange)
    case .sendWebhook: try await sendWebhook(exchange)
    case .image: try await image(exchange)
    case .preview: try await preview(exchange)
    case .jobEvents: try await jobEvents(exchange)
    case .events: try events(exchange)
    case .batches:
      exchange.request.method == .post
        ? try await createBatch(exchange) : try await batches(exchange)
    case .ofBatch:
      exchange.request.method == .delete
        ? try await cancelBatch(exchange) : try await batch(exchange)
    case .batchLines: try await addLines(exchange)
    case .batchClose: try await closeBatch(exchange)
    case .batchResults: try await results(exchange)
    case .batchRetry: try await retryBatch(exchange)
    case .batchEvents: try await batchEvents(exchange)
    case .batchWebhooks: try await batchWebhooks(exchange)
    case .sendBatchWebhook: try await sendBatchWebhook(exchange)
    case .cache: try await cache(exchange)
    case .network: try await network(exchange)
    case .view: try await view(exchange)
    case .livez, .readyz, .metrics, .activity, .instances, .openAPI, .openAPIJSON, .problem,
      .problems, .dashboard, .unknown:
      try await operation(route, exchange)
    }
  }

  /// The client, if it may send this request now; nil if the route needs no token.
  private func identifyClient(
    _ request: Request, at route: Route, _ allowance: inout RateLimitState?
  ) throws(Problem) -> (Authentication.Identity?, RateLimiter.Client) {
    let identity = authentication.identify(request.fields)
    let token = identity?.token
    let client =
      token.map { RateLimiter.Client.owner($0.owner) } ?? .behind(proxies.client(of: request))
    if let limit = token?.rateLimit ?? configuration.rateLimit, !route.isProbe {
      let taken = limiter.consume(client, limit)
      allowance = taken
      if let seconds = taken.wait {
        throw Problem(
          .rateLimited, "The client exceeds its rate limit. Retry after the time in Retry-After."
        )
        .with(.retryAfter, "\(Int(min(seconds, 86_400).rounded(.up)))")
      }
    }
    if let scope = route.scope(publicMetrics: configuration.publicMetrics) {
      guard let identity else { throw Authentication.unauthorized(request.fields) }
      guard identity.scopes.contains(scope) else { throw Authentication.forbidden(lacking: scope) }
    }
    return (identity, client)
  }

  private func options(_ request: Request, _ route: Route) -> Response {
    var fields: HTTPFields = [.allow: route.allow]
    crossOrigin.addPreflightFields(request.fields, of: route, to: &fields)
    return Response(status: .noContent, fields: fields)
  }

  /// - Parameter isPage: whether the response is an HTML page for a browser.
  private func answer(_ problem: Problem, _ requestID: String, asPage isPage: Bool = false)
    -> Response
  {
    if let logged = problem.logged {
      let level: Logger.Level = Task.isCancelled ? .debug : .error
      log.log(level: level, "\(logged)", metadata: ["request_id": "\(requestID)"])
    }
    if isPage { return ProblemPage.page(of: problem).answer(problem.status, with: problem.fields) }
    var fields = problem.fields
    fields.append(HTTPField(name: .contentType, value: "application/problem+json"))
    fields.append(HTTPField(name: .cacheControl, value: "no-store"))
    let body = problem.encoded(requestID: requestID)
    return Response(status: problem.status, fields: fields, content: .bytes(body))
  }
}

extension Routes {
  /// Calls the engine and converts its errors to problems.
  func callEngine<Answer>(
    isBatch: Bool = false, _ question: () async throws(JobsError) -> Answer
  ) async throws(Problem) -> Answer {
    do { return try await question() } catch { throw Problem(error, isBatch: isBatch) }
  }

  /// Throws if the client's token is no longer valid. Used while a long body is received.
  func checkAccess(_ exchange: AuthorizedRequest) throws(Problem) {
    guard let identity = exchange.identity, !authentication.isValid(identity) else { return }
    throw Authentication.tokenRevoked
  }

  /// Whether the path reads its body line by line while it arrives.
  package static func acceptsStreamedBody(_ path: String) -> Bool {
    let route = Destination(path: path).route
    return route == .batches || route == .batchLines
  }

  /// The paths that are answered even when the limit of connections is reached.
  package static var probes: Set<String> {
    Set([Route.livez, .readyz, .metrics].map(\.template))
  }

  /// All paths with their methods, for comparison with `openapi.yaml`. HEAD and OPTIONS are left out.
  package static var table: [(path: String, methods: [String])] {
    Route.allCases.filter { $0 != .unknown }.map { route in
      let methods = route.methods.filter { $0 != .head && $0 != .options }
      return (route.template, methods.map { $0.rawValue.lowercased() })
    }
  }
}
