internal import HTTP
internal import HTTPTypes
internal import Jobs
internal import Metrics
internal import Synchronization

/// A path of the API.
enum Route: Int, CaseIterable, Sendable {
  case jobs, batch, upload, form, job, fetch, webhooks, sendWebhook, image, preview, jobEvents,
    events
  case cache, network
  case batches, ofBatch, batchLines, batchClose, batchResults, batchRetry, batchEvents
  case batchWebhooks, sendBatchWebhook
  case livez, readyz, metrics, activity, instances, openAPI, openAPIJSON, problem, problems
  case dashboard, view, unknown

  /// The path in `openapi.yaml`. Also the label in metrics, so that the number of labels is bounded.
  var template: String {
    switch self {
    case .jobs: "/jobs"
    case .batch: "/jobs/batch"
    case .upload: "/jobs/upload"
    case .form: "/jobs/form"
    case .job: "/jobs/{id}"
    case .fetch: "/jobs/{id}/fetch"
    case .webhooks: "/jobs/{id}/webhooks"
    case .sendWebhook: "/jobs/{id}/webhooks/send"
    case .image: "/jobs/{id}/image"
    case .preview: "/jobs/{id}/preview"
    case .jobEvents: "/jobs/{id}/events"
    case .events: "/events"
    case .batches: "/batches"
    case .ofBatch: "/batches/{id}"
    case .batchLines: "/batches/{id}/lines"
    case .batchClose: "/batches/{id}/close"
    case .batchResults: "/batches/{id}/results"
    case .batchRetry: "/batches/{id}/retry"
    case .batchEvents: "/batches/{id}/events"
    case .batchWebhooks: "/batches/{id}/webhooks"
    case .sendBatchWebhook: "/batches/{id}/webhooks/send"
    case .cache: "/cache"
    case .network: "/network"
    case .livez: "/livez"
    case .readyz: "/readyz"
    case .metrics: "/metrics"
    case .activity: "/activity"
    case .instances: "/instances"
    case .openAPI: "/openapi.yaml"
    case .openAPIJSON: "/openapi.json"
    case .problem: "/problems/{code}"
    case .problems: "/problems/"
    case .dashboard: "/"
    case .view: "/image"
    case .unknown: "unknown"
    }
  }

  /// The methods of the path. HEAD is listed with GET, OPTIONS is always allowed.
  var methods: [HTTPRequest.Method] {
    switch self {
    case .jobs, .batches: [.get, .head, .post, .options]
    case .job: [.get, .head, .patch, .delete, .options]
    case .ofBatch: [.get, .head, .delete, .options]
    case .batch, .upload, .form, .fetch, .sendWebhook, .batchLines, .batchClose, .batchRetry,
      .sendBatchWebhook:
      [.post, .options]
    case .cache: [.get, .head, .delete, .options]
    case .network: [.get, .head, .put, .options]
    case .webhooks, .image, .preview, .jobEvents, .events, .livez, .readyz, .metrics, .activity,
      .instances, .openAPI, .openAPIJSON, .problem, .problems, .dashboard, .view, .batchResults,
      .batchEvents, .batchWebhooks:
      [.get, .head, .options]
    case .unknown: []
    }
  }

  /// The scope that a token must have; nil: no token is needed.
  func scope(publicMetrics: Bool) -> Scope? {
    switch self {
    case .jobs, .batch, .upload, .form, .job, .fetch, .webhooks, .sendWebhook, .image, .preview,
      .jobEvents, .events, .batches, .ofBatch, .batchLines, .batchClose, .batchResults, .batchRetry,
      .batchEvents, .batchWebhooks, .sendBatchWebhook, .unknown:
      .jobs
    case .cache, .network: .admin
    case .metrics, .activity, .instances: publicMetrics ? nil : .admin
    // The dashboard's page contains no secret: it asks for a token and shows what the token may read. `GET /image`
    // needs a signed URL if tokens are configured.
    case .livez, .readyz, .openAPI, .openAPIJSON, .problem, .problems, .dashboard, .view: nil
    }
  }

  /// Whether orchestrators use the path. Probes are answered however busy the service is.
  var isProbe: Bool { self == .livez || self == .readyz }

  /// The `Allow` field (RFC 9110 section 10.2.1).
  var allow: String { methods.map(\.rawValue).joined(separator: ", ") }
}

/// The route and the id in the path of a request.
struct Destination: Sendable {
  var route: Route
  /// The job or batch in the path; a placeholder if the path has none.
  var id: JobID = Destination.noJob

  private static let noJob = JobID(high: 0, low: 0)

  /// - Parameter path: as sent.
  init(path: String) {
    let path = path.utf8
    if path.starts(with: "/jobs/".utf8) {
      self.init(belowJobs: path.dropFirst("/jobs/".utf8.count))
    } else if path.starts(with: "/batches/".utf8) {
      self.init(belowBatches: path.dropFirst("/batches/".utf8.count))
    } else if path.starts(with: Self.problems.utf8), path.count > Self.problems.utf8.count {
      self.init(.problem)
    } else if path.elementsEqual(Self.problems.utf8.dropLast()) {
      self.init(.problems)
    } else {
      self.init(Self.operations.first { path.elementsEqual($0.template.utf8) } ?? .unknown)
    }
  }

  /// The prefix of a problem's path, before its code.
  static let problems = "/problems/"

  private init(belowJobs rest: Substring.UTF8View) {
    if rest.count >= 36, let id = JobID(utf8: rest.prefix(36)) {
      self.init(Self.below(rest.dropFirst(36)), id)
    } else {
      let name = rest.prefix { $0 != UInt8(ascii: "/") }
      let tail = rest.dropFirst(name.count)
      let form = tail.isEmpty ? Self.forms.first { name.elementsEqual($0.name.utf8) } : nil
      // A malformed id is treated like the id of an unknown job.
      self.init(form?.route ?? (name.isEmpty ? .unknown : Self.below(tail)))
    }
  }

