import API
import HTTPTypes
import Jobs
import Testing

@Suite("/cache")
struct CacheRouteTests {
  let client = Client()

  @Test("GET /cache returns the size and the hits of the cache")
  func counts() async {
    client.service.with { kept in
      kept.counts.entries = 12
      kept.counts.bytes = 3_400_000
      kept.counts.memoryBytes = 1_000_000
      kept.counts.hits = 40
      kept.counts.revalidations = 2
      kept.counts.misses = 14
    }
    let answer = await client.get("/cache")
    #expect(answer.status == 200)
    #expect(answer.fields[.contentType] == "application/json")
    #expect(
      answer.text == """
        {"entries":12,"bytes":3400000,"memory_bytes":1000000,"hits":40,"revalidations":2,"misses":14}
        """)
    #expect(await client.get("/cache?url=http://a/").mistakes == ["url invalid_option"])
  }

  @Test("DELETE /cache clears everything or one URL")
  func drops() async throws {
    client.service.with { $0.counts.entries = 12 }
    let one = await client.send(.delete, "/cache?url=http%3A%2F%2Fa%2Fx%3Fy%3D1")
    #expect(one.status == 200)
    #expect(one.text == #"{"removed":1}"#)
    let all = await client.send(.delete, "/cache")
    #expect(all.status == 200)
    #expect(all.text == #"{"removed":12}"#)
    #expect(client.service.with { $0.dropped } == [SourceURL("http://a/x?y=1"), nil])
  }

  @Test(
    "a DELETE with a mistake does not change the cache",
    arguments: [
      ("url=", "url invalid_url"), ("url=x", "url invalid_url"), ("url", "url invalid_url"),
      ("url=ftp://a/", "url invalid_url"), ("url=http://u@a/", "url invalid_url"),
      ("url=http://a/&url=http://b/", "url invalid_option"), ("all=true", "all invalid_option"),
      ("URL=http://a/", "URL invalid_option"), ("url=%zz", "url=%zz invalid_option"),
    ])
  func refuses(query: String, mistake: String) async {
    let answer = await client.send(.delete, "/cache?\(query)")
    #expect(answer.status == 422)
    #expect(answer.mistakes == [mistake])
    #expect(client.service.with { $0.dropped.isEmpty })
  }

  @Test("a failing store is a 5xx")
  func fails() async {
    client.service.with { $0.failure = .unavailable(detail: "disk") }
    #expect(await client.get("/cache").status == 503)
    let answer = await client.send(.delete, "/cache")
    #expect(answer.code == "store_unavailable")
    #expect(!answer.text.contains("disk"))
  }
}

@Suite("/network")
struct NetworkTests {
  let client = Client()

  private func put(_ json: String, type: String? = "application/json") async -> Answer {
    let fields: HTTPFields = type.map { [.contentType: $0] } ?? [:]
    return await client.send(.put, "/network", fields, body: Array(json.utf8))
  }

  @Test("the network state can be set and read")
  func changes() async {
    #expect(await client.get("/network").text == #"{"constrained":false}"#)
    for word in ["true", "true", "false"] {
      let answer = await put("{\"constrained\": \(word)}", type: "application/json; charset=utf-8")
      #expect(answer.status == 200)
      #expect(answer.text == "{\"constrained\":\(word)}")
      #expect(await client.get("/network").text == answer.text)
    }
  }

  @Test(
    "a PUT with a mistake does not change the network state",
    arguments: [
      ("{}", 422, ["/constrained invalid_option"]), ("[]", 422, [" invalid_option"]),
      ("true", 422, [" invalid_option"]),
      (#"{"constrained":1}"#, 422, ["/constrained invalid_option"]),
      (#"{"constrained":null}"#, 422, ["/constrained invalid_option"]),
      (#"{"constrained":false,"x":1}"#, 422, ["/x invalid_option"]),
      (
        #"{"Constrained":false}"#, 422,
        ["/Constrained invalid_option", "/constrained invalid_option"]
      ),
      ("", 400, []), ("{", 400, []), (#"{"constrained":false,"constrained":true}"#, 400, []),
      (#"{"constrained":"\#(String(repeating: "x", count: 70_000))"}"#, 413, []),
    ])
  func refuses(json: String, status: Int, mistakes: [String]) async throws {
    try await client.service.setConstrained(true)
    let answer = await put(json)
    #expect(answer.status == status)
    #expect(answer.mistakes == mistakes)
    #expect(client.service.isConstrained)
  }

  @Test(
    "PUT /network accepts only JSON",
    arguments: ["text/plain", "application/merge-patch+json", nil] as [String?])
  func refusesType(type: String?) async {
    let answer = await put(#"{"constrained":true}"#, type: type)
    #expect(answer.status == 415)
    #expect(answer.code == "unsupported_media_type")
    #expect(!client.service.isConstrained)
  }

  @Test("/network refuses a query and a compressed body")
  func refusesOthers() async {
    #expect(await client.get("/network?x=1").mistakes == ["x invalid_option"])
    let fields: HTTPFields = [.contentType: "application/json", .contentEncoding: "gzip"]
    #expect(await client.send(.put, "/network", fields, body: [0x1F]).status == 415)
    #expect(await client.send(.put, "/network?constrained=true", fields).status == 422)
  }
}
