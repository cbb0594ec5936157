import API
import HTTP
import HTTPTypes
import Jobs
import Synchronization
import Testing

/// Checks that each error in openapi.yaml can occur at the routes that list it.
@Suite("Errors that openapi.yaml describes")
struct DescribedErrorTests {
  private let contract: APIContract

  init() throws { contract = try APIContract() }

  @Test("each described error can occur at its routes, with the described response")
  func statuses() async throws {
    var count = 0
    var codes = try await Self.others()
    for (path, verb, responses) in operations {
      for status in responses.compactMap({ Int($0) }).filter({ $0 >= 400 }).sorted() {
        let asked = try await Asked(verb, path, for: status)
        let answer = await asked.answer()
        #expect(answer.status == status, "\(verb) \(path): \(status), not \(answer.text)")
        #expect(answer.status != status || answer.code != nil)
        if answer.status == status { try contract.check(answer, verb, path) }
        codes.insert(answer.code ?? "none")
        count += 1
      }
    }
    #expect(count > 200)
    let problem = contract.checker.document["components"]?["schemas"]?["Problem"]
    let told = try #require(problem?["properties"]?["code"]?["description"]?.string)
    #expect(codes == Set(told.matches(of: #/`(\w+)`/#).map { String($0.1) }))
  }

  /// Codes without a status of their own at a route, and codes that share a status with others.
  private static func others() async throws -> Set<String> {
    let client = Client()
    let done = try await client.succeeded()
    let cancelled = try await client.submitted()
    _ = await client.send(.delete, "/jobs/\(cancelled)")
    client.service.with { $0.outside = ["x"] }
    var answers = [await client.get("/jobs/\(cancelled)/image")]
    for body in ["{", "{}", #"{"url":"x"}"#, #"{"local":"x"}"#] {
      answers.append(await client.post(body))
    }
    for refusal in [Refusal.targetTooLong(limit: 1), .headerTooLarge(limit: 1)] {
      answers.append(Answer(client.routes.refuse(refusal, origin: nil)))
    }
    for state in [ServiceState.starting, .stuck, .full, .draining] {
      client.service.with { $0.state = state }
      answers.append(await client.get("/readyz"))
    }
    // In the engine's words.
    let refusals: [JobsError] = [
      .queueFull, .tooManyBatches, .tooManyMessages,
      .unrenderable(.unsupportedFormat(name: "GIF")),
      .unrenderable(.tooMuchMemory(bytes: 2, limit: 1)), .unrenderable(.crashed(how: "x")),
    ]
    for refusal in refusals {
      client.service.with { $0.refusal = refusal }
      answers.append(await client.get("/jobs/\(done)/image?width=5"))
    }
    for status in [405, 500] {
      answers.append(try await Asked(.get, "/jobs", for: status).answer())
    }
    return Set(answers.map { $0.code ?? "none" })
  }

  @Test("errors without a described status are problems too", arguments: [405, 500])
  func others(status: Int) async throws {
    for (path, verb, responses) in operations where responses.contains("default") {
      let isStored = responses.contains("503") && path != "/readyz" && path != "/network"
      guard status == 405 || isStored else { continue }
      let asked = try await Asked(verb, path, for: status)
      let answer = await asked.answer()
      #expect(answer.status == status, "\(verb) \(path): \(answer.text)")
      let schema = try #require(contract.checker.document["components"]?["schemas"]?["Problem"])
      #expect(contract.checker.mistakes(in: answer.json ?? .null, schema: schema) == [])
    }
  }

  private var operations: [(path: String, verb: HTTPRequest.Method, responses: Set<String>)] {
    contract.paths.sorted { $0.key < $1.key }.flatMap { path, item in
      [HTTPRequest.Method.get, .put, .post, .delete, .patch].compactMap { verb in
        item[verb.rawValue.lowercased()]?["responses"]?.object.map { (path, verb, Set($0.keys)) }
      }
    }
  }

  /// A request that must get a status, and the service that receives it.
  private struct Asked {
    private let client: Client
    private let verb: HTTPRequest.Method
    private var target: String
    private var fields: HTTPFields
    private var body: [UInt8]
    /// Replaces that.
    private var content: RequestBody?
    private var times = 1

    private static let unknown = "0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88"
    private static let ofAdmins: Set = [
      "/cache", "/network", "/metrics", "/activity", "/instances",
    ]
    private static let key = [UInt8](repeating: 1, count: 32)

    init(_ verb: HTTPRequest.Method, _ path: String, for status: Int) async throws {
      let isView = path == "/image"
      client = Client { configuration in
        configuration.view.isEnabled = !(isView && status == 404)
        configuration.maxWait = .milliseconds(1)
        if status == 401 || status == 403 && !isView {
          configuration.tokens = [.of("web", [.jobs]), .of("nobody", [])]
        }
        if status == 403 && isView {
          configuration.view.signatures = ViewSignature(keys: [Self.key])
        }
        if status == 413 { (configuration.maxBody, configuration.maxBatchLines) = (10_000, 1) }
        if status == 429 {
          configuration.rateLimit = RateLimit(requestsPerSecond: 0.001, burst: 20)
        }
      }
      // A media type that no route accepts.
      self.verb = status == 405 ? .trace : verb
      (target, fields, body) = Self.usual(verb, path)
      let id =
        switch status {
        case 401, 403: Self.unknown
        // The version of a job that can still be changed.
        case 412 where path == "/jobs/{id}" || path == "/jobs/{id}/fetch":
          try await client.submitted().description
        default: try await Self.subject(of: path, client)
        }
      try await change(path, to: status, of: id)
      target = target.replacing("{id}", with: id).replacing("{code}", with: "timeout")
    }

    func answer() async -> Answer {
      var answer = await ask()
      for _ in 1..<times { answer = await ask() }
      return answer
    }

