import Foundation
import Jobs
import TestSupport
import Testing

@Suite("Traces of jobs", .timeLimit(.minutes(15)))
struct TracingTests {
  /// A span in OTLP's JSON, parsed so strictly that everything a collector need not know is refused.
  struct Span {
    var resource, attributes: [String: String]
    var trace, id, name: String
    var parent: String?
    var kind: Int
    var start, end: UInt64
    var failure: String?

    /// Returns the spans in a request to `/v1/traces` (opentelemetry-proto 1, `ExportTraceServiceRequest`, in
    /// JSON).
    static func all(in request: ScriptedRequest) throws -> [Span] {
      #expect(request.method == "POST" && request.header("content-type") == "application/json")
      let body = try members(
        JSONSerialization.jsonObject(with: Data(request.content)), ["resourceSpans"])
      var spans: [Span] = []
      for group in try list(body["resourceSpans"]) {
        let group = try members(group, ["resource", "scopeSpans"])
        let resource = try attributes(of: members(group["resource"], ["attributes"]))
        for scoped in try list(group["scopeSpans"]) {
          let scoped = try members(scoped, ["scope", "spans"])
          let scope = try members(scoped["scope"], ["name", "version"])
          #expect(scope["name"] as? String == "imagefetch" && scope["version"] is String)
          spans += try list(scoped["spans"]).map { try Span($0, resource) }
        }
      }
      return spans
    }

    private init(_ json: Any, _ resource: [String: String]) throws {
      let span = try Self.members(
        json,
        [
          "traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano",
          "endTimeUnixNano", "attributes", "status",
        ])
      trace = try Self.hex(span["traceId"], 32)
      id = try Self.hex(span["spanId"], 16)
      parent = try span["parentSpanId"].map { try Self.hex($0, 16) }
      name = try #require(span["name"] as? String)
      kind = try #require(span["kind"] as? Int)
      #expect((1...5).contains(kind))
      start = try #require((span["startTimeUnixNano"] as? String).flatMap(UInt64.init))
      end = try #require((span["endTimeUnixNano"] as? String).flatMap(UInt64.init))
      #expect(start <= end && start > 1_700_000_000_000_000_000)
      attributes = try Self.attributes(of: span)
      self.resource = resource
      guard let status = span["status"] else { return }
      let told = try Self.members(status, ["message", "code"])
      #expect(told["code"] as? Int == 2)
      failure = try #require(told["message"] as? String)
    }

    private static func members(_ json: Any?, _ known: Set<String>) throws -> [String: Any] {
      let members = try #require(json as? [String: Any])
      #expect(known.isSuperset(of: members.keys), "\(members.keys)")
      return members
    }

    private static func list(_ json: Any?) throws -> [Any] {
      let list = try #require(json as? [Any])
      #expect(!list.isEmpty)
      return list
    }

    private static func hex(_ json: Any?, _ count: Int) throws -> String {
      let text = try #require(json as? String)
      #expect(text.count == count && text.allSatisfy { "0123456789abcdef".contains($0) }, "\(text)")
      #expect(text.contains { $0 != "0" })
      return text
    }

    private static func attributes(of json: [String: Any]) throws -> [String: String] {
      var all: [String: String] = [:]
      for one in json["attributes"] as? [Any] ?? [] {
        let one = try members(one, ["key", "value"])
        let value = try members(one["value"], ["stringValue", "intValue", "doubleValue"])
        #expect(value.count == 1)
        let key = try #require(one["key"] as? String)
        #expect(all[key] == nil, "\(key) is there once")
        if let whole = value["intValue"] { #expect((whole as? String).flatMap(Int.init) != nil) }
        if let number = value["doubleValue"] { #expect(number is Double) }
        all[key] = value.values.first.map { "\($0)" }
      }
      return all
    }
  }

  /// Runs the body with a service that sends traces to a collector.
  private static func withCollector(
    _ keys: [String: String] = [:], _ reply: @escaping @Sendable (ScriptedRequest) -> ScriptedReply,
    _ body: (RunningService, ScriptedOrigin, ScriptedOrigin) async throws -> Void
  ) async throws {
    let collector = try ScriptedOrigin(host: "127.0.0.2")
    defer { collector.stop() }
    collector.on("/v1/traces", reply)
    let keys = keys.merging(["tracing.endpoint": collector.url("")]) { $1 }
    try await withPipeline(keys) { service, origin in try await body(service, origin, collector) }
    try await readByOpenTelemetry(collector)
  }

  /// Checks all received traces with OpenTelemetry's own definitions: see Tests/Fixtures/read-otlp.py.
  private static func readByOpenTelemetry(_ collector: ScriptedOrigin) async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let requests = collector.requests(to: "/v1/traces")
    for (number, request) in requests.enumerated() {
      try Data(request.content).write(to: URL(filePath: "\(folder)/\(number).json"))
    }
    let output = try await Shell.run(
      """
      set -eu; exec 2>&1
      make --no-print-directory -s -C '\(Readme.root)' .build-checkers/installed >/dev/null
      '\(Readme.root).build-checkers/bin/python' '\(Readme.root)Tests/Fixtures/read-otlp.py' *.json
      echo passed
      """, in: folder)
    let names = try requests.flatMap(Span.all).map(\.name)
    #expect(!names.isEmpty)
    let read = output.split(separator: "\n").map(String.init)
    #expect(read.sorted() == (names + ["passed"]).sorted(), "\(output)")
  }

