import FoundationEssentials
import HTTP
import HTTPTypes
import Jobs
import TestSupport
import Testing

@testable import API

@Suite("Batches")
struct BatchTests {
  /// A batch in each format: two jobs with an invalid line between them.
  enum Form: String, CaseIterable {
    case ndjson, uris, plain, csv, json

    var type: String {
      switch self {
      case .ndjson: "application/x-ndjson"
      case .uris: "text/uri-list"
      case .plain: "text/plain; charset=utf-8"
      case .csv: "text/csv"
      case .json: "application/json"
      }
    }

    var text: String {
      switch self {
      case .ndjson: "\"http://a/1\"\n\n{\"url\":\"http://a/2\",\"priority\":\"low\"}\nnone\n"
      case .uris: "http://a/1\r\n# two\r\n http://a/2 \r\nnone"
      case .plain: "http://a/1\n\nhttp://a/2\nnone\n"
      case .csv: "url,priority\nhttp://a/1,\n\"http://a/2\",\"low\"\nnone,\n"
      case .json:
        #"{"defaults":{"tags":["x"]},"jobs":["http://a/1",{"url":"http://a/2"},"none"]}"#
      }
    }

    /// The line numbers of the jobs and of the invalid line.
    var lines: [Int] {
      switch self {
      case .ndjson, .uris, .plain: [1, 3, 4]
      case .csv: [2, 3, 4]
      case .json: [1, 2, 3]
      }
    }
  }

  private func send(
    _ client: Client, _ target: String, _ text: String, _ type: String = "text/uri-list",
    pieces: Int = .max, key: String? = nil
  ) async -> Answer {
    var fields: HTTPFields = [.contentType: type]
    fields[.idempotencyKey] = key
    return await client.send(.post, target, fields, body: Array(text.utf8), pieces: pieces)
  }

  @Test(
    "batches are read in each format, in pieces of any size", arguments: Form.allCases,
    [1, 7, .max])
  func forms(form: Form, pieces: Int) async throws {
    let client = Client()
    let answer = await send(client, "/batches", form.text, form.type, pieces: pieces)
    #expect(answer.status == 202)
    let id = try #require(answer.json?["id"]?.string)
    #expect(answer.fields[.location] == "/batches/\(id)")
    #expect(answer.json?["state"] == .string("running"))
    #expect(answer.json?["received"]?.number == Double(form.lines[2]))
    #expect(answer.json?["counts"]?["queued"] == .number(2))
    #expect(answer.json?["counts"]?["rejected"] == .number(1))
    let jobs = await client.get("/jobs").json?["jobs"]?.array?.reversed() ?? []
    #expect(jobs.compactMap { $0["source"]?["url"]?.string } == ["http://a/1", "http://a/2"])
    #expect(jobs.compactMap { $0["batch"]?["line"]?.number } == form.lines[..<2].map(Double.init))
    #expect(jobs.allSatisfy { $0["batch"]?["id"] == .string(id) })
    let results = await client.lines("/batches/\(id)/results")
    #expect(results.map { $0["phase"]?.string } == ["rejected"])
    #expect(results.first?["line"]?.number == Double(form.lines[2]))
  }

  @Test("a line gets the batch's defaults and tag, and its own members replace the defaults")
  func defaults() async throws {
    let client = Client()
    let defaults = "%7B%22priority%22:%22low%22,%22tags%22:%5B%22a%22%5D,%22timeout%22:5%7D"
    let text = "\"http://a/\"\n{\"url\":\"http://b/\",\"priority\":\"high\",\"tags\":[\"c\"]}\n"
    let answer = await send(
      client, "/batches?defaults=\(defaults)&tag=t&name=n", text, "application/x-ndjson")
    #expect(answer.json?["name"] == .string("n"))
    #expect(answer.json?["tags"] == .array([.string("t")]))
    let jobs = client.service.with { Array($0.jobs.values) }.sorted { $0.id < $1.id }
    #expect(jobs.map(\.priority) == [.low, .high])
    #expect(jobs.map(\.tags) == [["a", "t"], ["c", "t"]])
    #expect(jobs.map(\.submission.timeout) == [.seconds(5), .seconds(5)])
  }

