import API
import HTTP
import HTTPTypes
import Jobs
import Testing

@Suite("Every request")
struct ServiceTests {
  let client = Client()

  @Test("every request has an ID, the client's own if it is well-formed")
  func requestID() async {
    #expect(await client.get("/livez", [.requestID: "abc-1"]).fields[.requestID] == "abc-1")
    for bad in ["a b", "", String(repeating: "x", count: 129), "ü"] {
      let given = await client.get("/nowhere", [.requestID: bad])
      let id = given.fields[.requestID]
      #expect(id != bad)
      #expect(id?.utf8.count == 13)
      #expect(given.json?["request_id"]?.string == id)
    }
    var names: Set<String> = []
    for _ in 0..<1000 { names.insert(await client.get("/livez").fields[.requestID] ?? "") }
    #expect(names.count == 1000)
  }

  @Test(
    "a request to an unknown path is 404 with a problem",
    arguments: [
      "//", "/job", "/jobs/x/y", "/caches", "/cache/", "/network/x", "/jobsx", "*", "/livez/",
    ])
  func unknownPath(path: String) async {
    for method: HTTPRequest.Method in [.get, .post, .options] {
      let answer = await client.send(method, path)
      #expect(answer.status == 404)
      #expect(answer.code == "not_found")
      #expect(answer.fields[.contentType] == "application/problem+json")
    }
  }

  @Test("a request with an unsupported method is 405 with Allow")
  func wrongMethod() async throws {
    let id = try await client.submitted()
    for (method, path, allow): (HTTPRequest.Method, String, String) in [
      (.put, "/jobs", "GET, HEAD, POST, OPTIONS"),
      (.post, "/jobs/\(id)", "GET, HEAD, PATCH, DELETE, OPTIONS"),
      (.get, "/jobs/\(id)/fetch", "POST, OPTIONS"),
      (.post, "/cache", "GET, HEAD, DELETE, OPTIONS"),
      (.put, "/cache", "GET, HEAD, DELETE, OPTIONS"),
      (.delete, "/network", "GET, HEAD, PUT, OPTIONS"),
      (.post, "/network", "GET, HEAD, PUT, OPTIONS"),
      (.delete, "/jobs/\(id)/image", "GET, HEAD, OPTIONS"), (.post, "/livez", "GET, HEAD, OPTIONS"),
      (.init("BREW")!, "/metrics", "GET, HEAD, OPTIONS"),
    ] {
      let answer = await client.send(method, path)
      #expect(answer.status == 405)
      #expect(answer.fields[.allow] == allow)
      #expect(answer.code == "method_not_allowed")
      let options = await client.send(.options, path)
      #expect(options.status == 204)
      #expect(options.fields[.allow] == allow)
    }
  }

  @Test("HEAD works wherever GET does")
  func head() async throws {
    let id = try await client.submitted()
    for path in [
      "/jobs", "/jobs/\(id)", "/jobs/\(id)/image", "/cache", "/network", "/livez", "/readyz",
      "/metrics", "/openapi.yaml", "/",
    ] {
      let get = await client.get(path)
      let head = await client.send(.head, path)
      #expect(head.status == get.status)
      #expect(head.fields[.contentType] == get.fields[.contentType])
    }
  }

  @Test("readiness follows the service's state")
  func readiness() async {
    #expect(await client.get("/readyz").status == 200)
    for (state, code) in [
      (ServiceState.starting, "starting"), (.full, "storage_full"), (.draining, "draining"),
    ] {
      client.service.with { $0.state = state }
      let answer = await client.get("/readyz")
      #expect(answer.status == 503)
      #expect(answer.code == code)
      #expect(await client.get("/livez").status == 200)
    }
  }

  @Test("a request that the HTTP server refuses gets a problem too")
  func refusals() {
    for (refusal, status): (Refusal, Int) in [
      (.malformed(detail: "two lengths"), 400), (.targetTooLong(limit: 1), 414),
      (.headerTooLarge(limit: 1), 431), (.bodyTooLarge(limit: 1), 413),
      (.unknownTransferCoding, 501), (.unknownExpectation, 417),
    ] {
      let answer = Answer(client.routes.refuse(refusal, origin: nil))
      #expect(answer.status == status)
      #expect(answer.json?["status"] == .number(Double(status)))
      #expect(answer.fields[.requestID]?.isEmpty == false)
    }
  }
}

@Suite("CORS")
struct CrossOriginTests {
  let client = Client { $0.corsOrigins = ["https://app.example"] }

  @Test("an allowed origin may read the response and the exposed fields")
  func admits() async {
    let answer = await client.get("/livez", [.origin: "https://app.example"])
    #expect(answer.fields[.accessControlAllowOrigin] == "https://app.example")
    #expect(answer.fields[.vary] == "Origin")
    let exposed = answer.fields[.accessControlExposeHeaders] ?? ""
    for name in ["Location", "ETag", "Link", "Retry-After", "X-Request-Id"] {
      #expect(exposed.contains(name))
    }
  }

  @Test(
    "another origin may not read the response",
    arguments: ["https://evil.example", "null", "https://app.example.evil"])
  func refuses(origin: String) async {
    let answer = await client.get("/livez", [.origin: origin])
    #expect(answer.status == 200)
    #expect(answer.fields[.accessControlAllowOrigin] == nil)
    #expect(answer.fields[.vary] == "Origin")
  }

  @Test("an allowed origin may read the refusals of the HTTP server")
  func refusals() {
    for (origin, admitted) in [
      ("https://app.example", "https://app.example"), ("https://evil.example", nil), (nil, nil),
    ] {
      let answer = Answer(client.routes.refuse(.bodyTooLarge(limit: 1), origin: origin))
      #expect(answer.status == 413 && answer.fields[.vary] == "Origin")
      #expect(answer.fields[.accessControlAllowOrigin] == admitted)
    }
  }

  @Test("a preflight is answered without a token")
  func preflight() async {
    let client = Client {
      $0.corsOrigins = ["*"]
      $0.tokens = [.of("web", [.jobs])]
    }
    let fields: HTTPFields = [.origin: "https://x", .accessControlRequestMethod: "POST"]
    let answer = await client.send(.options, "/jobs", fields)
    #expect(answer.status == 204)
    #expect(answer.fields[.accessControlAllowOrigin] == "*")
    #expect(answer.fields[.accessControlAllowMethods] == "GET, HEAD, POST, OPTIONS")
    #expect(answer.fields[.accessControlAllowHeaders]?.contains("Authorization") == true)
    #expect(
      await client.get("/jobs", [.origin: "https://x"]).fields[.accessControlAllowOrigin] == "*")
  }

  @Test("without configured origins there are no CORS fields")
  func off() async {
    let answer = await Client().get("/livez", [.origin: "https://app.example"])
    #expect(answer.fields[.accessControlAllowOrigin] == nil)
    #expect(answer.fields[.vary] == nil)
  }
}
