internal import Jobs

/// Traces in the JSON encoding of opentelemetry-proto 1: ids are hexadecimal, 64-bit integers are strings, enumerations
/// are numbers.
enum OTLP {
  /// `ExportTraceServiceRequest`.
  struct Request: Encodable {
    let resourceSpans: [ResourceSpans]
  }

  struct ResourceSpans: Encodable {
    let resource: Resource
    let scopeSpans: [ScopeSpans]
  }

  struct Resource: Encodable {
    let attributes: [Attribute]
  }

  struct ScopeSpans: Encodable {
    let scope: Scope
    let spans: [Span]
  }

  struct Scope: Encodable {
    let name: String
    let version: String
  }

  struct Span: Encodable {
    var traceId: String
    var spanId: String
    var parentSpanId: String?
    var name: String
    /// 1 internal, 3 client, 5 consumer.
    var kind: Int
    var startTimeUnixNano: String
    var endTimeUnixNano: String
    var attributes: [Attribute] = []
    var status: Status?
  }

  struct Status: Encodable {
    var message: String
    /// 2: an error.
    var code: Int
  }

  struct Attribute: Encodable {
    enum Value: Encodable {
      case text(String)
      case whole(Int)
      case number(Double)

      private enum CodingKeys: String, CodingKey { case stringValue, intValue, doubleValue }

      func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        switch self {
        case .text(let text): try container.encode(text, forKey: .stringValue)
        case .whole(let number): try container.encode("\(number)", forKey: .intValue)
        case .number(let number): try container.encode(number, forKey: .doubleValue)
        }
      }
    }

    let key: String
    let value: Value

    init(_ key: String, _ text: String) { (self.key, value) = (key, .text(text)) }
    init(_ key: String, _ number: Int) { (self.key, value) = (key, .whole(number)) }
    init(_ key: String, _ number: Double) { (self.key, value) = (key, .number(number)) }
  }
}

extension OTLP.Request {
  init(_ ended: [TraceExporter.FinishedJob], _ resource: [OTLP.Attribute]) {
    let scope = OTLP.Scope(name: "imagefetch", version: App.version)
    let spans = ended.flatMap(\.spans)
    resourceSpans = [
      OTLP.ResourceSpans(
        resource: OTLP.Resource(attributes: resource),
        scopeSpans: [OTLP.ScopeSpans(scope: scope, spans: spans)])
    ]
  }
}

extension TraceExporter.FinishedJob {
  /// The job's span, and a child span for each stage.
  var spans: [OTLP.Span] {
    let created = unixTime(job.createdAt)
    var spans = [span(job.submission.trace?.span, place.span, "job", 5, created, nanoseconds)]
    spans[0].attributes = attributes
    if let failure = job.failure {
      spans[0].status = OTLP.Status(message: failure.code.rawValue, code: 2)
    }
    let taken = job.startedAt ?? job.finishedAt
    if let taken { spans.append(below(.queued, created, unixTime(taken))) }
    for stage in stages {
      let began = nanoseconds - stage.before.nanoseconds
      spans.append(below(stage.name, began, began + stage.duration.nanoseconds))
    }
    return spans
  }

  private func below(_ stage: JobStage.Name, _ began: Int64, _ ended: Int64) -> OTLP.Span {
    let kind = stage == .fetch ? 3 : 1
    var span = span(place.span, job.span(of: stage), stage.rawValue, kind, began, ended)
    if stage == .fetch, let url = job.submission.url(of: job.target) {
      span.attributes = [OTLP.Attribute("server.address", url.host)]
    } else if stage == .decode, let time = job.timings.decode {
      // Decoding runs concurrently with the fetch, so the span's length is not its computing time.
      span.attributes = [OTLP.Attribute("imagefetch.decode.seconds", time.inSeconds)]
    }
    return span
  }

  private func span(
    _ parent: UInt64?, _ id: UInt64, _ name: String, _ kind: Int, _ began: Int64, _ ended: Int64
  ) -> OTLP.Span {
    OTLP.Span(
      traceId: place.trace, spanId: TraceContext.text(id),
      parentSpanId: parent.map(TraceContext.text), name: name, kind: kind,
      // The job's times come from the store's clock, which may be ahead of this machine's clock.
      startTimeUnixNano: "\(min(began, ended))", endTimeUnixNano: "\(ended)")
  }

  private var attributes: [OTLP.Attribute] {
    var all = [
      OTLP.Attribute("imagefetch.job.id", "\(job.id)"),
      OTLP.Attribute("imagefetch.job.phase", job.phase.rawValue),
      OTLP.Attribute("imagefetch.job.attempts", job.attempts),
      OTLP.Attribute("imagefetch.job.bytes", job.progress.completed),
    ]
    if job.owner != .anonymous { all.append(OTLP.Attribute("imagefetch.owner", job.owner.name)) }
    if let batch = job.batch { all.append(OTLP.Attribute("imagefetch.batch.id", "\(batch.id)")) }
    if let cache = job.cache {
      all.append(OTLP.Attribute("imagefetch.cache", cache.status.rawValue))
    }
    if let failure = job.failure {
      all.append(OTLP.Attribute("error.type", failure.code.rawValue))
    }
    return all
  }

  private func unixTime(_ moment: Timestamp) -> Int64 { moment.milliseconds * 1_000_000 }
}

extension Duration {
  /// The duration in whole nanoseconds; it must be shorter than 292 years.
  fileprivate var nanoseconds: Int64 {
    let (seconds, attoseconds) = components
    return seconds * 1_000_000_000 + attoseconds / 1_000_000_000
  }
}