    private func ask() async -> Answer {
      let parts = target.split(separator: "?", maxSplits: 1)
      let sent = content ?? .sending(body, in: .max)
      let request = Request(
        method: verb, path: String(parts[0]), query: parts.count > 1 ? String(parts[1]) : nil,
        fields: fields, remoteAddress: "192.0.2.9", body: sent)
      return Answer(await client.routes.respond(to: request))
    }

    /// A valid request, except for the image's bytes, which exist once a job has loaded one.
    private static func usual(
      _ verb: HTTPRequest.Method, _ path: String
    ) -> (String, HTTPFields, [UInt8]) {
      let json: HTTPFields = [.contentType: "application/json"]
      let of = "\(verb) \(path)"
      let form = "--x\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\nbytes\r\n--x--\r\n"
      let (type, body): (HTTPFields, String) =
        switch of {
        case "POST /jobs": (json, #"{"url":"http://a/"}"#)
        case "POST /jobs/batch": (json, #"[{"url":"http://a/"}]"#)
        case "POST /jobs/upload": ([.contentType: "image/png"], "bytes")
        case "POST /jobs/form": ([.contentType: "multipart/form-data; boundary=x"], form)
        case "POST /batches", "POST /batches/{id}/lines":
          ([.contentType: "application/x-ndjson"], "\"http://a/\"\n\"http://b/\"\n")
        case "POST /batches/{id}/retry": (json, #"{"codes":["timeout"]}"#)
        case "PATCH /jobs/{id}": (json, #"{"priority":"low"}"#)
        case "PUT /network": (json, #"{"constrained":true}"#)
        default: ([:], "")
        }
      let query =
        switch of {
        case "GET /image": "?url=http://a/"
        case "POST /batches": "?open=true"
        case "POST /batches/{id}/lines": "?from=1"
        default: ""
        }
      return (path + query, type, Array(body.utf8))
    }

    /// The job or batch in the path.
    private static func subject(of path: String, _ client: Client) async throws -> String {
      guard path.hasPrefix("/batches/") else { return try await client.succeeded([9]).description }
      let begun = await client.send(
        .post, "/batches?open=true", [.contentType: "application/x-ndjson"],
        body: Array("\"http://a/\"\n".utf8))
      return try #require(begun.json?["id"]?.string)
    }

    private mutating func change(_ path: String, to status: Int, of id: String) async throws {
      func add(_ member: String) { target += (target.contains("?") ? "&" : "?") + member }
      switch status {
      case 400:
        content = RequestBody(declaredLength: 100) { () throws(BodyError) in throw .disconnected }
      case 401, 405: break
      case 403 where path == "/image": add("expires=1&signature=x")
      case 403:
        fields[.authorization] = "Bearer " + (Self.ofAdmins.contains(path) ? "web" : "nobody")
      case 404:
        target = target.replacing("{id}", with: Self.unknown).replacing("{code}", with: "none")
      case 409 where path == "/batches": content = Self.cancelling(client)
      case 409: target = target.replacing("from=1", with: "from=7")
      case 410 where path == "/image":
        let job = try #require(await viewed())
        client.service.change(job) { $0.markImageEvicted() }
      case 410: client.service.change(try #require(JobID(id))) { $0.markImageEvicted() }
      case 412:
        if path == "/image" { _ = try #require(await viewed()) }
        fields[.ifMatch] = "\"12345678\""
      case 413: body = [UInt8](repeating: 0x20, count: 70_000) + body
      case 415: fields[.contentType] = "text/html"
      case 416:
        if path == "/image" { _ = try #require(await viewed()) }
        fields[.range] = "bytes=999-"
      case 422: add("unknown=1")
      case 429: times = 21
      case 500: fail(.unreadable(detail: "x"))
      case 502:
        client.service.with { $0.refusal = .unrenderable(.cutShort) }
        add("width=5")
      case 503 where path == "/readyz": client.service.with { $0.state = .draining }
      case 503: fail(.unavailable(detail: "x"))
      default: Issue.record("\(status) is described, but no request of this test causes it")
      }
    }

    /// Lets the store fail while nothing is in memory.
    private func fail(_ failure: StoreError) {
      client.service.with { ($0.failure, $0.remembers) = (failure, false) }
    }

    /// Lines of a batch that is cancelled while they arrive.
    private static func cancelling(_ client: Client) -> RequestBody {
      let rest = Rest()
      return RequestBody(declaredLength: nil) { () async throws(BodyError) in
        let (line, isLast) = rest.next()
        if isLast {
          let begun = await client.get("/batches").json?["batches"]?[0]?["id"]?.string
          _ = await client.send(.delete, "/batches/\(begun ?? "none")")
        }
        return line
      }
    }

    private final class Rest: Sendable {
      private let lines = Mutex(["\"http://a/\"\n", "\"http://b/\"\n"])

      /// Returns the next line and whether it is the last one; nil after that.
      func next() -> ([UInt8]?, Bool) {
        lines.withLock { lines in
          guard !lines.isEmpty else { return (nil, false) }
          return (Array(lines.removeFirst().utf8), lines.isEmpty)
        }
      }
    }

    /// The job of a `GET /image`, which has its image.
    private func viewed() async -> JobID? {
      _ = await client.send(verb, target, fields)
      guard let job = client.service.with({ $0.jobs.values.first { $0.owner == .view } }),
        let url = SourceURL("http://a/"),
        let image = try? await StoredImage.of([9], url: url)
      else { return nil }
      client.service.with { $0.images[image.digest] = [9] }
      client.service.change(job.id) { job in
        job.start(at: job.createdAt)
        job.succeed(with: image, cache: nil, at: job.createdAt, keptFor: .seconds(3600))
      }
      return job.id
    }
  }
}