  private init(belowBatches rest: Substring.UTF8View) {
    let name = rest.prefix { $0 != UInt8(ascii: "/") }
    let tail = rest.dropFirst(name.count)
    let route =
      tail.isEmpty
      ? Route.ofBatch : Self.partsOfBatch.first { tail.elementsEqual($0.name.utf8) }?.route
    // A malformed id is treated like the id of an unknown batch.
    self.init(name.isEmpty ? .unknown : route ?? .unknown, JobID(utf8: name) ?? Destination.noJob)
  }

  private static let partsOfBatch: [(name: String, route: Route)] = [
    ("/lines", .batchLines), ("/close", .batchClose), ("/results", .batchResults),
    ("/retry", .batchRetry), ("/events", .batchEvents), ("/webhooks", .batchWebhooks),
    ("/webhooks/send", .sendBatchWebhook),
  ]

  /// Paths for submissions in a certain form. They take the place of a job's id.
  private static let forms: [(name: String, route: Route)] = [
    ("batch", .batch), ("upload", .upload), ("form", .form),
  ]

  private init(_ route: Route, _ id: JobID = Destination.noJob) {
    self.route = route
    self.id = id
  }

  private static func below(_ tail: Substring.UTF8View) -> Route {
    if tail.isEmpty { return .job }
    if tail.elementsEqual("/image".utf8) { return .image }
    if tail.elementsEqual("/preview".utf8) { return .preview }
    if tail.elementsEqual("/events".utf8) { return .jobEvents }
    if tail.elementsEqual("/webhooks".utf8) { return .webhooks }
    if tail.elementsEqual("/webhooks/send".utf8) { return .sendWebhook }
    return tail.elementsEqual("/fetch".utf8) ? .fetch : .unknown
  }

  /// The routes whose template is the complete path.
  private static let operations = Route.allCases.filter {
    $0.template.hasPrefix("/") && !$0.template.hasPrefix("/jobs/") && !$0.template.contains("{")
  }
}

/// Counts and times requests. Each instrument is created once, because creating one takes a lock and a dictionary of
/// labels.
final class RequestMetrics: Sendable {
  private struct Instruments {
    var counters: [Int: Counter] = [:]
    var timers: [Int: Timer] = [:]
  }
  private let instruments = Mutex(Instruments())

  func record(
    _ route: Route, _ method: HTTPRequest.Method, _ status: HTTPResponse.Status, took: Duration
  ) {
    let label = Self.label(of: method, at: route)
    let pair = route.rawValue * 8 + label.index
    let (counter, timer) = instruments.withLock { made in
      (
        Self.one(pair * 1000 + status.code, in: &made.counters) {
          Counter(
            label: "imagefetch_http_requests_total",
            dimensions: [
              ("route", route.template), ("method", label.word), ("status", "\(status.code)"),
            ])
        },
        Self.one(pair, in: &made.timers) {
          Timer(
            label: "imagefetch_http_request_duration_seconds",
            dimensions: [("route", route.template), ("method", label.word)],
            preferredDisplayUnit: .seconds)
        }
      )
    }
    counter.increment()
    timer.record(duration: took)
  }

  private static func one<Instrument>(
    _ key: Int, in made: inout [Int: Instrument], _ make: () -> Instrument
  ) -> Instrument {
    if let instrument = made[key] { return instrument }
    let instrument = make()
    made[key] = instrument
    return instrument
  }

  /// The label of the method. All methods that the route does not support share one label, because the number of series
  /// is limited and clients could otherwise use it up.
  private static func label(
    of method: HTTPRequest.Method, at route: Route
  ) -> (index: Int, word: String) {
    guard route.methods.contains(method) else { return (6, "other") }
    return switch method {
    case .get: (0, "GET")
    case .head: (1, "HEAD")
    case .post: (2, "POST")
    case .patch: (3, "PATCH")
    case .delete: (4, "DELETE")
    case .options: (5, "OPTIONS")
    case .put: (7, "PUT")
    default: (6, "other")
    }
  }
}

/// Creates request IDs, which connect a client's report with the log.
final class RequestIDs: Sendable {
  private let counter: Atomic<UInt64>

  init() { counter = Atomic(UInt64.random(in: 0 ... .max)) }

  /// The client's own ID if it has 1 to 128 visible ASCII characters, else a new one.
  func name(_ given: String?) -> String {
    if let given, 1...128 ~= given.utf8.count, given.utf8.allSatisfy({ 0x21...0x7E ~= $0 }) {
      return given
    }
    return next()
  }

  /// A new ID of 13 characters, which a `String` stores without allocating.
  func next() -> String {
    var word = Self.mixed(counter.wrappingAdd(0x9E37_79B9_7F4A_7C15, ordering: .relaxed).newValue)
    return String(unsafeUninitializedCapacity: 13) { buffer in
      for place in 0..<13 {
        let digit = UInt8(word & 31)
        buffer[place] = digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10
        word >>= 5
      }
      return 13
    }
  }

  /// The finalizer of SplitMix64. It is a bijection, so a process never repeats an ID.
  private static func mixed(_ word: UInt64) -> UInt64 {
    var word = word
    word = (word ^ (word >> 30)) &* 0xBF58_476D_1CE4_E5B9
    word = (word ^ (word >> 27)) &* 0x94D0_49BB_1331_11EB
    return word ^ (word >> 31)
  }
}
