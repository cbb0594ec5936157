import API
import HTTP
import HTTPTypes
import Jobs
import Testing

@Suite("POST /jobs")
struct SubmitTests {
  let client = Client()

  @Test("a URL is accepted with 202, Location and the job")
  func accepts() async throws {
    let answer = await client.post(#"{"url":"https://example.org/cat.jpg","tags":["avatars"]}"#)
    #expect(answer.status == 202)
    let id = try #require(answer.json?["id"]?.string)
    #expect(answer.fields[.location] == "/jobs/\(id)")
    #expect(answer.fields[.contentType] == "application/json")
    #expect(answer.json?["phase"] == .string("queued"))
    #expect(answer.json?["source"]?["url"] == .string("https://example.org/cat.jpg"))
    #expect(answer.json?["source"]?["low_data_url"] == .null)
    #expect(answer.json?["tags"] == .array([.string("avatars")]))
    #expect(answer.json?["priority"] == .string("normal"))
    #expect(answer.json?["links"]?["image"] == .string("/jobs/\(id)/image"))
  }

  @Test("every option reaches the engine")
  func keepsOptions() async throws {
    let json = """
      {"url":"https://a.example/x","low_data_url":"https://a.example/small",
       "alternatives":["http://b.example/"],"cache_key":"k","priority":"very_high","cache":"no-store",
       "integrity":"sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=","cache_ttl":0,
       "headers":{"Accept":" image/* ","X-Key":"1"},"timeout":1.5,"max_bytes":1e3,"max_pixels":4.0,
       "max_attempts":10,"retention":0.001,"tags":["a","ü"]}
      """
    let id = try await client.submitted(json, [.saveData: "on"])
    let job = try #require(client.service.with { $0.jobs[id] })
    let given = job.submission
    #expect(
      given.source
        == .url(SourceURL("https://a.example/x")!, lowData: SourceURL("https://a.example/small")))
    #expect(given.alternatives == [SourceURL("http://b.example/")!])
    #expect(given.cacheKey == "k")
    #expect(given.cacheMode == .noStore)
    #expect(given.cacheTTL == 0)
    #expect(
      given.integrity?.hex == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    #expect(
      given.headers == [
        HeaderField(name: "Accept", value: "image/*"), HeaderField(name: "X-Key", value: "1"),
      ])
    #expect(given.timeout == .milliseconds(1500))
    #expect(given.maxBytes == 1000)
    #expect(given.maxPixels == 4)
    #expect(given.maxAttempts == 10)
    #expect(given.retention == .milliseconds(1))
    #expect(given.savesData)
    #expect(job.priority == .veryHigh)
    #expect(job.tags == ["a", "ü"])
  }

  @Test(
    "a fraction of a second of cache_ttl is rounded up",
    arguments: [("0", 0), ("0.001", 1), ("1.5", 2), ("2.0", 2), ("3155760000", 3_155_760_000)])
  func roundsFreshness(seconds: String, kept: Int) async throws {
    let id = try await client.submitted("{\"url\":\"http://a/\",\"cache_ttl\":\(seconds)}")
    #expect(client.service.with { $0.jobs[id]?.submission.cacheTTL } == kept)
  }

  @Test("an array of jobs is answered in the order given")
  func acceptsBatch() async {
    let answer = await client.post(#"[{"url":"http://a.example/"},{"local":"x/y.png"}]"#)
    #expect(answer.status == 202)
    #expect(answer.json?["jobs"]?[0]?["source"]?["url"] == .string("http://a.example/"))
    #expect(answer.json?["jobs"]?[1]?["source"] == .object(["local": .string("x/y.png")]))
  }

  @Test("one wrong member refuses the whole array, and all wrong members are reported")
  func refusesBatchWhole() async {
    let answer = await client.post(
      #"[{"url":"http://a.example/"},{"url":"ftp://x"},{},{"url":"http://a/","tags":["ok",""],"x/~y":1},7]"#
    )
    #expect(answer.status == 422)
    #expect(
      answer.mistakes == [
        "/1/url invalid_url", "/2/url missing_url", "/3/tags/1 invalid_option",
        "/3/x~1~0y invalid_option", "/4 invalid_option",
      ])
    #expect(client.service.with { $0.jobs.isEmpty })
  }

  @Test("a wrong source is the only mistake if the other members match its kind")
  func toldAlone() async {
    let others =
      #""alternatives":["http://b/"],"cache_key":"k","headers":{"A":"1"},"low_data_url":"http://c/""#
    for (source, mistake) in [
      (#""url":"x","#, "/url invalid_url"), ("", "/url missing_url"),
    ] {
      #expect(await client.post("{\(source)\(others)}").mistakes == [mistake])
    }
    let local = await client.post(#"{"local":"../x","cache_key":"k"}"#)
    #expect(local.mistakes == ["/local invalid_local_name", "/cache_key invalid_option"])
  }

  @Test("a job without a source is missing_url")
  func needsSource() async {
    for json in ["{}", #"{"tags":[]}"#, #"{"url":null}"#, #"{"low_data_url":"http://a.example/"}"#]
    {
      let answer = await client.post(json)
      #expect(answer.status == 422)
      #expect(answer.code == "missing_url", "\(json)")
      #expect(answer.fields[.contentType] == "application/problem+json")
    }
  }

  @Test(
    "a wrong value is 422 at its place",
    arguments: [
      (#""url":5"#, "/url invalid_url"), (#""url":"""#, "/url invalid_url"),
      (#""url":"http://a\u0000b/""#, "/url invalid_url"), (#""url":"/x""#, "/url invalid_url"),
      (#""url":"http://u:p@a/""#, "/url invalid_url"),
      (#""url":"javascript:1""#, "/url invalid_url"),
      (#""low_data_url":"x""#, "/low_data_url invalid_url"),
      (#""local":"x""#, "/local invalid_option"),
      (#""alternatives":"x""#, "/alternatives invalid_option"),
      (#""alternatives":["http://a/",1]"#, "/alternatives/1 invalid_url"),
      (#""alternatives":["","","","","","","","",""]"#, "/alternatives invalid_option"),
      (#""integrity":"sha256-abc""#, "/integrity invalid_option"),
      (
        #""integrity":"sha512-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=""#,
        "/integrity invalid_option"
      ),
      (#""cache_key":"""#, "/cache_key invalid_option"),
      (#""cache_key":"a\nb""#, "/cache_key invalid_option"),
      (#""priority":"urgent""#, "/priority invalid_option"),
      (#""priority":null"#, "/priority invalid_option"),
      (#""cache":"never""#, "/cache invalid_option"),
      (#""cache_ttl":-1"#, "/cache_ttl invalid_option"),
      (#""cache_ttl":3155760000.5"#, "/cache_ttl invalid_option"),
      (#""timeout":0"#, "/timeout invalid_option"),
      (#""timeout":60.001"#, "/timeout invalid_option"),
      (#""timeout":1e999"#, "/timeout invalid_option"),
      (#""timeout":"5""#, "/timeout invalid_option"),
      (#""timeout":true"#, "/timeout invalid_option"),
      (#""max_bytes":33554433"#, "/max_bytes invalid_option"),
      (#""max_bytes":0"#, "/max_bytes invalid_option"),
      (#""max_bytes":9223372036854775808"#, "/max_bytes invalid_option"),
      (#""max_bytes":1.5"#, "/max_bytes invalid_option"),
      (#""max_pixels":50000001"#, "/max_pixels invalid_option"),
      (#""max_attempts":11"#, "/max_attempts invalid_option"),
      (#""max_attempts":0"#, "/max_attempts invalid_option"),
      (#""retention":0"#, "/retention invalid_option"),
      (#""retention":1e300"#, "/retention invalid_option"),
      (#""retention":31536000.001"#, "/retention invalid_option"),
      (#""tags":"a""#, "/tags invalid_option"), (#""tags":[1]"#, "/tags/0 invalid_option"),
      (#""tags":["\u0007"]"#, "/tags/0 invalid_option"),
      (
        #""tags":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]"#,
        "/tags invalid_option"
      ),
      (#""headers":[]"#, "/headers invalid_option"),
      (#""headers":{"Host":"x"}"#, "/headers/Host invalid_option"),
      (#""headers":{"content-length":"1"}"#, "/headers/content-length invalid_option"),
      (#""headers":{"RANGE":"bytes=0-"}"#, "/headers/RANGE invalid_option"),
      (#""headers":{"If-None-Match":"x"}"#, "/headers/If-None-Match invalid_option"),
      (#""headers":{"Connection":"x"}"#, "/headers/Connection invalid_option"),
      (#""headers":{"Transfer-Encoding":"x"}"#, "/headers/Transfer-Encoding invalid_option"),
      (#""headers":{"accept-Encoding":"gzip"}"#, "/headers/accept-Encoding invalid_option"),
      (#""headers":{"Proxy-Authorization":"x"}"#, "/headers/Proxy-Authorization invalid_option"),
      (#""headers":{"a b":"x"}"#, "/headers/a b invalid_option"),
      (#""headers":{"":"x"}"#, "/headers/ invalid_option"),
      (#""headers":{"A":"x\r\nB: y"}"#, "/headers/A invalid_option"),
      (#""headers":{"A":1}"#, "/headers/A invalid_option"),
      (#""headers":{"A":"1","a":"2"}"#, "/headers/a invalid_option"),
      (#""URL":1"#, "/URL invalid_option"),
    ])
  func refusesValue(member: String, mistake: String) async {
    let json =
      member.hasPrefix(#""url""#) ? "{\(member)}" : #"{"url":"http://a.example/",\#(member)}"#
    let answer = await client.post(json)
    #expect(answer.status == 422)
    #expect(answer.mistakes == [mistake])
    #expect(answer.code.map { mistake.hasSuffix($0) } == true)
    #expect(client.service.with { $0.jobs.isEmpty })
  }

  @Test("a URL with a user name gets a hint, but not in GET /image or a webhook")
  func userInURL() async {
    let hint = "Send user and password as headers.Authorization."
    let named = "https://anna:secret@example.org/a"
    for json in [
      #"{"url":"\#(named)"}"#, #"{"url":"https://a.example/","alternatives":["\#(named)"]}"#,
    ] {
      let answer = await client.post(json)
      #expect(answer.detail?.hasSuffix(hint) == true, "\(answer.text)")
      #expect(!answer.text.contains("secret"))
    }
    for url in ["https://", "example.org/@a", "https://a b/c@d", "anna@example.org"] {
      let answer = await client.post(#"{"url":"\#(url)"}"#)
      #expect(answer.code == "invalid_url" && !answer.text.contains(hint), "\(url)")
    }
    let notified = await client.post(
      #"{"url":"https://a.example/","notify":{"url":"\#(named)"}}"#)
    #expect(notified.code == "invalid_url" && !notified.text.contains(hint))
    let view = await Client { $0.view.isEnabled = true }.get("/image?url=\(named)")
    #expect(view.code == "invalid_url" && !view.text.contains(hint))
  }

  @Test("retention is limited by the configuration, also in lines and defaults of a batch")
  func boundsRetention() async throws {
    let client = Client { $0.limits.maxRetention = .seconds(60) }
    let id = try await client.submitted(#"{"url":"http://a/","retention":60}"#)
    #expect(client.service.with { $0.jobs[id]?.submission.retention } == .seconds(60))
    let refused = await client.post(#"{"url":"http://a/","retention":60.001}"#)
    #expect(refused.status == 422 && refused.mistakes == ["/retention invalid_option"])
    let lines = #"{"jobs":[{"url":"http://a/","retention":61}]}"#
    let batch = await client.post(lines, to: "/batches")
    #expect(batch.status == 202 && batch.json?["counts"]?["rejected"] == .number(1))
    let defaults = #"{"defaults":{"retention":61},"jobs":["http://a/"]}"#
    #expect(await client.post(defaults, to: "/batches").status == 422)
  }

  @Test("headers are limited in number and size")
  func boundsHeaders() async {
    let many = (0...64).map { #""h\#($0)":"""# }.joined(separator: ",")
    #expect(await client.post(#"{"url":"http://a/","headers":{\#(many)}}"#).status == 422)
    let long = String(repeating: "x", count: 8192)
    #expect(await client.post(#"{"url":"http://a/","headers":{"a":"\#(long)"}}"#).status == 422)
  }

  @Test(
    "a local name cannot leave its folder",
    arguments: ["", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", #"a\\b"#, #"a\u0000"#])
  func refusesLocalName(name: String) async {
    let answer = await client.post(#"{"local":"\#(name)"}"#)
    #expect(answer.status == 422)
    #expect(answer.code == "invalid_local_name")
  }

  @Test("local names that only the engine can refuse are reported with their places")
  func refusesEscapingNames() async {
    client.service.with { $0.outside = ["link.png"] }
    let one = await client.post(#"{"local":"link.png"}"#)
    #expect(one.status == 422)
    #expect(one.code == "invalid_local_name")
    #expect(one.mistakes == ["/local invalid_local_name"])
    let batch = await client.post(
      #"[{"local":"link.png"},{"local":"a.png"},{"local":"link.png"}]"#)
    #expect(batch.status == 422)
    #expect(batch.mistakes == ["/0/local invalid_local_name", "/2/local invalid_local_name"])
    #expect(await client.post(#"[{"local":"link.png"}]"#).mistakes.first?.hasPrefix("/0/") == true)
    #expect(client.service.with { $0.jobs.isEmpty })
  }

  @Test("every cache mode is accepted", arguments: CacheMode.allCases)
  func takesCacheModes(mode: CacheMode) async throws {
    let id = try await client.submitted(#"{"url":"http://a/","cache":"\#(mode.rawValue)"}"#)
    #expect(client.service.with { $0.jobs[id]?.submission.cacheMode } == mode)
    let local = try await client.submitted(#"{"local":"a","cache":"\#(mode.rawValue)"}"#)
    #expect(client.service.with { $0.jobs[local]?.submission.cacheMode } == mode)
  }

  @Test("Cache-Control and Pragma of a job's headers are sent like any field")
  func takesCacheFields() async throws {
    let id = try await client.submitted(
      #"{"url":"http://a/","headers":{"Cache-Control":"no-cache","Pragma":"no-cache"}}"#)
    let headers = client.service.with { $0.jobs[id]?.submission.headers }
    #expect(
      headers == [
        HeaderField(name: "Cache-Control", value: "no-cache"),
        HeaderField(name: "Pragma", value: "no-cache"),
      ])
  }

  @Test("local without sources.local_root is invalid_local_name")
  func needsLocalRoot() async {
    let answer = await Client { $0.hasLocalRoot = false }.post(#"{"local":"a.png"}"#)
    #expect(answer.mistakes == ["/local invalid_local_name"])
  }

  @Test(
    "malformed JSON is 400 with line and column",
    arguments: [
      "", "{", "nope", #"{"url":}"#, #"{"url":"a"} x"#, "[1,]", #"{"a":1,"a":2}"#,
      "{'url':'x'}", #"{"a":"\ud800"}"#, "[NaN]", "[01]", "[1.]", "[+1]", "{\"a\":\"\n\"}",
      String(repeating: "[", count: 17) + String(repeating: "]", count: 17),
    ])
  func refusesMalformed(json: String) async {
    let answer = await client.post(json)
    #expect(answer.status == 400)
    #expect(answer.code == "malformed_json")
    #expect(answer.json?["detail"]?.string?.hasPrefix("Line 1, column ") == true)
  }

  @Test("JSON that is not a job is 422", arguments: ["null", "1", #""x""#, "[]", "true"])
  func refusesOtherJSON(json: String) async {
    let answer = await client.post(json)
    #expect(answer.status == 422)
    #expect(answer.mistakes == [" invalid_option"])
  }

  @Test("an array above the limit is 413")
  func boundsBatch() async {
    let client = Client { $0.maxBatch = 3 }
    let one = #"{"url":"http://a/"}"#
    #expect(await client.post("[\(one),\(one),\(one)]").status == 202)
    let answer = await client.post("[\(one),\(one),\(one),\(one)]")
    #expect(answer.status == 413)
    #expect(answer.code == "body_too_large")
  }

  @Test("a small body can't become a large tree")
  func boundsValues() async {
    let many = "[" + String(repeating: "0,", count: 400_000) + "0]"
    #expect(await client.post(many).code == "body_too_large")
    let names = (0..<200).map { #""n\#($0)":0"# }.joined(separator: ",")
    #expect(await client.post("{\(names)}").code == "body_too_large")
  }

  @Test("the first hundred mistakes are reported")
  func boundsMistakes() async {
    let bad = Array(repeating: #"{"url":1}"#, count: 1000).joined(separator: ",")
    let answer = await client.post("[\(bad)]")
    #expect(answer.mistakes.count == 100)
    #expect(answer.json?["detail"]?.string?.contains("at least 99 more") == true)
  }

  @Test("a body above the limit is 413, by its declared or its actual length")
  func boundsBody() async {
    let client = Client { $0.maxBody = 100 }
    let long = #"{"url":"http://a/\#(String(repeating: "x", count: 100))"}"#
    #expect(await client.post(long).code == "body_too_large")
    let chunked = Request(
      method: .post, path: "/jobs", fields: [.contentType: "image/png"],
      body: .sending(Array(repeating: 0, count: 101), in: 50, declared: false))
    #expect(await client.routes.respond(to: chunked).status == .contentTooLarge)
  }

  @Test(
    "an unsupported media type is 415",
    arguments: [
      nil, "text/plain", "application/xml", "image", "application/jsonx", "*/*",
      "multipart/form-data",
    ])
  func refusesMediaType(type: String?) async {
    let answer = await client.send(
      .post, "/jobs", type.map { [.contentType: $0] } ?? [:], body: Array("{}".utf8))
    #expect(answer.status == 415)
    #expect(answer.code == "unsupported_media_type")
  }

  @Test("a compressed body is 415")
  func refusesCompressed() async {
    #expect(await client.post("{}", to: "/jobs", [.contentEncoding: "gzip"]).status == 415)
  }

  @Test("parameters of the media type are ignored for JSON")
  func acceptsCharset() async throws {
    _ = try await client.submitted(
      #"{"url":"http://a/"}"#, [.contentType: "Application/JSON; charset=\"utf-8\""])
  }

  @Test("a query with JSON is refused")
  func refusesQuery() async {
    let answer = await client.post(#"{"url":"http://a/"}"#, to: "/jobs?priority=high")
    #expect(answer.mistakes == ["priority invalid_option"])
  }

  @Test("a full queue is 503 with Retry-After")
  func queueFull() async {
    client.service.with { $0.capacity = 0 }
    let answer = await client.post(#"{"url":"http://a/"}"#)
    #expect(answer.status == 503)
    #expect(answer.code == "queue_full")
    #expect(answer.fields[.retryAfter].flatMap { Int($0) } != nil)
  }

  @Test("a draining service accepts no jobs")
  func draining() async throws {
    let id = try await client.submitted()
    client.service.with { $0.state = .draining }
    let batch = "/batches/\(id)"
    for target in [
      "/jobs", "/jobs/\(id)/fetch", "/batches", "\(batch)/lines?from=0", "\(batch)/retry",
    ] {
      let answer = await client.post("{}", to: target)
      #expect(answer.status == 503)
      #expect(answer.code == "draining")
      #expect(answer.fields[.retryAfter] != nil)
    }
    #expect(await client.get("/jobs/\(id)").status == 200)
  }

  @Test("a failing store is 503, and its error is only logged")
  func storeFails() async {
    client.service.with { $0.failure = .unavailable(detail: "secret path") }
    let answer = await client.post(#"{"url":"http://a/"}"#)
    #expect(answer.status == 503 && answer.code == "store_unavailable")
    #expect(answer.fields[.retryAfter] == "2")
    #expect(!answer.text.contains("secret"))
    client.service.with { $0.failure = .full }
    #expect(await client.post(#"{"url":"http://a/"}"#).code == "storage_full")
  }
}

@Suite("Submitting with wait", .timeLimit(.minutes(15)))
struct SubmitWaitTests {
  let client = Client()

  /// Finishes all jobs when that many exist.
  private func end(_ count: Int) async throws {
    try await eventually { client.service.with { $0.jobs.count } == count }
    for id in client.service.with({ Array($0.jobs.keys) }) {
      client.service.change(id) { _ = $0.cancel(at: $0.createdAt, keptFor: .seconds(9)) }
    }
  }

  @Test(
    "a submission with wait is 202 when the job has finished, in each form",
    arguments: [
      ("application/json", #"{"url":"http://a/"}"#), ("image/png", "bytes"),
      (
        "multipart/form-data; boundary=x",
        "--x\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\nbytes\r\n--x--\r\n"
      ),
    ])
  func one(type: String, body: String) async throws {
    async let answer = client.send(
      .post, "/jobs?wait=30", [.contentType: type], body: Array(body.utf8))
    try await end(1)
    let (status, id) = (await answer.status, await answer.json?["id"]?.string)
    #expect(status == 202)
    #expect(await answer.json?["phase"] == .string("cancelled"))
    #expect(await answer.fields[.location] == "/jobs/\(id ?? "")")
  }

  @Test("an array with wait is answered when all its jobs have finished, also if it is repeated")
  func batch() async throws {
    let body = #"[{"url":"http://a/"},{"url":"http://b/"},{"url":"http://c/"}]"#
    let fields: HTTPFields = [.prefer: "wait=30", .idempotencyKey: "k"]
    async let first = client.post(body, to: "/jobs", fields)
    try await eventually { client.service.with { $0.jobs.count } == 3 }
    async let again = client.post(body, to: "/jobs", fields)
    try await end(3)
    for answer in await [first, again] {
      #expect(answer.status == 202)
      #expect(answer.fields[.preferenceApplied] == "wait=30")
      let phases = answer.json?["jobs"]?.array?.map { $0["phase"]?.string }
      #expect(phases == ["cancelled", "cancelled", "cancelled"])
    }
    #expect(client.service.with { $0.jobs.count } == 3)
  }

  @Test("a submission with wait returns the current jobs when the time, at most the limit, is over")
  func isCut() async throws {
    let client = Client { $0.maxWait = .milliseconds(50) }
    let answer = await client.post(
      #"[{"url":"http://a/"},{"url":"http://b/"}]"#, to: "/jobs?wait=1e9")
    #expect(answer.status == 202)
    #expect(
      answer.json?["jobs"]?.array?.map { $0["phase"]?.string } == ["queued", "queued"])
    #expect(answer.fields[.preferenceApplied] == nil)
  }

  @Test("a submission stops waiting when its client disconnects")
  func leaves() async throws {
    let task = Task {
      await client.post(#"[{"url":"http://a/"},{"url":"http://b/"}]"#, to: "/jobs?wait=60")
    }
    try await eventually { client.service.with { $0.jobs.count } == 2 }
    task.cancel()
    let start = ContinuousClock.now
    _ = await task.value
    #expect(ContinuousClock.now - start < .seconds(30))
  }

  @Test(
    "a job that was deleted during the wait is gone, and one that can't be read has its last known state"
  )
  func forgotten() async throws {
    async let answer = client.post(#"{"url":"http://a/"}"#, to: "/jobs?wait=60")
    try await eventually { client.service.with { $0.jobs.count } == 1 }
    client.service.with { $0.jobs = [:] }
    #expect(await answer.status == 202)
    #expect(await answer.json?["phase"] == .string("gone"))
    async let other = client.post(#"{"url":"http://a/"}"#, to: "/jobs?wait=60")
    try await eventually { client.service.with { $0.jobs.count } == 1 }
    client.service.with { $0.failure = .unavailable(detail: "") }
    #expect(await other.status == 202)
    #expect(await other.json?["phase"] == .string("queued"))
  }

  @Test(
    "a malformed wait and any other query parameter are refused", arguments: ["wait=x", "x=1"])
  func refuses(query: String) async {
    let answer = await client.post(#"{"url":"http://a/"}"#, to: "/jobs?\(query)")
    #expect(answer.status == 422)
    #expect(client.service.with { $0.jobs.isEmpty })
  }
}

/// Retries until the condition holds, for at most a minute.
func eventually(_ condition: () async throws -> Bool) async throws {
  let deadline = ContinuousClock.now + .seconds(60)
  while try await !condition() {
    try #require(ContinuousClock.now < deadline, "waited too long")
    try await Task.sleep(for: .milliseconds(1))
  }
}

@Suite("Idempotency-Key")
struct IdempotencyTests {
  let client = Client()

  @Test("the same key with the same request returns the first job")
  func repeats() async throws {
    let first = try await client.submitted(#"{"url":"http://a/"}"#, [.idempotencyKey: "k"])
    let again = try await client.submitted(#"{"url":"http://a/"}"#, [.idempotencyKey: "k"])
    let other = try await client.submitted(#"{"url":"http://a/"}"#, [.idempotencyKey: "l"])
    #expect(first == again)
    #expect(first != other)
  }

  @Test("the same key with another body is 422")
  func refusesReuse() async throws {
    _ = try await client.submitted(#"{"url":"http://a/"}"#, [.idempotencyKey: "k"])
    let answer = await client.post(#"{"url":"http://b/"}"#, to: "/jobs", [.idempotencyKey: "k"])
    #expect(answer.status == 422)
    #expect(answer.mistakes == ["Idempotency-Key invalid_option"])
  }

  @Test("uploaded images are compared by their bytes and options")
  func countsCaptured() async {
    let fields: HTTPFields = [.idempotencyKey: "k", .contentType: "image/png"]
    let first = await client.send(.post, "/jobs?priority=low", fields, body: [1, 2])
    let again = await client.send(.post, "/jobs?priority=low", fields, body: [1, 2])
    #expect(first.json?["id"] == again.json?["id"])
    #expect(await client.send(.post, "/jobs?priority=low", fields, body: [1, 3]).status == 422)
    #expect(await client.send(.post, "/jobs?priority=high", fields, body: [1, 2]).status == 422)
  }

  @Test("a deleted job keeps its place in a repeated response, alone and in an array")
  func gone() async throws {
    let alone = try await client.submitted(#"{"url":"http://a/"}"#, [.idempotencyKey: "k"])
    _ = await client.send(.delete, "/jobs/\(alone)?purge=true")
    let answer = await client.post(#"{"url":"http://a/"}"#, to: "/jobs", [.idempotencyKey: "k"])
    #expect(answer.status == 202 && answer.fields[.location] == "/jobs/\(alone)")
    #expect(answer.text == #"{"id":"\#(alone)","phase":"gone"}"#)

    let batch = #"[{"url":"http://a/"},{"url":"http://b/"}]"#
    let first = await client.post(batch, to: "/jobs", [.idempotencyKey: "l"])
    let ids = (first.json?["jobs"]?.array ?? []).compactMap { $0["id"]?.string }
    _ = await client.send(.delete, "/jobs/\(ids[0])?purge=true")
    let again = await client.post(batch, to: "/jobs", [.idempotencyKey: "l"])
    #expect(again.status == 202)
    let jobs = again.json?["jobs"]?.array
    #expect(jobs?.map { $0["id"]?.string } == ids)
    #expect(jobs?.map { $0["phase"]?.string } == ["gone", "queued"])
  }

  @Test("a request with another wait is the same request")
  func waitsOtherwise() async throws {
    let fields: HTTPFields = [.idempotencyKey: "k", .contentType: "application/json"]
    let body = Array(#"{"url":"http://a/"}"#.utf8)
    var ids: [String] = []
    for target in ["/jobs", "/jobs?wait=0", "/jobs?wait=0.01"] {
      let answer = await client.send(.post, target, fields, body: body)
      ids.append(try #require(answer.json?["id"]?.string))
    }
    #expect(Set(ids).count == 1)
    let image: HTTPFields = [.idempotencyKey: "l", .contentType: "image/png"]
    let first = await client.send(.post, "/jobs?wait=0&tags=a", image, body: [1])
    let again = await client.send(.post, "/jobs?tags=a", image, body: [1])
    #expect(first.status == 202 && first.json?["id"] == again.json?["id"])
    #expect(await client.send(.post, "/jobs?tags=b&wait=0", image, body: [1]).status == 422)
  }

  @Test(
    "a key has 1 to 255 visible characters",
    arguments: ["", "a b", String(repeating: "k", count: 256)])
  func boundsKey(key: String) async {
    let answer = await client.post(#"{"url":"http://a/"}"#, to: "/jobs", [.idempotencyKey: key])
    #expect(answer.status == 422)
  }
}

extension HTTPField.Name {
  static let acceptPatch = Self("Accept-Patch")!
  static let idempotencyKey = Self("Idempotency-Key")!
  static let saveData = Self("Save-Data")!
  static let prefer = Self("Prefer")!
  static let preferenceApplied = Self("Preference-Applied")!
  static let requestID = Self("X-Request-Id")!
  static let cacheStatus = Self("Cache-Status")!
  static let link = Self("Link")!
}
