internal import Fetch
internal import Foundation
internal import Glibc
internal import Jobs
internal import Logging
internal import Metrics
internal import Synchronization

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
