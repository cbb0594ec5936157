import API
import FoundationEssentials
import HTTP
import HTTPTypes
import Jobs
import Testing
import YAML

@Suite("openapi.yaml")
struct OpenAPITests {
  let contract: APIContract
  var checker: SchemaChecker { contract.checker }
  var paths: [String: JSON] { contract.paths }

  init() throws { contract = try APIContract() }

  @Test("openapi.yaml lists exactly the existing routes")
  func listsRoutes() {
    let verbs: Set = ["get", "put", "post", "delete", "options", "head", "patch", "trace"]
    let described = paths.mapValues { Set($0.object?.keys.filter(verbs.contains) ?? []) }
    let served = Dictionary(uniqueKeysWithValues: Routes.table.map { ($0.path, Set($0.methods)) })
    #expect(described == served)
  }

  @Test("the examples in openapi.yaml match their schemas")
  func examplesFit() throws {
    let examples = try #require(checker.document["components"]?["examples"]?.object)
    let schemas = try #require(checker.document["components"]?["schemas"])
    for (name, example) in examples {
      let schema = try #require(schemas[name] ?? schemas["Job"])
      #expect(checker.mistakes(in: example["value"] ?? .null, schema: schema) == [], "\(name)")
    }
    let responses = try #require(checker.document["components"]?["responses"]?.object)
    for (name, response) in responses {
      guard let content = response["content"]?.object?.values.first,
        let example = content["example"]
      else { continue }
      #expect(checker.mistakes(in: example, schema: content["schema"] ?? .null) == [], "\(name)")
    }
  }

  @Test("openapi.yaml lists the query parameters of GET /image")
  func listsViewMembers() throws {
    let members = try contract.parameters("/image", "get")
    #expect(Set(members) == Routes.viewParameters.union(["expires", "signature"]))
  }