  private static func taken(_: ScriptedRequest) -> ScriptedReply {
    .ok(Array("{}".utf8), type: "application/json")
  }

  private static func spans(at collector: ScriptedOrigin) throws -> [Span] {
    try collector.requests(to: "/v1/traces").flatMap(Span.all)
  }

  /// Waits for spans of a trace and returns them.
  private static func spans(of trace: String, at collector: ScriptedOrigin) async throws -> [Span] {
    var found: [Span] = []
    try await eventually {
      found = try spans(at: collector).filter { $0.trace == trace }
      return !found.isEmpty
    }
    return found
  }

  private static func trace(_ job: String) -> String { job.replacing("-", with: "") }

  @Test("a job's stages are spans below the job's span, in its client's trace if there is one")
  func stages() async throws {
    try await Self.withCollector([:], Self.taken) { service, origin, collector in
      origin.on("/x", .ok(Fixtures.jpeg))
      origin.on("/put", .status(200))
      let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
      let id = try await service.post(
        [
          "url": origin.url("/x?token=told-to-nobody"), "deliver": [["put": origin.url("/put")]],
          "variants": [["width": 10, "format": "webp"]],
        ], headers: ["traceparent": "00-\(trace)-\(parent)-01"])
      #expect(try await service.outcome(id).phase == "success")
      let spans = try await Self.spans(of: trace, at: collector)
      let root = try #require(spans.first { $0.name == "job" })
      #expect(root.parent == parent && root.kind == 5 && root.failure == nil)
      #expect(root.attributes["imagefetch.job.id"] == id)
      #expect(root.attributes["imagefetch.job.phase"] == "success")
      #expect(root.attributes["imagefetch.cache"] == "miss")
      #expect(root.resource["service.name"] == "imagefetch")
      let stages = spans.filter { $0.name != "job" }
      #expect(
        Set(stages.map(\.name)) == ["queued", "fetch", "decode", "variants", "deliver", "store"])
      #expect(stages.count == 6 && Set(spans.map(\.id)).count == 7)
      for stage in stages {
        #expect(stage.parent == root.id && stage.end <= root.end, "\(stage.name)")
      }
      let fetch = try #require(stages.first { $0.name == "fetch" })
      #expect(fetch.kind == 3 && fetch.attributes["server.address"] == "127.0.0.1")
      let all = collector.requests.map { String(decoding: $0.content, as: UTF8.self) }.joined()
      #expect(!all.contains("told-to-nobody") && !all.contains("/x"))
      #expect(origin.requests.allSatisfy { $0.header("traceparent") == nil })
    }
  }

