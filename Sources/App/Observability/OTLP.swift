internal import Fetch
internal import Foundation
internal import Glibc
internal import Jobs
internal import Logging
internal import Metrics
internal import Synchronization

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

/// Sends the traces of jobs to a collector, by OTLP over HTTP as JSON.
///
/// `recordEnd(of:stages:)` is called with each finished job, on any thread. It queues the job, or counts it as dropped if
/// the queue is full. Once a second, one task converts the queued jobs to spans and sends them. Jobs never wait for this.
final class TraceExporter: JobTracer {
  /// The data of a finished job that spans are made from.
  struct FinishedJob: Sendable {
    let job: Job
    let place: TraceContext
    let stages: [JobStage]
    /// When the job finished, in nanoseconds since the Unix epoch.
    let nanoseconds: Int64
  }

  private let rules: TraceRules
  private let url: SourceURL
  private let resource: [OTLP.Attribute]
  private let sender: CurlSender
  private let log: Logger
  private let waiting = Mutex<[FinishedJob]>([])
  private let isRefused = Mutex(false)
  private let counters = (
    sent: TraceExporter.counter("sent"), dropped: TraceExporter.counter("dropped"),
    failed: TraceExporter.counter("failed")
  )

  /// The maximum number of queued jobs, and of jobs per request.
  private static let (mostWaiting, mostAtOnce) = (2048, 256)
  private static let tries = 3

  /// - Parameters:
  ///   - endpoint: the collector's URL without a path.
  ///   - name: the instance's name.
  init(
    to endpoint: SourceURL, rules: TraceRules, name: String, by sender: CurlSender, log: Logger
  ) {
    // An origin followed by a path is always a valid URL.
    url = SourceURL(endpoint.origin + "/v1/traces")!
    self.rules = rules
    self.sender = sender
    self.log = log
    resource = [
      OTLP.Attribute("service.name", "imagefetch"),
      OTLP.Attribute("service.version", App.version),
      OTLP.Attribute("service.instance.id", name),
    ]
    for counter in [counters.sent, counters.dropped, counters.failed] { counter.increment(by: 0) }
  }

  private static func counter(_ outcome: String) -> Counter {
    Counter(label: "imagefetch_traces_total", dimensions: [("outcome", outcome)])
  }

  func recordEnd(of job: Job, stages: [JobStage]) {
    guard let place = job.trace(by: rules) else { return }
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    let nanoseconds = Int64(now.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec)
    let isTaken = waiting.withLock { waiting in
      guard waiting.count < Self.mostWaiting else { return false }
      waiting.append(FinishedJob(job: job, place: place, stages: stages, nanoseconds: nanoseconds))
      return true
    }
    if !isTaken { counters.dropped.increment() }
  }

  /// Sends queued traces every second until the task is cancelled, then sends the rest once.
  func run() async {
    while (try? await Task.sleep(for: .seconds(1))) != nil { await sendAll(tries: Self.tries) }
    // A detached task, because requests of a cancelled task are cancelled at once.
    await Task.detached { await self.sendAll(tries: 1) }.value
  }

  private func sendAll(tries: Int) async {
    while !Task.isCancelled {
      let some = waiting.withLock { waiting in
        let some = Array(waiting.prefix(Self.mostAtOnce))
        waiting.removeFirst(some.count)
        return some
      }
      guard !some.isEmpty else { return }
      let isTaken = await send(some, tries)
      if !isTaken, Task.isCancelled {
        // The final attempt in `run` sends these traces again.
        waiting.withLock { $0.insert(contentsOf: some, at: 0) }
        return
      }
      (isTaken ? counters.sent : counters.failed).increment(by: Int64(some.count))
      // Traces that were queued in the meantime are sent in the next second.
      if !isTaken { return }
    }
  }

  private func send(_ ended: [FinishedJob], _ tries: Int) async -> Bool {
    guard let body = try? JSONEncoder().encode(OTLP.Request(ended, resource)) else { return false }
    let request = OutgoingRequest(
      .post, url, fields: [HeaderField(name: "Content-Type", value: "application/json")],
      content: OutgoingContent(Array(body)), timeout: .seconds(tries > 1 ? 10 : 2), maxBytes: 65_536
    )
    for number in 1...tries {
      let refusal: String
      do throws(FetchError) {
        let response = try await sender.send(request)
        let status = response.status
        // Read the body to its end, so that the connection can be reused.
        while try await response.body.next() != nil {}
        if (200..<300).contains(status) {
          logChange(refusal: nil)
          return true
        }
        refusal = "the collector responded with status \(status)"
        // OTLP/HTTP, "Retryable Response Codes".
        if ![429, 502, 503, 504].contains(status) {
          logChange(refusal: refusal)
          return false
        }
      } catch { refusal = "\(error)" }
      logChange(refusal: refusal)
      if number < tries { try? await Task.sleep(for: .seconds(number)) }
    }
    return false
  }

  /// Logs when the collector starts to refuse traces, and when it accepts them again.
  private func logChange(refusal: String?) {
    let was = isRefused.withLock { isRefused in
      defer { isRefused = refusal != nil }
      return isRefused
    }
    if let refusal, !was {
      log.warning("failed to send traces to the collector", metadata: ["error": "\(refusal)"])
    } else if refusal == nil, was {
      log.notice("the collector accepts traces again")
    }
  }
}