  @Test(
    "the schemas refuse what the service refuses: empty cursors, and tags with control characters")
  func refuses() async throws {
    let client = Client()
    let list = try #require(paths["/jobs"]?["get"]?["parameters"]?.array)
    let cursor = try #require(list.first { $0["name"] == .string("cursor") }?["schema"])
    let id = String(repeating: "0aF", count: 10) + "00"
    for (text, isOne) in [("", false), ("x", false), (id, true), (id + "0", false)] {
      #expect(checker.mistakes(in: .string(text), schema: cursor).isEmpty == isOne)
      #expect(await client.get("/jobs?cursor=\(text)").status == (isOne ? 200 : 422))
    }
    let tags = try #require(checker.document["components"]?["schemas"]?["Tags"])
    for (tag, isOne) in [("a ü", true), ("\u{1}", false), ("a\u{7f}", false), ("\u{85}b", false)] {
      #expect(checker.mistakes(in: .array([.string(tag)]), schema: tags).isEmpty == isOne)
      let answer = await client.post(#"{"url":"http://a/","tags":["\#(tag.escapedForJSON)"]}"#)
      #expect(answer.status == (isOne ? 202 : 422))
      #expect(answer.mistakes == (isOne ? [] : ["/tags/0 invalid_option"]))
    }
  }

  @Test("openapi.yaml describes the responses")
  func describesAnswers() async throws {
    let client = Client { $0.maxBatch = 2 }
    let pending = try await client.submitted(
      #"{"url":"http://a/","low_data_url":"http://b/","tags":["x"]}"#)
    let done = try await client.succeeded()
    let failed = try await client.submitted(#"{"local":"x"}"#)
    client.service.change(failed) { job in
      job.start(at: job.createdAt)
      job.fail(.fetch(.timeout(seconds: 1)), at: job.createdAt, keptFor: .seconds(1))
    }
    let cancelled = try await client.submitted()
    _ = await client.send(.delete, "/jobs/\(cancelled)")
    let lost = try await client.succeeded([9])
    client.service.change(lost) { $0.markImageEvicted() }

    let retried = try await client.submitted()
    client.service.change(retried) { job in
      job.start(at: job.createdAt)
      job.retry(after: .storageFull, from: .regular, notBefore: job.createdAt)
    }
    let now = client.service.now()
    client.service.with { $0.waiting = WaitingFor(.retry, origin: "http://a", until: now) }
    let known: HTTPFields = [.contentType: "application/json", .idempotencyKey: "k"]
    let batch = await client.post(
      #"[{"url":"http://a/"},{"url":"http://b/"}]"#, to: "/jobs", known)
    let gone = batch.json?["jobs"]?[0]?["id"]?.string ?? ""
    _ = await client.send(.delete, "/jobs/\(gone)?purge=true")

    let json: HTTPFields = [.contentType: "application/json"]
    let png: HTTPFields = [.contentType: "image/png"]
    let form: HTTPFields = [.contentType: "multipart/form-data; boundary=x"]
    let stale: HTTPFields = [.contentType: "application/json", .ifMatch: "\"99\""]
    let unknown = "0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88"
    let asked: [(HTTPRequest.Method, String, String, HTTPFields, String)] = [
      (.post, "/jobs", "/jobs", json, #"{"url":"http://a/"}"#),
      // `POST /jobs` also accepts the other forms; their own paths describe them.
      (.post, "/jobs/batch", "/jobs", json, #"[{"url":"http://a/"}]"#),
      (.post, "/jobs", "/jobs", png, "bytes"), (.post, "/jobs", "/jobs", json, "{"),
      (.post, "/jobs", "/jobs", json, "{}"),
      (.post, "/jobs", "/jobs", json, #"[{},{"x":1,"url":2}]"#),
      (.post, "/jobs", "/jobs", json, "[{},{},{}]"), (.post, "/jobs", "/jobs", [:], ""),
      (.post, "/jobs", "/jobs?x=1", json, "{}"),
      (.post, "/jobs", "/jobs?wait=0", json, #"{"url":"http://a/"}"#),
      (.post, "/jobs/batch", "/jobs", known, #"[{"url":"http://a/"},{"url":"http://b/"}]"#),
      (.post, "/jobs/batch", "/jobs/batch", json, #"[{"url":"http://a/"}]"#),
      (.post, "/jobs/batch", "/jobs/batch", json, #"{"url":"http://a/"}"#),
      (.post, "/jobs/batch", "/jobs/batch", [:], ""),
      (.post, "/jobs/upload", "/jobs/upload?tags=a", png, "bytes"),
      (.post, "/jobs/upload", "/jobs/upload", json, "{}"),
      (.post, "/jobs/form", "/jobs/form", form, Self.form),
      (.post, "/jobs/form", "/jobs/form", form, "none"),
      (.get, "/jobs/{id}", "/jobs/none", [:], ""),
      (.get, "/jobs/{id}", "/jobs/\(retried)", [:], ""), (.get, "/jobs", "/jobs?limit=2", [:], ""),
      (.get, "/jobs", "/jobs", [:], ""), (.get, "/jobs", "/jobs?limit=x", [:], ""),
      (.get, "/jobs/{id}", "/jobs/\(pending)", [:], ""),
      (.get, "/jobs/{id}", "/jobs/\(done)", [:], ""),
      (.get, "/jobs/{id}", "/jobs/\(failed)", [:], ""),
      (.get, "/jobs/{id}", "/jobs/\(unknown)", [:], ""),
      (.get, "/jobs/{id}", "/jobs/\(pending)", [.ifNoneMatch: "*"], ""),
      (.get, "/jobs/{id}/events", "/jobs/\(pending)/events", [:], ""),
      (.get, "/jobs/{id}/events", "/jobs/\(pending)/events?x=1", [:], ""),
      (.get, "/jobs/{id}/events", "/jobs/\(unknown)/events", [:], ""),
      (.get, "/jobs/{id}/events", "/jobs/\(done)/events", [.init("Last-Event-ID")!: "3"], ""),
      (.get, "/events", "/events", [:], ""), (.get, "/events", "/events?phase=x", [:], ""),
      (.patch, "/jobs/{id}", "/jobs/\(pending)", json, #"{"priority":"low"}"#),
      (.patch, "/jobs/{id}", "/jobs/\(pending)", json, #"{"id":1}"#),
      (.patch, "/jobs/{id}", "/jobs/\(pending)", [:], ""),
      (.get, "/jobs/{id}/image", "/jobs/\(pending)/image", [:], ""),
      (.get, "/jobs/{id}/image", "/jobs/\(failed)/image", [:], ""),
      (.get, "/jobs/{id}/image", "/jobs/\(cancelled)/image", [:], ""),
      (.get, "/jobs/{id}/image", "/jobs/\(lost)/image", [:], ""),
      (.get, "/jobs/{id}/image", "/jobs/\(done)/image", [.range: "bytes=999-"], ""),
      (.get, "/jobs/{id}/preview", "/jobs/\(pending)/preview", [:], ""),
      (.get, "/jobs/{id}/preview", "/jobs/\(failed)/preview", [:], ""),
      (.get, "/jobs/{id}/preview", "/jobs/\(lost)/preview", [:], ""),
      (.get, "/jobs/{id}/preview", "/jobs/\(done)/preview", [.range: "bytes=999-"], ""),
      (.get, "/jobs/{id}/preview", "/jobs/\(done)/preview?width=5", [:], ""),
      (.get, "/jobs/{id}/preview", "/jobs/\(unknown)/preview", [:], ""),
      (.get, "/jobs/{id}/image", "/jobs/\(done)/image?width=0", [:], ""),
      (.post, "/jobs/{id}/fetch", "/jobs/\(failed)/fetch", [:], ""),
      (.patch, "/jobs/{id}", "/jobs/\(pending)", stale, #"{"priority":"low"}"#),
      (.delete, "/jobs/{id}", "/jobs/\(pending)", stale, ""),
      (.post, "/jobs/{id}/fetch", "/jobs/\(pending)/fetch", stale, ""),
      (.delete, "/jobs/{id}", "/jobs/\(pending)", [:], ""),
      (.delete, "/jobs/{id}", "/jobs/\(pending)?purge=true", [:], ""),
      (.get, "/cache", "/cache", [:], ""), (.get, "/cache", "/cache?x=1", [:], ""),
      (.delete, "/cache", "/cache?url=http://a/", [:], ""),
      (.delete, "/cache", "/cache", [:], ""), (.delete, "/cache", "/cache?url=x", [:], ""),
      (.get, "/network", "/network", [:], ""), (.get, "/network", "/network?x=1", [:], ""),
      (.put, "/network", "/network", json, #"{"constrained":true}"#),
      (.put, "/network", "/network", json, "{}"), (.put, "/network", "/network", json, "{"),
      (.put, "/network", "/network", [:], ""),
      (.put, "/network", "/network", json, "[\(String(repeating: " ", count: 70_000))]"),
      (.get, "/livez", "/livez", [:], ""), (.get, "/readyz", "/readyz", [:], ""),
      (.get, "/", "/", [:], ""), (.get, "/", "/", [.ifNoneMatch: "*"], ""),
      (.get, "/", "/?x=1", [:], ""), (.get, "/openapi.json", "/openapi.json", [:], ""),
      (.get, "/problems/", "/problems/", [:], ""), (.get, "/problems/", "/problems?x=1", [:], ""),
      (.get, "/problems/", "/problems", [.ifNoneMatch: "*"], ""),
      (.get, "/problems/", "/problems", [.accept: "application/json"], ""),
      (.get, "/problems/{code}", "/problems/none", [.accept: "text/html"], ""),
      (.get, "/problems/{code}", "/problems/timeout", [:], ""),
      (.get, "/problems/{code}", "/problems/timeout", [.ifNoneMatch: "*"], ""),
      (.get, "/problems/{code}", "/problems/none", [:], ""),
      (.get, "/problems/{code}", "/problems/timeout?x=1", [:], ""),
    ]
    for (method, path, target, fields, body) in asked {
      let answer = await client.send(method, target, fields, body: Array(body.utf8))
      try contract.check(answer, method, path)
    }
    try await checkBatches(client)
    let refusals: [JobsError] = [
      .renderingsFull, .imageGone, .unrenderable(.unsupportedFormat(name: "GIF")),
      .unrenderable(.tooMuchMemory(bytes: 2, limit: 1)), .unrenderable(.cutShort),
    ]
    for refusal in refusals {
      client.service.with { $0.refusal = refusal }
      try contract.check(await client.get("/jobs/\(done)/image?width=5"), .get, "/jobs/{id}/image")
    }
    client.service.with { $0.state = .draining }
    try contract.check(await client.get("/readyz"), .get, "/readyz")
    try contract.check(await client.post("{}"), .post, "/jobs")
  }

  private func checkBatches(_ client: Client) async throws {
    let lines: HTTPFields = [.contentType: "application/x-ndjson", .idempotencyKey: "list"]
    let list: HTTPFields = [.contentType: "application/json"]
    let begun = await client.send(
      .post, "/batches?open=true&name=a&tag=b", lines, body: Array("\"http://a/\"\nx\n".utf8))
    try contract.check(begun, .post, "/batches")
    let id = try #require(begun.json?["id"]?.string)
    let unknown = "0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88"
    let asked: [(HTTPRequest.Method, String, String, HTTPFields, String)] = [
      (.post, "/batches", "/batches?open=true&name=a&tag=b", lines, ""),
      (.post, "/batches", "/batches?x=1", lines, ""), (.post, "/batches", "/batches", [:], "x"),
      (.post, "/batches", "/batches", list, "x"), (.get, "/batches", "/batches?limit=1", [:], ""),
      (.get, "/batches", "/batches?state=x", [:], ""),
      (.get, "/batches/{id}", "/batches/\(id)", [:], ""),
      (.get, "/batches/{id}", "/batches/\(id)", [.ifNoneMatch: "*"], ""),
      (.get, "/batches/{id}", "/batches/\(unknown)", [:], ""),
      (.get, "/batches/{id}", "/batches/\(id)?x=1", [:], ""),
      (.post, "/batches/{id}/lines", "/batches/\(id)/lines?from=2", list, #"{"jobs":[]}"#),
      (.post, "/batches/{id}/lines", "/batches/\(id)/lines?from=1", list, #"{"jobs":[]}"#),
      (.post, "/batches/{id}/lines", "/batches/\(id)/lines", list, #"{"jobs":[]}"#),
      (.post, "/batches/{id}/lines", "/batches/\(id)/lines?from=2", list, "["),
      (.get, "/batches/{id}/results", "/batches/\(id)/results", [:], ""),
      (.get, "/batches/{id}/results", "/batches/\(id)/results?phase=queued", [:], ""),
      (.get, "/batches/{id}/results", "/batches/\(unknown)/results", [:], ""),
      (.post, "/batches/{id}/close", "/batches/\(id)/close", [:], ""),
      (.post, "/batches/{id}/close", "/batches/\(unknown)/close", [:], ""),
      (.post, "/batches/{id}/retry", "/batches/\(id)/retry", [:], ""),
      (.post, "/batches/{id}/retry", "/batches/\(id)/retry", list, #"{"codes":["timeout"]}"#),
      (.post, "/batches/{id}/retry", "/batches/\(id)/retry", list, #"{"codes":["x"]}"#),
      (.post, "/batches/{id}/retry", "/batches/\(id)/retry", lines, "x"),
      (.post, "/batches/{id}/retry", "/batches/\(unknown)/retry", [:], ""),
      (.get, "/batches/{id}/events", "/batches/\(id)/events", [:], ""),
      (.get, "/batches/{id}/events", "/batches/\(unknown)/events", [:], ""),
      (.get, "/jobs", "/jobs?batch=\(id)&host=a&code=timeout&since=2026-01-01T00:00:00Z", [:], ""),
      (.get, "/jobs", "/jobs?code=x", [:], ""),
    ]
    for (method, path, target, fields, body) in asked {
      let answer = await client.send(method, target, fields, body: Array(body.utf8))
      try contract.check(answer, method, path)
    }
    for target in ["/batches/\(id)", "/batches/\(id)?purge=true", "/batches/\(id)"] {
      try contract.check(await client.send(.delete, target), .delete, "/batches/{id}")
    }
    let gone = await client.send(.post, "/batches?open=true&name=a&tag=b", lines)
    #expect(gone.json?["state"] == .string("gone"))
    try contract.check(gone, .post, "/batches")
  }

  /// A form with an image and options.
  private static let form = """
    --x\r
    Content-Disposition: form-data; name="image"; filename="a.png"\r
    \r
    bytes\r
    --x\r
    Content-Disposition: form-data; name="options"\r
    \r
    {"tags":["a"]}\r
    --x--\r

    """

  @Test("openapi.yaml describes the response to a request without a token")
  func describesRefusals() async throws {
    let client = Client {
      $0.tokens = [.of("web", [.jobs])]
      $0.rateLimit = RateLimit(requestsPerSecond: 0.001, burst: 3)
    }
    let web: HTTPFields = [.authorization: "Bearer web"]
    try contract.check(await client.get("/jobs"), .get, "/jobs")
    try contract.check(await client.get("/metrics", web), .get, "/metrics")
    try contract.check(await client.get("/activity", web), .get, "/activity")
    try contract.check(await client.get("/instances", web), .get, "/instances")
    try contract.check(await client.send(.delete, "/cache"), .delete, "/cache")
    try contract.check(await client.send(.put, "/network"), .put, "/network")
    for _ in 0..<3 { try contract.check(await client.get("/jobs", web), .get, "/jobs") }
    #expect(await client.get("/jobs", web).status == 429)
  }
}

extension String {
  /// The text with each control character escaped as JSON requires.
  fileprivate var escapedForJSON: String {
    unicodeScalars.map { scalar in
      let isControl = scalar.value < 0x20
      return isControl
        ? "\\u00\(scalar.value < 16 ? "0" : "")\(String(scalar.value, radix: 16))" : String(scalar)
    }.joined()
  }
}
