import API
import Digests
import HTTP
import HTTPTypes
import Jobs
import Testing

extension Token {
  /// A token whose secret is the name of its owner.
  static func of(_ name: String, _ scopes: Set<Scope>) -> Token {
    let digest = ImageDigest(bytes: SHA256.hash(data: Array(name.utf8)))!  // 32 bytes
    return Token(owner: Owner(name), digest: digest, scopes: scopes)
  }
}

@Suite("Tokens")
struct AccessTests {
  let client = Client { configuration in
    configuration.tokens = [
      .of("web", [.jobs]), .of("other", [.jobs]), .of("root", [.admin]), .of("none", []),
    ]
  }

  private func bearer(_ secret: String) -> HTTPFields { [.authorization: "Bearer \(secret)"] }

  @Test(
    "a request without a valid token is 401 at every path that needs one",
    arguments: [
      "", "Bearer", "Bearer ", "Bearer wrong", "Basic web", "Bearer WEB", "Bearer web, Bearer web",
      "web",
    ])
  func unauthorized(field: String) async {
    let fields: HTTPFields = field.isEmpty ? [:] : [.authorization: field]
    for path in [
      "/jobs", "/jobs/0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88", "/metrics", "/cache", "/network",
      "/nowhere",
    ] {
      let answer = await client.get(path, fields)
      #expect(answer.status == 401, "\(path)")
      #expect(answer.code == "unauthorized")
      let challenge = answer.fields[.wwwAuthenticate]
      #expect(challenge?.hasPrefix("Bearer realm=") == true)
      // Without a token there is no `error` (RFC 6750 section 3.1).
      let isToken = field.hasPrefix("Bearer ") && field != "Bearer "
      #expect(challenge?.contains("invalid_token") == isToken, "\(field)")
    }
    for path in [
      "/livez", "/readyz", "/openapi.yaml", "/openapi.json", "/problems/timeout", "/problems/", "/",
    ] {
      #expect(await client.get(path, fields).status == 200)
    }
    #expect(await client.post("{}", to: "/jobs", fields).status == 401)
  }

  @Test("a request whose token lacks the scope is 403")
  func forbidden() async {
    for (secret, path) in [("web", "/metrics"), ("none", "/jobs"), ("none", "/metrics")] {
      let answer = await client.get(path, bearer(secret))
      #expect(answer.status == 403)
      #expect(answer.code == "forbidden")
      #expect(answer.fields[.wwwAuthenticate]?.contains("insufficient_scope") == true)
    }
    for path in ["/metrics", "/activity", "/instances", "/cache", "/network"] {
      #expect(await client.get(path, bearer("web")).status == 403)
      #expect(await client.get(path, bearer("root")).status == 200)
    }
    #expect(await client.send(.delete, "/cache", bearer("web")).status == 403)
    #expect(await client.send(.put, "/network", bearer("web")).status == 403)
    #expect(client.service.with { $0.dropped.isEmpty })
    #expect(await client.get("/jobs", [.authorization: "bearer  web"]).status == 200)
  }

  @Test("the metrics need no token if the configuration makes them public")
  func publicMetrics() async {
    let client = Client {
      $0.tokens = [.of("web", [.jobs])]
      $0.publicMetrics = true
    }
    let answer = await client.get("/metrics")
    #expect(answer.status == 200)
    #expect(answer.fields[.contentType] == "text/plain; version=0.0.4; charset=utf-8")
    #expect(answer.text == "imagefetch_jobs 1\n")
  }

  @Test("another owner's job is unknown; an admin sees it")
  func ownership() async throws {
    let id = try await client.submitted(#"{"url":"http://a/"}"#, bearer("web"))
    for (secret, status) in [("web", 200), ("other", 404), ("root", 200)] {
      #expect(await client.get("/jobs/\(id)", bearer(secret)).status == status)
      #expect(
        await client.get("/jobs/\(id)/image", bearer(secret)).status == (status == 200 ? 202 : 404))
    }
    #expect(await client.send(.delete, "/jobs/\(id)", bearer("other")).status == 404)
    #expect(await client.send(.post, "/jobs/\(id)/fetch", bearer("other")).status == 404)
    #expect(await client.get("/jobs", bearer("other")).json?["jobs"] == .array([]))
    #expect(await client.get("/jobs", bearer("root")).json?["jobs"]?.array?.count == 1)
    #expect(await client.get("/jobs", bearer("web")).json?["jobs"]?.array?.count == 1)
  }

  @Test("owners can use the same idempotency key independently")
  func keysAreOwned() async throws {
    var web = bearer("web")
    web[.idempotencyKey] = "k"
    var other = bearer("other")
    other[.idempotencyKey] = "k"
    let first = try await client.submitted(#"{"url":"http://a/"}"#, web)
    let second = try await client.submitted(#"{"url":"http://b/"}"#, other)
    #expect(first != second)
  }
}

@Suite("The rate limit")
struct RateLimitTests {
  @Test(
    "a request above the rate limit is 429 with Retry-After, separately for each token and address")
  func limits() async {
    let client = Client {
      $0.tokens = [.of("web", [.jobs]), .of("other", [.jobs])]
      $0.rateLimit = RateLimit(requestsPerSecond: 0.01, burst: 2)
    }
    let web: HTTPFields = [.authorization: "Bearer web"]
    #expect(await client.get("/jobs", web).status == 200)
    #expect(await client.get("/jobs", web).status == 200)
    let answer = await client.get("/jobs", web)
    #expect(answer.status == 429)
    #expect(answer.code == "rate_limited")
    #expect(answer.fields[.retryAfter] == "100")
    #expect(await client.get("/jobs", [.authorization: "Bearer other"]).status == 200)
    #expect(await client.get("/livez", web).status == 200)
  }

  @Test("the rate of wrong tokens is limited by address")
  func limitsGuessing() async {
    let client = Client {
      $0.tokens = [.of("web", [.jobs])]
      $0.rateLimit = RateLimit(requestsPerSecond: 0.01, burst: 1)
    }
    let wrong: HTTPFields = [.authorization: "Bearer x"]
    #expect(await client.send(.get, "/jobs", wrong, from: "192.0.2.1").status == 401)
    #expect(await client.send(.get, "/jobs", wrong, from: "192.0.2.1").status == 429)
    #expect(await client.send(.get, "/jobs", wrong, from: "192.0.2.2").status == 401)
    #expect(await client.send(.get, "/jobs", wrong, from: "2001:db8::1").status == 401)
    #expect(await client.send(.get, "/jobs", wrong, from: "2001:db8::2").status == 429)
    #expect(await client.send(.get, "/jobs", wrong, from: "2001:db8:0:1::2").status == 401)
  }
}
