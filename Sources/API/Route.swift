internal import HTTPTypes
internal import Jobs

/// One path of the API.
enum Route: Int, CaseIterable, Sendable {
  case jobs, job, fetch, image, preview, jobEvents, events, cache, network, livez, readyz, metrics
  case openAPI, dashboard, view, unknown

  /// The path as `openapi.yaml` writes it; also the metrics' label, so that their number is bounded.
  var template: String {
    switch self {
    case .jobs: "/jobs"
    case .job: "/jobs/{id}"
    case .fetch: "/jobs/{id}/fetch"
    case .image: "/jobs/{id}/image"
    case .preview: "/jobs/{id}/preview"
    case .jobEvents: "/jobs/{id}/events"
    case .events: "/events"
    case .cache: "/cache"
    case .network: "/network"
    case .livez: "/livez"
    case .readyz: "/readyz"
    case .metrics: "/metrics"
    case .openAPI: "/openapi.yaml"
    case .dashboard: "/"
    case .view: "/image"
    case .unknown: "unknown"
    }
  }

  /// The methods that mean something here. HEAD goes wherever GET does, OPTIONS everywhere.
  var methods: [HTTPRequest.Method] {
    switch self {
    case .jobs: [.get, .head, .post, .options]
    case .job: [.get, .head, .patch, .delete, .options]
    case .fetch: [.post, .options]
    case .cache: [.get, .head, .delete, .options]
    case .network: [.get, .head, .put, .options]
    case .image, .preview, .jobEvents, .events, .livez, .readyz, .metrics, .openAPI, .dashboard,
      .view:
      [.get, .head, .options]
    case .unknown: []
    }
  }

  /// What a token must be good for; nil: none is needed.
  func scope(publicMetrics: Bool) -> Scope? {
    switch self {
    case .jobs, .job, .fetch, .image, .preview, .jobEvents, .events, .unknown: .jobs
    case .cache, .network: .admin
    case .metrics: publicMetrics ? nil : .admin
    // The dashboard's page holds no secret: it asks for a token and shows what that may see. A view's URL is signed
    // where there are tokens.
    case .livez, .readyz, .openAPI, .dashboard, .view: nil
    }
  }

  /// Whether an orchestrator asks it, who must get its answer however busy the service is.
  var isProbe: Bool { self == .livez || self == .readyz }

  /// The `Allow` field (RFC 9110 section 10.2.1).
  var allow: String { methods.map(\.rawValue).joined(separator: ", ") }
}

/// What a request's path leads to.
struct Destination: Sendable {
  var route: Route
  /// The job that the path names; any, where it names none.
  var id: JobID = Destination.noJob

  private static let noJob = JobID(high: 0, low: 0)

  /// Reads a path as it was sent. An id that can't be one leads nowhere, as an unknown one does.
  init(path: String) {
    let path = path.utf8
    if path.starts(with: "/jobs".utf8) {
      let rest = path.dropFirst(5)
      guard let slash = rest.first else { self.init(.jobs); return }
      guard slash == UInt8(ascii: "/"), rest.count >= 37,
        let id = JobID(utf8: rest.dropFirst().prefix(36))
      else { self.init(.unknown); return }
      self.init(Self.below(rest.dropFirst(37)), id)
    } else {
      self.init(Self.operation(path))
    }
  }

  private init(_ route: Route, _ id: JobID = Destination.noJob) {
    self.route = route
    self.id = id
  }

  private static func below(_ tail: Substring.UTF8View) -> Route {
    if tail.isEmpty { return .job }
    if tail.elementsEqual("/image".utf8) { return .image }
    if tail.elementsEqual("/preview".utf8) { return .preview }
    if tail.elementsEqual("/events".utf8) { return .jobEvents }
    return tail.elementsEqual("/fetch".utf8) ? .fetch : .unknown
  }

  /// Whose template is the whole path.
  private static let operations = Route.allCases.filter {
    $0.template.hasPrefix("/") && !$0.template.hasPrefix("/jobs")
  }

  private static func operation(_ path: String.UTF8View) -> Route {
    operations.first { path.elementsEqual($0.template.utf8) } ?? .unknown
  }
}