  @Test("a line gets the batch's tag if its own tag has the same characters in another encoding")
  func encodedTag() async throws {
    let client = Client()
    let line = #"{"url":"http://a/","tags":["nai\u0308ve"]}"#
    _ = await send(client, "/batches?tag=na%C3%AFve", line, "application/x-ndjson")
    let job = try #require(client.service.with { $0.jobs.values.first })
    #expect(
      job.tags.map { Array($0.utf8) } == [Array("nai\u{308}ve".utf8), Array("na\u{EF}ve".utf8)])
  }

  @Test("a mistake in the defaults names the query parameter and the place within it")
  func wrongPlaces() async {
    let client = Client()
    // The defaults are {"deliver":[{"to":"x"}],"tags":[1]}
    let defaults = "%7B%22deliver%22:%5B%7B%22to%22:%22x%22%7D%5D,%22tags%22:%5B1%5D%7D"
    let answer = await send(client, "/batches?defaults=\(defaults)", "http://a/")
    #expect(answer.mistakes == ["defaults invalid_option", "defaults invalid_option"])
    let errors = answer.json?["errors"]?.array ?? []
    #expect(errors.allSatisfy { $0["parameter"] == .string("defaults") })
    #expect(
      errors.first?["detail"]
        == .string("/deliver/0/to: There is no destination of this name."))
    #expect(errors.last?["detail"]?.string?.hasPrefix("/tags/0: A tag must have") == true)
  }

  @Test("a CSV column may have arrays and objects as JSON")
  func columns() async throws {
    let client = Client()
    let table = """
      url,tags,deliver,notify
      http://a/,"[""b"", ""c""]","[{""put"": ""https://d/e""}]","{""url"": ""https://f/""}"

      """
    let answer = await send(client, "/batches", table, "text/csv")
    #expect(answer.json?["counts"]?["queued"] == .number(1), "\(answer.text)")
    let job = try #require(client.service.with { $0.jobs.values.first })
    #expect(job.tags == ["b", "c"] && job.submission.deliveries.count == 1)
    #expect(job.submission.webhook?.url.string == "https://f/")
  }

  @Test(
    "a CSV table may begin with a byte order mark, also before a quoted field",
    arguments: ["\"url\",\"tags\"", "url,tags"], [1, 2, 4, .max])
  func marked(header: String, pieces: Int) async {
    let client = Client()
    let table = "\u{FEFF}\(header)\nhttp://a/,x\n"
    let answer = await send(client, "/batches", table, "text/csv", pieces: pieces)
    #expect(answer.json?["counts"]?["queued"] == .number(1), "\(answer.text)")
    for text in ["\u{FEFF}", "\u{FEFF}\u{FEFF}url\nhttp://a/", "\u{FEFE}url\nhttp://a/"] {
      #expect(await send(client, "/batches", text, "text/csv", pieces: pieces).status == 422)
    }
  }

  @Test(
    "batches may begin with a byte order mark in each format",
    arguments: [
      ("text/plain", "http://a/\nhttp://b/"), ("text/uri-list", "http://a/\r\nhttp://b/\r\n"),
      ("application/x-ndjson", "\"http://a/\"\n{\"url\":\"http://b/\"}\n"),
      ("application/json", #"{"jobs":["http://a/","http://b/"]}"#),
      ("text/csv", "url\nhttp://a/\nhttp://b/\n"),
    ], [1, 2, 4, .max])
  func markedForms(form: (type: String, text: String), pieces: Int) async {
    let client = Client()
    let answer = await send(
      client, "/batches", "\u{FEFF}" + form.text, form.type, pieces: pieces)
    #expect(answer.status == 202, "\(answer.text)")
    #expect(answer.json?["counts"]?["queued"] == .number(2), "\(answer.text)")
    #expect(answer.json?["counts"]?["rejected"] == .number(0))
  }

  @Test(
    "a CSV table may be separated by semicolons or tabs, as its header line is",
    arguments: [",", ";", "\t"], [1, .max])
  func separators(separator: String, pieces: Int) async throws {
    for first in ["", "sep=\(separator)\r\n"] {
      try await separators(separator, first, pieces)
    }
  }

  private func separators(_ separator: String, _ first: String, _ pieces: Int) async throws {
    let client = Client()
    let header = ["url", "\"tags\""].joined(separator: separator)
    let record = ["\"http://a/1,2;3\"", "\"x;y,z\""].joined(separator: separator)
    let table = "\(first)\(header)\r\n\(record)\r\n"
    let answer = await send(client, "/batches", table, "text/csv", pieces: pieces)
    #expect(answer.json?["counts"]?["queued"] == .number(1), "\(answer.text)")
    let job = try #require(client.service.with { $0.jobs.values.first })
    #expect(
      job.submission.source == .url(SourceURL("http://a/1,2;3")!, lowData: nil)
        && job.tags == ["x;y,z"])
  }

  @Test("a CSV table with one column is separated by commas only")
  func oneColumn() async throws {
    let client = Client()
    let answer = await send(client, "/batches", "url\nhttp://a/1;2\nhttp://a/3,4\n", "text/csv")
    #expect(answer.json?["counts"]?["queued"] == .number(1), "\(answer.text)")
    #expect(answer.json?["counts"]?["rejected"] == .number(1))
    let job = try #require(client.service.with { $0.jobs.values.first })
    #expect(job.submission.source == .url(SourceURL("http://a/1;2")!, lowData: nil))
  }

  @Test("a CSV record with more fields than columns is rejected")
  func manyFields() async throws {
    let client = Client()
    let commas = String(repeating: ",", count: 100_000)
    for header in ["url", "url,tags\r"] {
      let table = "\(header)\n\(commas)\nhttp://a/1,\(commas)\nhttp://a/2\n"
      let answer = await send(client, "/batches", table, "text/csv")
      #expect(answer.json?["counts"]?["rejected"] == .number(2), "\(answer.text)")
      #expect(answer.json?["counts"]?["queued"] == .number(1))
    }
    #expect(await send(client, "/batches", "url\(commas)\nhttp://a/\n", "text/csv").status == 422)
  }

  @Test("a batch is changed only if If-Match matches")
  func condition() async throws {
    let client = Client()
    let changes: [(HTTPRequest.Method, String, Int)] = [
      (.post, "/close", 200), (.post, "/retry", 200), (.delete, "", 200),
      (.delete, "?purge=true", 204),
    ]
    for (method, path, status) in changes {
      let begun = await send(client, "/batches?open=true", "http://a/1\n")
      let batch = "/batches/" + (try #require(begun.json?["id"]?.string))
      let tag = try #require(await client.get(batch).fields[.eTag])
      for condition in ["\"999999\"", "W/\(tag)", ""] {
        let refused = await client.send(method, batch + path, [.ifMatch: condition])
        #expect(refused.status == 412 && refused.code == "precondition_failed", "\(path)")
      }
      #expect(await client.get(batch).fields[.eTag] == tag)
      #expect(await client.send(method, batch + path, [.ifMatch: tag]).status == status, "\(path)")
    }
  }

  @Test("defaults that are not valid and unknown columns are refused")
  func wrongDefaults() async {
    let client = Client()
    for defaults in ["x", "%5B%5D", "%7B%22url%22:%22http://a/%22%7D", "%7B%22timeout%22:0%7D"] {
      #expect(await send(client, "/batches?defaults=\(defaults)", "http://a/").status == 422)
    }
    for header in ["", "uri\nhttp://a/", "url,url\n", "priority\nlow\n", "\"url\nx"] {
      #expect(await send(client, "/batches", header, "text/csv").status == 422, "\(header)")
    }
    #expect(await client.get("/batches").json?["batches"] == .array([]))
  }

  @Test(
    "malformed JSON refuses the whole batch, and the key can be used again",
    arguments: [
      (#"{"jobs":["http://a/",]}"#, 400), (#"{"jobs":["http://a/"]"#, 400),
      (#"{"jobs":["http://a/"],"defaults":{}}"#, 422), (#"{"jobs":["http://a/"]} x"#, 400),
      (#"{"jobs":["http://a/"],"notify":{}}"#, 422),
    ])
  func brokenList(text: String, status: Int) async throws {
    for pieces in [1, Int.max] {
      let client = Client()
      let json = "application/json"
      let refused = await send(client, "/batches", text, json, pieces: pieces, key: "k")
      #expect(refused.status == status)
      #expect(await client.get("/batches").json?["batches"] == .array([]))
      let mended = await send(client, "/batches", #"{"jobs":["http://b/"]}"#, json, key: "k")
      #expect(mended.status == 202 && mended.json?["received"] == .number(1), "\(pieces)")
      _ = try await client.service.batchStore.endStopped(9, keptFor: .seconds(1))
      #expect(try await client.service.batchStore.counts().jobs[.queued] == 1)
    }
  }

  @Test("the received lines stay if an open batch or a continuation is refused")
  func brokenLater() async throws {
    let client = Client()
    let (json, text) = ("application/json", #"{"jobs":["http://a/"]} x"#)
    let open = await send(client, "/batches?open=true", text, json, key: "k")
    #expect(open.status == 400)
    let again = await send(client, "/batches?open=true", text, json, key: "k")
    #expect(again.status == 200 && again.json?["received"] == .number(1))
    let id = try #require(again.json?["id"]?.string)
    #expect(await send(client, "/batches/\(id)/lines?from=1", text, json).status == 400)
    #expect(await client.get("/batches/\(id)").json?["received"] == .number(2))
  }

  @Test(
    "a batch that another request continued stays when its first request is refused",
    arguments: [(0, "/lines?from=0", 1), (1, "/lines?from=1", 2), (1, "/close", 1)])
  func brokenBehindAnother(begun: Int, path: String, received: Int) async throws {
    let client = Client()
    let (pieces, sender) = AsyncStream.makeStream(of: String.self)
    let body = RequestBody(declaredLength: nil) { () async throws(BodyError) in
      for await piece in pieces { return Array(piece.utf8) }
      return nil
    }
    let json = "application/json"
    func text(_ urls: Int) -> String {
      let jobs = (3 - urls...2).map { url in #""http://a/\#(url)""# }
      return #"{"jobs":["# + jobs.joined(separator: ",") + "]}"
    }
    let request = Request(
      method: .post, path: "/batches", fields: [.contentType: json, .idempotencyKey: "k"],
      body: body)
    async let beginning = client.routes.respond(to: request)
    sender.yield(begun == 0 ? #"{"jobs":["# : #"{"jobs":["http://a/1","#)
    try await eventually {
      let batch = await client.get("/batches").json?["batches"]?[0]
      return batch?["received"] == .number(Double(begun))
    }
    let same = begun == 0 ? #"{"jobs":[]}"# : #"{"jobs":["http://a/1"]}"#
    let found = await send(client, "/batches", same, json, key: "k")
    #expect(found.status == 200 && found.json?["state"] == .string("receiving"))
    let id = try #require(found.json?["id"]?.string)
    let other = await send(
      client, "/batches/\(id)\(path)", "\"http://a/2\"", "application/x-ndjson")
    #expect(other.status == (path == "/close" ? 200 : 202), "\(other.text)")
    sender.yield(":")
    sender.finish()
    let refused = Answer(await beginning)
    #expect(refused.status == 400 && refused.code == "malformed_json", "\(refused.text)")
    let batch = await client.get("/batches/\(id)").json
    #expect(batch?["state"] == .string("running"))
    #expect(batch?["received"] == .number(Double(received)))
    #expect(batch?["counts"]?["queued"] == .number(Double(received)))
    let isClosed = path == "/close"
    let again = await send(client, "/batches", isClosed ? same : text(received), json, key: "k")
    #expect(again.status == 200 && again.json?["id"] == .string(id), "\(again.text)")
  }

  @Test(
    "JSON that is not an object has another error than malformed JSON",
    arguments: [
      (#"["http://a/"]"#, 422), (" null", 422), (#""x""#, 422), ("-1", 422), ("1", 422),
      ("true", 422), ("false", 422), ("{}", 422), ("http://a/", 400), ("}", 400),
    ])
  func noList(text: String, status: Int) async {
    let answer = await send(Client(), "/batches", text, "application/json")
    #expect(answer.status == status)
    #expect(answer.code == (status == 422 ? "invalid_option" : "malformed_json"))
  }

  @Test("an interrupted batch can be continued at its next line only")
  func goesOn() async throws {
    let client = Client()
    let first = await send(client, "/batches?open=true", "http://a/1\nhttp://a/2\n")
    let id = try #require(first.json?["id"]?.string)
    #expect(first.json?["state"] == .string("receiving"))
    #expect(await send(client, "/batches/\(id)/lines?from=1", "http://a/3").status == 409)
    #expect(await send(client, "/batches/\(id)/lines?from=3", "http://a/3").status == 409)
    #expect(await send(client, "/batches/\(id)/lines", "http://a/3").status == 422)
    let second = await send(
      client, "/batches/\(id)/lines?from=2", "{\"url\":\"http://a/3\"}\n", "application/x-ndjson")
    #expect(second.status == 202)
    #expect(second.json?["received"] == .number(3))
    let closed = await client.send(.post, "/batches/\(id)/close")
    #expect(closed.json?["state"] == .string("running"))
    #expect(await send(client, "/batches/\(id)/lines?from=3", "http://a/4").status == 409)
    let lines = client.service.with { $0.jobs.values.compactMap { $0.batch?.line }.sorted() }
    #expect(lines == [1, 2, 3])
  }

  @Test("a batch without a valid line is refused, but an open one may start without lines")
  func empty() async throws {
    let client = Client()
    #expect(await send(client, "/batches", "# none\n", key: "k").status == 422)
    #expect(await client.get("/batches").json?["batches"] == .array([]))
    // The request may be repeated with the same key and more lines.
    #expect(await send(client, "/batches", "http://a/\n", key: "k").status == 202)
    let open = await client.send(.post, "/batches?open=true")
    #expect(open.status == 202)
    #expect(open.json?["received"] == .number(0))
  }

  @Test("a batch above the line limit is refused, and the lines below the limit stay")
  func mostLines() async throws {
    let client = Client { $0.maxBatchLines = 3 }
    let answer = await send(
      client, "/batches", "http://a/1\n#\nhttp://a/2\nhttp://a/3\n", pieces: 5)
    #expect(answer.status == 413)
    let batch = await client.get("/batches").json?["batches"]?[0]
    #expect(batch?["received"] == .number(3))
    #expect(batch?["counts"]?["queued"] == .number(2))
  }

  @Test(
    "a line above the limit is detected, also at the end of the content",
    arguments: [
      (Form.ndjson, "\"http://a/1\"\n\"http://a/2\"\n\"http://a/3\""),
      (.uris, "http://a/1\nhttp://a/2\nhttp://a/3"), (.plain, "http://a/1\n\nhttp://a/3"),
      (.csv, "url\nhttp://a/2\nhttp://a/3"),
      (.json, #"{"jobs":["http://a/1","http://a/2","http://a/3"]}"#),
    ])
  func lastLine(form: Form, text: String) async throws {
    let client = Client { $0.maxBatchLines = 2 }
    #expect(await send(client, "/batches", text, form.type).status == 413)
    let batch = await client.get("/batches").json?["batches"]?[0]
    #expect(batch?["state"] == .string("receiving") && batch?["received"] == .number(2))
    let lines = try #require(batch?["links"]?["self"]?.string) + "/lines?from=2"
    let more = await send(client, lines, form == .csv ? "url" : text, form.type)
    #expect(more.status == 413)
  }

  @Test(
    "a batch that exceeds the memory limit leaves nothing behind, and the key can be used again")
  func noRoom() async throws {
    let client = Client { $0.maxConnections = 2 }
    let hogs = [client.routes.memory, client.routes.connections].map {
      $0.allocation(for: .behind("192.0.2.9"))
    }
    for (budget, status) in [(hogs[0], 503), (hogs[1], 429)] {
      budget.set(1 << 40)
      let refused = await send(client, "/batches", "http://a/", key: "k")
      #expect(refused.status == status)
      budget.release()
      #expect(await client.get("/batches").json?["batches"] == .array([]))
    }
    client.service.with { $0.capacity = 0 }
    #expect(await send(client, "/batches", "http://a/", key: "k").status == 503)
    client.service.with { $0.capacity = 1 }
    #expect(await client.get("/batches").json?["batches"] == .array([]))
    let begun = await send(client, "/batches", "http://a/", key: "k")
    #expect(begun.status == 202 && begun.json?["received"] == .number(1))
    #expect(client.routes.memory.reserved == 0 && client.routes.connections.reserved == 0)
    let repeated = await send(client, "/batches", "http://a/", key: "k")
    #expect(repeated.status == 200 && repeated.json?["id"] == begun.json?["id"])
  }

  @Test("lines are stored in parts by the size of their jobs, without the defaults")
  func parts() async throws {
    let urls = (1...8).map { "\"http://b/\($0)\(String(repeating: "x", count: 8_000))\"" }
    let options = "\"alternatives\":[\(urls.joined(separator: ","))]"
    func kept(_ text: String) async -> [Int] {
      let client = Client { $0.maxBody = 64 << 20 }
      let answer = await send(client, "/batches", text, "application/json")
      #expect(answer.json?["counts"]?["queued"] == .number(400), "\(answer.text)")
      return client.service.with { $0.additions }
    }
    let short = Array(repeating: "\"http://a/\"", count: 400).joined(separator: ",")
    let shared = await kept("{\"defaults\":{\(options)},\"jobs\":[\(short)]}")
    #expect(shared.reduce(0, +) < 400 * 1_000, "\(shared)")
    let job = "{\"url\":\"http://a/\",\(options)}"
    let long = Array(repeating: job, count: 400).joined(separator: ",")
    let own = await kept("{\"jobs\":[\(long)]}")
    #expect(own.reduce(0, +) > 400 * 64_000)
    #expect(own.count > 4 && own.allSatisfy { $0 <= BatchWriter.memory / 4 + 66_000 }, "\(own)")
  }

  @Test("a rejected line reports its URL and an unknown member up to a limited length")
  func longCharacters() async throws {
    let client = Client()
    let character = "a" + String(repeating: "\u{301}", count: 20_000)
    let lines = "http://a/\n\(character)\n"
    let id = try #require(await send(client, "/batches", lines).json?["id"]?.string)
    let rejected = await client.streamed("/batches/\(id)/results?phase=rejected")
    #expect(8_192..<9_000 ~= rejected.count)
    for (text, type) in [
      ("url,\(character)\nhttp://a/,1\n", "text/csv"),
      ("{\"\(character)\":1,\"jobs\":[]}", "application/json"),
    ] {
      let answer = await send(client, "/batches", text, type)
      #expect(answer.status == 422 && answer.bytes.count < 2_000, "\(type)")
    }
    for member in ["X", #""variants":[{"name":"a","X":1}]"#, #""deliver":[{"X":1}]"#] {
      let text = member == "X" ? "\"\(character)\":1" : member.replacing("X", with: character)
      let answer = await client.post("{\"url\":\"http://a/\",\(text)}")
      #expect(answer.status == 422 && answer.bytes.count < 2_000, "\(member)")
    }
    let retry = await client.post("{\"\(character)\":[]}", to: "/batches/\(id)/retry")
    #expect(retry.status == 422 && retry.bytes.count < 2_000, "\(retry.status)")
  }

  @Test("the size of a line includes each stored member of the job")
  func keptBytes() throws {
    let text = String(repeating: "x", count: 1_000)
    let url = try #require(SourceURL("http://a/\(text)"))
    let key = try #require(DeliveryKey(text))
    let fields = [HeaderField(name: "a", value: text)]
    let plain = NewJob(submission: Submission(source: .url(url, lowData: nil)))
    let changes: [(inout NewJob) -> Void] = [
      { $0.tags = [text] },
      { $0.submission.source = .url(url, lowData: url) },
      { $0.submission.alternatives = [url] },
      { $0.submission.headers = fields },
      { $0.submission.cacheKey = text },
      { $0.submission.webhook = Webhook(url: url, events: WebhookEvent.jobEnds) },
      { $0.submission.deliveries = [DeliveryRequest(.profile("a", key: key), variant: nil)] },
      { $0.submission.deliveries = [DeliveryRequest(.put(url, headers: []), variant: nil)] },
    ]
    for (index, change) in changes.enumerated() {
      var job = plain
      change(&job)
      #expect(job.keptBytes >= plain.keptBytes + 1_000, "\(index)")
    }
  }

  @Test("a repeated key returns the current batch")
  func repeated() async throws {
    let client = Client()
    let first = await send(client, "/batches?open=true", "http://a/1\n", key: "k")
    let again = await send(client, "/batches?open=true", "http://a/1\n", key: "k")
    #expect(again.status == 200)
    #expect(again.json?["id"] == first.json?["id"])
    #expect(again.json?["received"] == .number(1))
    #expect(await send(client, "/batches", "http://a/1\n", key: "k").status == 422)
  }

  @Test("a repeated key with different content is refused", arguments: Form.allCases, [1, Int.max])
  func otherContent(form: Form, pieces: Int) async throws {
    let client = Client()
    func post(_ text: String) async -> Answer {
      await send(client, "/batches", text, form.type, pieces: pieces, key: "k")
    }
    let id = await post(form.text).json?["id"]
    let again = await post(form.text)
    #expect(again.status == 200 && again.json?["id"] == id)
    let texts = [
      form.text.replacing("http://a/2", with: "http://b/2"),
      form.text.replacing("none", with: "none2"),
      form.text.replacing("url,priority", with: "url,timeout"),
      form.text.replacing(#""tags":["x"]"#, with: #""tags":["y"]"#),
      form == .json
        ? form.text.replacing("]}", with: #"],"notify":{"url":"http://a/"}}"#)
        : form.text + "http://a/3",
      form == .json ? #"{"jobs":["http://a/1"]}"# : form.text.replacing("none", with: ""),
      form == .json ? form.text.replacing(#","none"]"#, with: "]") : "",
    ].filter { $0 != form.text }
    for text in texts {
      let other = await post(text)
      #expect(other.status == 422 && other.code == "invalid_option", "\(text)")
      // A table without a header line has an error of its own.
      guard form != .csv || !text.isEmpty else { continue }
      #expect(other.json?["errors"]?[0]?["header"] == .string("Idempotency-Key"), "\(text)")
    }
    #expect(await client.get("/batches").json?["batches"]?.array?.count == 1)
    #expect(await post(form.text).json?["id"] == id)
  }

  /// A body whose client disconnects after the text.
  private func broken(_ text: some StringProtocol) -> RequestBody {
    let (pieces, sender) = AsyncStream.makeStream(of: [UInt8].self)
    sender.yield(Array(text.utf8))
    sender.finish()
    return RequestBody(declaredLength: nil) { () async throws(BodyError) in
      for await piece in pieces { return piece }
      throw .disconnected
    }
  }

  @Test(
    "an interrupted batch is found by its key and the same content, and can be continued",
    arguments: Form.allCases)
  func brokenUpload(form: Form) async throws {
    let client = Client()
    func post(_ text: String) async -> Answer {
      await send(client, "/batches", text, form.type, key: "k")
    }
    let split = try #require(form.text.ranges(of: form == .json ? "\"none" : "none").last)
    let sent = form.text[..<split.lowerBound]
    let fields: HTTPFields = [.contentType: form.type, .idempotencyKey: "k"]
    _ = await client.routes.respond(
      to: Request(method: .post, path: "/batches", fields: fields, body: broken(sent)))

    // Lines that were not received can't be compared yet.
    for text in [form.text, form.text.replacing("none", with: "http://a/3")] {
      let found = await post(text)
      #expect(found.status == 200 && found.json?["state"] == .string("receiving"), "\(text)")
    }
    for text in [form.text.replacing("http://a/2", with: "http://b/2"), ""] {
      let other = await post(text)
      #expect([400, 422].contains(other.status), "\(text)")
      #expect(form == .json && text.isEmpty || other.status == 422, "\(text)")
    }
    let batch = await client.get("/batches").json?["batches"]?[0]
    let path = try #require(batch?["links"]?["self"]?.string)
    let received = try #require(batch?["received"]?.number)
    #expect(received == Double(form.lines[2] - 1))
    let head =
      switch form {
      case .csv: "url,priority\n"
      case .json: #"{"defaults":{"tags":["x"]},"jobs":["#
      default: ""
      }
    let rest = await send(
      client, "\(path)/lines?from=\(Int(received))", head + form.text[split.lowerBound...],
      form.type)
    #expect(rest.status == 202 && rest.json?["state"] == .string("running"), "\(rest.text)")

    let again = await post(form.text)
    #expect(again.status == 200 && again.json?["id"] == batch?["id"], "\(again.text)")
    #expect(await post(form.text.replacing("none", with: "http://a/3")).status == 422)
    #expect(await post(form.text.replacing("http://a/2", with: "http://b/2")).status == 422)
  }

  @Test("an open batch compares a repeated key with the first request's content only")
  func openContent() async throws {
    let client = Client()
    let first = await send(client, "/batches?open=true", "http://a/1\n", key: "k")
    let path = try #require(first.json?["links"]?["self"]?.string)
    #expect(await send(client, "\(path)/lines?from=1", "http://a/2\n").status == 202)
    for closes in [false, true] {
      if closes { _ = await client.send(.post, "\(path)/close") }
      let again = await send(client, "/batches?open=true", "http://a/1\n", key: "k")
      #expect(again.status == 200 && again.json?["received"] == .number(2))
      for text in ["", "http://a/3\n", "http://a/1\nhttp://a/2\n"] {
        let other = await send(client, "/batches?open=true", text, key: "k")
        #expect(other.status == 422, "\(text)")
      }
    }
    let empty = await client.send(.post, "/batches?open=true", [.idempotencyKey: "l"])
    let again = await client.send(.post, "/batches?open=true", [.idempotencyKey: "l"])
    #expect(again.status == 200 && again.json?["id"] == empty.json?["id"])
  }

  @Test("a repeated key of a purged batch returns it as gone")
  func gone() async throws {
    let client = Client()
    let first = await send(client, "/batches", "http://a/1\n", key: "k")
    let id = try #require(first.json?["id"]?.string)
    #expect(await client.send(.delete, "/batches/\(id)?purge=true").status == 204)
    let again = await send(client, "/batches", "http://a/1\n", key: "k")
    #expect(again.status == 200 && again.text == #"{"id":"\#(id)","state":"gone"}"#)
  }

  @Test("results are in the order of the lines and can be filtered by phase")
  func results() async throws {
    let client = Client()
    let text = (1...600).map { $0 == 300 ? "none" : "http://a/\($0)" }.joined(separator: "\n")
    let id = try #require(await send(client, "/batches", text).json?["id"]?.string)
    let jobs = client.service.with { Array($0.jobs.values) }
    for job in jobs {
      guard let line = job.batch?.line, line % 2 == 0 else { continue }
      try await client.fail(job.id)
    }
    let all = await client.lines("/batches/\(id)/results")
    #expect(
      all.compactMap { $0["line"]?.number } == stride(from: 2.0, through: 600, by: 2).map(\.self))
    #expect(await client.lines("/batches/\(id)/results?from=599").count == 1)
    // Integer overflow at these numbers once crashed the service.
    for (from, status) in [
      (1 << 40, 200), ((1 << 40) + 1, 422), (Int.max - 1, 422), (Int.max, 422),
    ] {
      let target = "/batches/\(id)/results?from=\(from)"
      #expect(await client.get(target).status == status, "\(from)")
      #expect(await client.lines(target).isEmpty)
      #expect(
        await send(client, "/batches/\(id)/lines?from=\(from)", "http://a/3").status
          == (status == 200 ? 409 : 422))
    }
    let rejected = await client.lines("/batches/\(id)/results?phase=rejected")
    #expect(rejected.map { $0["error"]?["code"]?.string } == ["invalid_url"])
    #expect(await client.lines("/batches/\(id)/results?phase=success").isEmpty)
    for job in jobs where (job.batch?.line ?? 0) % 2 == 1 { try await client.fail(job.id) }
    let followed = await client.lines("/batches/\(id)/results?follow=true")
    #expect(followed.compactMap { $0["line"]?.number } == (1...600).map(Double.init))
    let batch = await client.get("/batches/\(id)?wait=5").json
    #expect(batch?["state"] == .string("finished"))
    #expect(batch?["codes"]?["timeout"] == .number(599))
  }

  @Test(
    "results are read in pages of limited size, and each line is sent once",
    arguments: ["", "?follow=true"])
  func pages(query: String) async throws {
    let client = Client()
    let long = String(repeating: "x", count: 8_000)
    let text = (1...200).map { $0 <= 120 ? "http://a/\($0)\(long)" : "none" }
    let upload = await send(client, "/batches", text.joined(separator: "\n"))
    let id = try #require(upload.json?["id"]?.string)
    for job in client.service.with({ Array($0.jobs.values) }) { try await client.fail(job.id) }
    let pieces = await client.pieces("/batches/\(id)/results\(query)")
    #expect(pieces.count >= 4)
    let sizes = pieces.map(\.count)
    #expect(sizes.allSatisfy { $0 <= 266 << 10 }, "\(sizes)")
    let told = pieces.flatMap { $0 }.split(separator: 0x0A).compactMap {
      try? JSONDecoder().decode(JSON.self, from: Data($0))["line"]?.number
    }
    #expect(told == (1...200).map(Double.init))
  }

  @Test("a follower gets each result when all results before it are there")
  func followed() async throws {
    let client = Client()
    let upload = await send(client, "/batches", "http://a/1\nhttp://a/2")
    let id = try #require(upload.json?["id"]?.string)
    let jobs = client.service.with { Array($0.jobs.values) }
    async let following = client.lines("/batches/\(id)/results?follow=true")
    for job in jobs.sorted(by: { $0.id > $1.id }) { try await client.fail(job.id) }
    let lines = await following
    #expect(lines.compactMap { $0["line"]?.number } == [1, 2])
  }

  @Test(
    "results of a deleted batch break off, because a regular end would mean that they are complete")
  func forgotten() async throws {
    let client = Client()
    let upload = await send(client, "/batches", "none\nhttp://a/2")
    let id = try #require(upload.json?["id"]?.string)
    let path = "/batches/\(id)/results"
    let request = Request(method: .get, path: path, query: "follow=true")
    guard case .stream(let stream) = await client.routes.respond(to: request).content else {
      throw JobsError.unknownBatch
    }
    func piece() async throws -> StreamPiece {
      while true {
        let piece = stream.next()
        if piece != .nothingYet { return piece }
        try await Task.sleep(for: .milliseconds(1))
      }
    }
    let rejected = try await piece()
    guard case .bytes = rejected else { throw JobsError.unknownBatch }
    #expect(await client.send(.delete, "/batches/\(id)?purge=true").status == 204)
    let (last, after) = (try await piece(), stream.next())
    #expect(last == .failed && after == .failed)
  }

  @Test("batches are unknown to other owners, and listed by state, newest first")
  func listed() async throws {
    let client = Client { $0.tokens = [.of("anna", [.jobs]), .of("ben", [.jobs])] }
    var ids: [String] = []
    for name in ["1", "2", "3"] {
      let fields: HTTPFields = [.authorization: "Bearer anna", .contentType: "text/plain"]
      let open = name == "2" ? "?open=true" : ""
      let answer = await client.send(
        .post, "/batches\(open)", fields, body: Array("http://a/".utf8))
      ids.append(try #require(answer.json?["id"]?.string))
      client.service.with { $0.milliseconds += 1 }
    }
    let anna: HTTPFields = [.authorization: "Bearer anna"]
    let ben: HTTPFields = [.authorization: "Bearer ben"]
    #expect(await client.get("/batches/\(ids[0])", ben).status == 404)
    #expect(await client.get("/batches/\(ids[0])/results", ben).status == 404)
    #expect(await client.get("/batches", ben).json?["batches"] == .array([]))
    let page = await client.get("/batches?limit=2", anna)
    #expect(page.json?["batches"]?.array?.compactMap { $0["id"]?.string } == [ids[2], ids[1]])
    let cursor = try #require(page.json?["next_cursor"]?.string)
    let rest = await client.get("/batches?limit=2&cursor=\(cursor)", anna)
    #expect(rest.json?["batches"]?.array?.compactMap { $0["id"]?.string } == [ids[0]])
    let receiving = await client.get("/batches?state=receiving", anna)
    #expect(receiving.json?["batches"]?.array?.compactMap { $0["id"]?.string } == [ids[1]])
  }
}

extension Client {
  /// Lets a job of a batch fail.
  fileprivate func fail(_ id: JobID) async throws {
    _ = try await service.batchStore.update(id, under: nil) { job in
      job.start(at: job.createdAt)
      job.fail(.fetch(.timeout(seconds: 1)), at: job.createdAt, keptFor: .seconds(60))
      return true
    }
  }
}