  @Test("failures, cancelled jobs and cache hits have spans with the job's id")
  func ends() async throws {
    try await Self.withCollector([:], Self.taken) { service, origin, collector in
      origin.on("/x", .ok(Fixtures.jpeg, headers: [("Cache-Control", "max-age=600")]))
      let gate = Gate()
      origin.on("/held", .held(Fixtures.jpeg, after: 10, by: gate))
      let failure = try await service.run(["url": origin.url("/none")])
      _ = try await service.run(["url": origin.url("/x")])
      let hit = try await service.run(["url": origin.url("/x")])
      let held = try await service.post(["url": origin.url("/held")])
      await origin.waitForRequests(to: "/held")
      try await service.cancel(held)
      gate.open()
      for (id, phase, cache) in [
        (failure.id, "failure", nil), (hit.id, "success", "hit"), (held, "cancelled", nil),
      ] {
        let spans = try await Self.spans(of: Self.trace(id), at: collector)
        let root = try #require(spans.first { $0.name == "job" })
        #expect(root.parent == nil && root.attributes["imagefetch.job.phase"] == phase)
        if let cache { #expect(root.attributes["imagefetch.cache"] == cache) }
        let code = phase == "failure" ? "origin_status" : nil
        #expect(root.failure == code && root.attributes["error.type"] == code)
      }
    }
  }

  @Test(
    "a job is traced if its client's trace is, or else by a share, and invalid fields are ignored")
  func sampling() async throws {
    try await Self.withCollector(["tracing.sample": "0"], Self.taken) {
      service, origin, collector in
      origin.on("/x", .ok(Fixtures.jpeg))
      let (id, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
      for field in [
        nil, "00-\(id)-\(parent)-00", "00-\(id)-0000000000000000-01", "00-\(id)-\(parent)-01-more",
        "ff-\(id)-\(parent)-01", "00-\(id.uppercased())-\(parent)-01", "00-\(id)", "",
      ] {
        let headers = field.map { ["traceparent": $0] } ?? [:]
        _ = try await service.outcome(
          service.post(["url": origin.url("/x"), "cache": "reload"], headers: headers))
      }
      let other = "5bf92f3577b34da6a3ce929d0e0e4736"
      let last = try await service.outcome(
        service.post(
          ["url": origin.url("/x"), "cache": "reload"],
          headers: ["traceparent": "00-\(other)-\(parent)-03"]))
      #expect(last.phase == "success")
      _ = try await Self.spans(of: other, at: collector)
      #expect(Set(try Self.spans(at: collector).map(\.trace)) == [other])
    }
  }

  @Test("traces are passed on to origins if configured, and survive a crash with the job")
  func passedOn() async throws {
    let collector = try ScriptedOrigin(host: "127.0.0.2")
    defer { collector.stop() }
    collector.on("/v1/traces", Self.taken)
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let gate = Gate()
    origin.on("/x", .held(Fixtures.jpeg, after: 10, by: gate))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = environment([
      "tracing.endpoint": collector.url(""), "tracing.propagate": "true",
    ])
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    let service = try await RunningService(folder: folder, settings: settings)
    let id = try await service.post(
      ["url": origin.url("/x")], headers: ["traceparent": "00-\(trace)-\(parent)-01"])
    await origin.waitForRequests(to: "/x")
    try await service.kill()
    gate.open()
    let next = try await RunningService(folder: folder, settings: settings)
    #expect(try await next.outcome(id).phase == "success")
    let spans = try await Self.spans(of: trace, at: collector)
    let root = try #require(spans.first { $0.name == "job" })
    let fetch = try #require(spans.first { $0.name == "fetch" })
    #expect(root.parent == parent)
    for request in origin.requests(to: "/x") {
      #expect(request.header("traceparent") == "00-\(trace)-\(fetch.id)-01")
    }
    #expect(try await next.stop() == 0)
    try await Self.readByOpenTelemetry(collector)
  }

  @Test("an unreachable, full or hanging collector delays no job, and lost spans are counted")
  func refused() async throws {
    for (reply, isCounted) in [(ScriptedReply.status(400), true), (.silent, false)] {
      try await Self.withCollector([:], { _ in reply }) { service, origin, collector in
        origin.on("/x", .ok(Fixtures.jpeg))
        for _ in 0..<20 {
          let job = try await service.run(["url": origin.url("/x"), "cache": "reload"])
          #expect(job.phase == "success")
        }
        await collector.waitForRequests(to: "/v1/traces")
        guard isCounted else { return }
        try await eventually {
          let text = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
          return text.contains(#/imagefetch_traces_total\{outcome="failed"\} [1-9]/#)
        }
        #expect(service.log.contains("failed to send traces to the collector"))
        #expect(!service.log.contains("v1/traces"))
      }
    }
  }

  @Test("the spans of the last jobs are sent before the process ends")
  func last() async throws {
    let collector = try ScriptedOrigin(host: "127.0.0.2")
    defer { collector.stop() }
    collector.on("/v1/traces", Self.taken)
    var id = ""
    try await withPipeline(["tracing.endpoint": collector.url("")]) { service, origin in
      id = try await service.run(["url": origin.url("/none")]).id
    }
    #expect(try Self.spans(at: collector).contains { $0.trace == Self.trace(id) })
    try await Self.readByOpenTelemetry(collector)
  }

  @Test("a stored trace context is read back, even of a later version")
  func context() {
    let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    #expect(TraceContext(traceparent: text)?.traceparent == text)
    #expect(TraceContext(traceparent: "01" + text.dropFirst(2) + "-more")?.traceparent == text)
    #expect(TraceContext(traceparent: text.dropLast() + "a")?.isSampled == false)
    for wrong in [
      "01" + text.dropFirst(2) + "more", text + "-", "0" + text, "é" + text.dropFirst(2),
    ] {
      #expect(TraceContext(traceparent: wrong) == nil, "\(wrong)")
    }
  }

  @Test("about the configured share of jobs is traced, and always the same jobs")
  func share() {
    let rules = TraceRules(share: 0.25, isPassedOn: false)
    let jobs = (0..<4_000).map { number in
      Job(
        id: JobID(at: Timestamp(milliseconds: 1_795_253_400_000 + Int64(number))),
        owner: .anonymous,
        submission: Submission(source: .local("x")), priority: .normal, tags: [],
        createdAt: Timestamp(milliseconds: 0))
    }
    let traced = jobs.filter { $0.trace(by: rules) != nil }
    #expect((800...1_200).contains(traced.count))
    #expect(traced.allSatisfy { $0.trace(by: rules) == $0.trace(by: rules) })
    #expect(jobs.allSatisfy { $0.trace(by: TraceRules(share: 1, isPassedOn: false)) != nil })
    #expect(jobs.allSatisfy { $0.trace(by: TraceRules(share: 0, isPassedOn: false)) == nil })
  }
}
