import API
import HTTPTypes
import Testing

@Suite("A service without tokens")
struct CrossSiteGuardTests {
  let local = Client { $0.allowedHosts = ["images.home"] }
  private static let host = HTTPField.Name("Host")!  // a token

  private func asked(for host: String?) -> HTTPFields { host.map { [Self.host: $0] } ?? [:] }

  @Test(
    "a service without tokens answers to local names with any port",
    arguments: [
      "localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:8080", "127.255.0.9:1", "[::1]",
      "[::1]:8080", "images.home", "Images.Home:443", "localhost:",
    ])
  func answersLocal(host: String) async {
    #expect(await local.get("/jobs", asked(for: host)).status == 200)
  }

  @Test(
    "a service without tokens refuses other names, which DNS rebinding could use",
    arguments: [
      nil, "", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "127.evil.example",
      "127.0.0.256", "127.0.0", "127.0.0.1.", "localhost.evil.example", "[::2]", "[::1", "[::1]x",
      "10.0.0.1", "128.0.0.1", "images.home.evil.example", ":8080", "localhost:80:80",
    ])
  func refusesForeignNames(host: String?) async {
    for path in ["/jobs", "/metrics", "/openapi.yaml", "/nowhere"] {
      let answer = await local.get(path, asked(for: host))
      #expect(answer.status == 403, "\(path)")
      #expect(answer.code == "forbidden")
      #expect(answer.json?["detail"]?.string?.contains("localhost only") == true)
    }
    #expect(await local.send(.options, "/jobs", asked(for: host)).status == 403)
    for path in ["/livez", "/readyz"] {
      #expect(await local.get(path, asked(for: host)).status == 200)
    }
  }

  @Test("a service without allowed hosts answers to any name")
  func answersAnyName() async {
    #expect(await Client().get("/jobs", asked(for: "images.example")).status == 200)
  }

  @Test(
    "a service without tokens refuses changes from pages of other origins",
    arguments: [
      "https://evil.example", "null", "http://images.example:8080", "https://images.example.evil",
      "", "http://images.example, http://images.example",
    ])
  func refusesForeignPages(origin: String) async {
    let client = Client { $0.corsOrigins = ["https://app.example"] }
    var fields = asked(for: "images.example")
    fields[.origin] = origin
    let job = "/jobs/0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88"
    for (method, path) in [
      (.post, "/jobs"), (.patch, job), (.delete, job), (.post, job + "/fetch"), (.put, "/jobs"),
      (.delete, "/cache"), (.put, "/network"),
    ] as [(HTTPRequest.Method, String)] {
      let answer = await client.send(method, path, fields)
      #expect(answer.status == 403, "\(method) \(path)")
      #expect(answer.code == "forbidden")
    }
    #expect(await client.get("/jobs", fields).status == 200)
    #expect(await client.send(.options, "/jobs", fields).status == 204)
    #expect(client.service.with { $0.jobs.isEmpty })
  }

  @Test(
    "a service without tokens accepts changes from its own pages and from allowed origins",
    arguments: ["http://images.example:8080", "https://Images.example:8080", "https://app.example"])
  func admitsKnownPages(origin: String) async throws {
    let client = Client { $0.corsOrigins = ["https://app.example"] }
    var fields = asked(for: "images.example:8080")
    fields[.origin] = origin
    _ = try await client.submitted(#"{"url":"http://a/"}"#, fields)
    let open = Client { $0.corsOrigins = ["*"] }
    fields[.origin] = "https://evil.example"
    _ = try await open.submitted(#"{"url":"http://a/"}"#, fields)
  }

  @Test("a service with tokens checks only the token")
  func leavesTokensAlone() async throws {
    let client = Client {
      $0.tokens = [.of("web", [.jobs])]
      $0.allowedHosts = []
    }
    var fields = asked(for: "images.example")
    fields[.origin] = "https://evil.example"
    fields[.authorization] = "Bearer web"
    _ = try await client.submitted(#"{"url":"http://a/"}"#, fields)
  }
}
