import API
import HTTPTypes
import Jobs
import Testing

@Suite("Limits of a token")
struct OwnerLimitTests {
  private let client = Client {
    var low = Token.of("low", [.jobs])
    low.limits.maxPriority = .low
    var slow = Token.of("slow", [.jobs])
    slow.rateLimit = RateLimit(requestsPerSecond: 0.5, burst: 2)
    $0.tokens = [low, slow, .of("web", [.jobs])]
  }
  private let low: HTTPFields = [.authorization: "Bearer low"]

  @Test("a job's priority cannot exceed its token's, neither at first nor by a change")
  func priority() async throws {
    let answer = await client.post(#"{"url": "https://a.example/", "priority": "normal"}"#, low)
    #expect(answer.status == 422 && answer.code == "invalid_option")
    #expect(
      await client.post(#"{"url": "https://a.example/"}"#, low).json?["priority"]?.string == "low")
    let plain = #"{"url": "https://a.example/", "priority": "very_low"}"#
    let made = await client.post(plain, low)
    #expect(made.json?["priority"]?.string == "very_low")
    var fields = low
    fields[.contentType] = "application/merge-patch+json"
    let path = "/jobs/" + (made.json?["id"]?.string ?? "")
    let high = await client.send(.patch, path, fields, body: Array(#"{"priority":"high"}"#.utf8))
    #expect(high.status == 422)
    let usual = await client.send(.patch, path, fields, body: Array(#"{"priority":null}"#.utf8))
    #expect(usual.json?["priority"]?.string == "low")
    let web = await client.post(
      #"{"url": "https://a.example/", "priority": "very_high"}"#, [.authorization: "Bearer web"])
    #expect(web.status == 202)
  }

  @Test("a batch's jobs get at most the token's priority by default", arguments: ["ndjson", "csv"])
  func lines(type: String) async throws {
    var fields = low
    fields[.contentType] = type == "csv" ? "text/csv" : "application/x-ndjson"
    let text = type == "csv" ? "url\nhttps://a.example/\n" : "\"https://a.example/\"\n"
    #expect(await client.send(.post, "/batches", fields, body: Array(text.utf8)).status == 202)
    #expect(client.service.with { $0.jobs.values.map(\.priority) } == [.low])
  }

  @Test("a token can have its own rate limit, which the responses show")
  func rate() async {
    let slow: HTTPFields = [.authorization: "Bearer slow"]
    let first = await client.get("/jobs", slow)
    #expect(first.status == 200)
    #expect(first.fields[.init("RateLimit-Policy")!] == #""requests";q=2;w=4"#)
    #expect(first.fields[.init("RateLimit")!] == #""requests";r=1;t=2"#)
    #expect(await client.get("/jobs", slow).status == 200)
    let late = await client.get("/jobs", slow)
    #expect(late.status == 429 && late.fields[.init("RateLimit")!] == #""requests";r=0;t=4"#)
    let other = await client.get("/jobs", [.authorization: "Bearer web"])
    #expect(other.status == 200 && other.fields[.init("RateLimit")!] == nil)
  }

  @Test("a token's limits end when it is replaced")
  func replaced() async {
    client.routes.replaceTokens([.of("new", [.jobs])])
    #expect(await client.get("/jobs", low).status == 401)
    #expect(await client.get("/jobs", [.authorization: "Bearer new"]).status == 200)
  }
}

@Suite("Proxies that are trusted")
struct TrustedProxyTests {
  @Test(
    "the client behind trusted proxies is the last address that is not a proxy's",
    arguments: [
      ("10.0.0.1", "X-Forwarded-For", "203.0.113.7", "203.0.113.7"),
      ("10.0.0.1", "X-Forwarded-For", "198.51.100.1, 203.0.113.7", "203.0.113.7"),
      ("10.0.0.1", "X-Forwarded-For", "203.0.113.7, 10.0.0.2", "203.0.113.7"),
      ("10.0.0.1", "X-Forwarded-For", "203.0.113.7:4711", "203.0.113.7"),
      ("10.0.0.1", "X-Forwarded-For", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
      ("10.0.0.1", "X-Forwarded-For", "203.0.113.7, nonsense", "10.0.0.1"),
      ("10.0.0.1", "X-Forwarded-For", "", "10.0.0.1"),
      ("10.0.0.1", "Forwarded", "for=203.0.113.7", "203.0.113.7"),
      ("10.0.0.1", "Forwarded", "proto=https; For=\"[2001:db8::7]:4711\";by=x", "2001:db8::7"),
      ("10.0.0.1", "Forwarded", "for=\"198.51.100.1\", for=203.0.113.7", "203.0.113.7"),
      ("10.0.0.1", "Forwarded", "for=unknown", "10.0.0.1"),
      ("10.0.0.1", "Forwarded", "for=_hidden, for=203.0.113.7;host=\"a,b;c\"", "203.0.113.7"),
      ("192.0.2.9", "X-Forwarded-For", "203.0.113.7", "192.0.2.9"),
      ("192.0.2.9", "Forwarded", "for=203.0.113.7", "192.0.2.9"),
    ])
  func client(remote: String, name: String, value: String, expected: String) async {
    let client = Client {
      $0.rateLimit = RateLimit(requestsPerSecond: 0.001, burst: 1)
      $0.isTrustedProxy = { $0.hasPrefix("10.") }
    }
    let told: HTTPFields = [.init(name)!: value]
    #expect(await client.send(.get, "/jobs", told, from: remote).status == 200)
    // Which client did the request count for?
    #expect(await client.send(.get, "/jobs", from: expected).status == 429)
    #expect(await client.send(.get, "/jobs", from: "192.0.2.200").status == 200)
  }

  @Test(
    "if the two forwarding fields differ, the proxy counts as the client",
    arguments: [
      ("for=198.51.100.1", "203.0.113.7", "10.0.0.1"),
      ("for=203.0.113.7", "198.51.100.1", "10.0.0.1"),
      ("for=unknown", "203.0.113.7", "10.0.0.1"), ("for=203.0.113.7", "", "10.0.0.1"),
      ("", "203.0.113.7", "10.0.0.1"), ("proto=https", "203.0.113.7", "10.0.0.1"),
      ("for=203.0.113.7", "203.0.113.7", "203.0.113.7"),
      ("for=\"203.0.113.7:4711\"", "198.51.100.1, 203.0.113.7", "203.0.113.7"),
    ])
  func both(forwarded: String, forwardedFor: String, expected: String) async {
    let fields: HTTPFields = [
      .init("Forwarded")!: forwarded, .init("X-Forwarded-For")!: forwardedFor,
    ]
    let client = Client {
      $0.rateLimit = RateLimit(requestsPerSecond: 0.001, burst: 1)
      $0.isTrustedProxy = { $0.hasPrefix("10.") }
    }
    #expect(await client.send(.get, "/jobs", fields, from: "10.0.0.1").status == 200)
    #expect(await client.send(.get, "/jobs", from: expected).status == 429)
    for other in ["10.0.0.1", "203.0.113.7", "198.51.100.1"] where other != expected {
      #expect(await client.send(.get, "/jobs", from: other).status == 200, "\(other)")
    }
  }
}
