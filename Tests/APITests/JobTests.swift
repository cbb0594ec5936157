import API
import HTTPTypes
import Jobs
import Testing

@Suite("GET /jobs/{id}")
struct JobTests {
  let client = Client()

  @Test("a job is 200 with an ETag, and 304 with that If-None-Match")
  func conditional() async throws {
    let id = try await client.submitted()
    let answer = await client.get("/jobs/\(id)")
    #expect(answer.status == 200)
    let tag = try #require(answer.fields[.eTag])
    for field in [tag, "W/\(tag)", "\"x\", \(tag)", "*"] {
      let unchanged = await client.get("/jobs/\(id)", [.ifNoneMatch: field])
      #expect(unchanged.status == 304)
      #expect(unchanged.bytes.isEmpty && unchanged.omitted == answer.bytes.count)
      #expect(unchanged.fields[.eTag] == tag)
      #expect(unchanged.fields[.cacheControl] == "no-cache")
    }
    client.service.change(id) { _ = $0.edit(priority: .high, tags: nil) }
    let changed = await client.get("/jobs/\(id)", [.ifNoneMatch: tag])
    #expect(changed.status == 200)
    #expect(changed.fields[.eTag] != tag)
  }

  @Test("the id may have upper or lower case, but only one format", arguments: [true, false])
  func readsID(remembers: Bool) async throws {
    let id = try await client.submitted()
    client.service.with { $0.remembers = remembers }
    #expect(await client.get("/jobs/\(id.description.uppercased())").status == 200)
    for path in [
      "/jobs/\(id)/", "/jobs/\(id.description.dropLast())", "/jobs//\(id)", "/jobs/", "/jobs/x",
    ] {
      let answer = await client.get(path)
      #expect(answer.status == 404)
      #expect(answer.code == "not_found")
    }
  }

  @Test("an unknown job is 404 at every path")
  func unknown() async {
    let path = "/jobs/0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88"
    for answer in [
      await client.get(path), await client.get("\(path)/image"), await client.get("\(path)?wait=1"),
      await client.send(.delete, path), await client.send(.delete, "\(path)?purge=true"),
      await client.send(.post, "\(path)/fetch"),
      await client.send(.patch, path, [.contentType: "application/json"], body: Array("{}".utf8)),
    ] {
      #expect(answer.status == 404)
      #expect(answer.code == "not_found")
    }
  }

  @Test("the members of a job have the order of openapi.yaml")
  func order() async throws {
    let id = try await client.submitted()
    let text = await client.get("/jobs/\(id)").text
    let names = [
      "id", "phase", "source", "priority", "progress", "image", "error", "attempts", "tags",
      "cache",
      "timings", "version", "created_at", "started_at", "finished_at", "expires_at", "links",
    ]
    let places = names.compactMap { text.firstRange(of: "\"\($0)\":")?.lowerBound }
    #expect(places.count == names.count)
    #expect(places == places.sorted())
  }

  @Test("a job shows its progress, phase and times as they change")
  func progress() async throws {
    let id = try await client.submitted()
    client.service.change(id) { job in
      job.start(at: job.createdAt + .milliseconds(1))
      var report = ProgressReport(of: job)
      report.progress = .init(completed: 131_072, total: 524_288)
      report.attempts = 1
      report.previews = 2
      report.timings.body = .microseconds(1500)
      job.applyLastReport(report)
    }
    let json = await client.get("/jobs/\(id)").json
    #expect(json?["phase"] == .string("loading"))
    #expect(
      json?["progress"]
        == .object([
          "completed": .number(131_072), "total": .number(524_288), "fraction": .number(0.25),
          "resumed_from": .number(0), "previews": .number(2),
        ]))
    #expect(json?["created_at"] == .string("2026-11-18T11:06:40.001Z"))
    #expect(json?["started_at"] == .string("2026-11-18T11:06:40.002Z"))
    #expect(json?["finished_at"] == .null)
    #expect(json?["timings"]?["queued_ms"] == .number(1))
    #expect(json?["timings"]?["body_ms"] == .number(1.5))
    #expect(json?["timings"]?["fetch_ms"] == .null)
    #expect(json?["attempts"] == .number(1))
  }

  @Test("a failed job has its error")
  func failure() async throws {
    let id = try await client.submitted()
    client.service.change(id) { job in
      job.start(at: job.createdAt)
      job.fail(.fetch(.originStatus(503, retryAfter: nil)), at: job.createdAt, keptFor: .seconds(1))
    }
    let error = await client.get("/jobs/\(id)").json?["error"]
    #expect(error?["code"] == .string("origin_status"))
    #expect(error?["retryable"] == .bool(true))
    #expect(error?["origin_status"] == .number(503))
    #expect(error?["type"] == .string("/problems/origin_status"))
    let again = await client.send(.post, "/jobs/\(id)/fetch")
    #expect(again.status == 200)
    #expect(again.json?["error"] == .null)
    #expect(again.json?["phase"] == .string("queued"))
  }

  @Test("cancelling twice is 200 twice, and a finished job is not changed")
  func cancels() async throws {
    let id = try await client.submitted()
    for _ in 0..<2 {
      let answer = await client.send(.delete, "/jobs/\(id)")
      #expect(answer.status == 200)
      #expect(answer.json?["phase"] == .string("cancelled"))
    }
    let finished = try await client.succeeded()
    #expect(await client.send(.delete, "/jobs/\(finished)").json?["phase"] == .string("success"))
  }

  @Test("purge=true deletes the job: 204, and then 404")
  func purges() async throws {
    let id = try await client.submitted()
    #expect(await client.send(.delete, "/jobs/\(id)?purge=yes").status == 422)
    #expect(await client.send(.delete, "/jobs/\(id)?purge=false").status == 200)
    let answer = await client.send(.delete, "/jobs/\(id)?purge=true")
    #expect(answer.status == 204)
    #expect(answer.bytes.isEmpty)
    #expect(await client.get("/jobs/\(id)").status == 404)
    #expect(await client.send(.delete, "/jobs/\(id)?purge=true").status == 404)
  }

  @Test("unknown query parameters are 422", arguments: ["", "/image", "/fetch"])
  func refusesQuery(tail: String) async throws {
    let id = try await client.submitted()
    let method: HTTPRequest.Method = tail == "/fetch" ? .post : .get
    let answer = await client.send(method, "/jobs/\(id)\(tail)?x=1&wayt=2")
    #expect(answer.status == 422)
    #expect(answer.mistakes == ["x invalid_option", "wayt invalid_option"])
  }
}

@Suite("The member waiting_for")
struct WaitingForDocumentTests {
  let client = Client()
  private let waiting = WaitingFor(
    .originRate, origin: "http://a", until: Timestamp(milliseconds: 1_795_000_000_000), ahead: 3)
  private let shown = JSON.object([
    "reason": .string("origin_rate"), "origin": .string("http://a"),
    "until": .string("2026-11-18T11:06:40.000Z"), "ahead": .number(3),
  ])

  @Test("waiting_for is in every response with a queued job, with its current value")
  func shownEverywhere() async throws {
    let id = try await client.submitted(#"{"url":"http://a/"}"#)
    let unknown = JSON.object([
      "reason": .string("worker"), "origin": .null, "until": .null, "ahead": .null,
    ])
    #expect(await client.get("/jobs/\(id)").json?["waiting_for"] == unknown)
    client.service.with { $0.waiting = waiting }
    #expect(await client.get("/jobs/\(id)").json?["waiting_for"] == shown)
    #expect(await client.get("/jobs/\(id)/image").json?["waiting_for"] == shown)
    #expect(await client.get("/jobs").json?["jobs"]?[0]?["waiting_for"] == shown)
    #expect(await client.send(.post, "/jobs/\(id)/fetch").json?["waiting_for"] == shown)
    #expect(await client.post(#"[{"url":"http://a/"}]"#).json?["jobs"]?[0]?["waiting_for"] == shown)
    let events = await client.get("/jobs/\(id)/events").text
    let document = await client.get("/jobs/\(id)").text
    #expect(events.contains("data: \(document)\n") && document.contains(#""ahead":3"#))
  }

  @Test("waiting_for changes without a new version or ETag")
  func keepsVersion() async throws {
    let id = try await client.submitted()
    let first = await client.get("/jobs/\(id)")
    client.service.with { $0.waiting = waiting }
    let second = await client.get("/jobs/\(id)")
    #expect(first.text != second.text && first.fields[.eTag] == second.fields[.eTag])
    let tag = try #require(first.fields[.eTag])
    #expect(await client.get("/jobs/\(id)", [.ifNoneMatch: tag]).status == 304)
  }

  @Test("waiting_for is null in any other phase")
  func otherPhases() async throws {
    let id = try await client.submitted()
    for move: (inout Job) -> Void in [
      { $0.start(at: $0.createdAt) }, { _ = $0.cancel(at: $0.createdAt, keptFor: .seconds(9)) },
    ] {
      client.service.change(id, move)
      #expect(await client.get("/jobs/\(id)").json?["waiting_for"] == .null)
    }
    let done = try await client.succeeded()
    #expect(await client.get("/jobs/\(done)").json?["waiting_for"] == .null)
  }

  @Test(
    "a job that waits for a retry has last_error and next_attempt_at; otherwise both are null")
  func nextTry() async throws {
    let id = try await client.submitted()
    let fresh = await client.get("/jobs/\(id)").json
    #expect(fresh?["last_error"] == .null && fresh?["next_attempt_at"] == .null)
    client.service.change(id) { job in
      job.start(at: job.createdAt)
      job.retry(
        after: .fetch(.originStatus(503, retryAfter: nil)), from: .regular,
        notBefore: Timestamp(milliseconds: 1_795_000_000_000))
    }
    let waiting = await client.get("/jobs/\(id)").json
    #expect(waiting?["phase"] == .string("queued") && waiting?["error"] == .null)
    #expect(waiting?["next_attempt_at"] == .string("2026-11-18T11:06:40.000Z"))
    #expect(waiting?["last_error"]?["code"] == .string("origin_status"))
    #expect(waiting?["last_error"]?["origin_status"] == .number(503))
    #expect(waiting?["last_error"]?["retryable"] == .bool(true))
    client.service.change(id) { $0.start(at: $0.createdAt) }
    let loading = await client.get("/jobs/\(id)").json
    #expect(loading?["last_error"] == .null && loading?["next_attempt_at"] == .null)
    client.service.change(id) { $0.continueTry(with: .alternative(0), after: .internal) }
    let turned = await client.get("/jobs/\(id)").json
    #expect(turned?["last_error"] == .null && turned?["next_attempt_at"] == .null)
  }
}

@Suite("Waiting for a job")
struct WaitTests {
  let client = Client { $0.maxWait = .milliseconds(200) }

  @Test("a request with wait is answered when the job finishes", .timeLimit(.minutes(15)))
  func untilFinished() async throws {
    let client = Client()
    let id = try await client.submitted()
    async let answer = client.get("/jobs/\(id)?wait=30")
    async let image = client.get("/jobs/\(id)/image", [.prefer: "respond-async, wait=30"])
    try await Task.sleep(for: .milliseconds(20))
    client.service.change(id) { $0.start(at: $0.createdAt) }
    try await Task.sleep(for: .milliseconds(20))
    client.service.change(id) { _ = $0.cancel(at: $0.createdAt, keptFor: .seconds(1)) }
    #expect(await answer.json?["phase"] == .string("cancelled"))
    #expect(await image.status == 404)
  }

  @Test("a longer wait is shortened to the limit, and the response has the current job")
  func isCut() async throws {
    let id = try await client.submitted()
    let start = ContinuousClock.now
    let answer = await client.get("/jobs/\(id)?wait=1e9")
    #expect(answer.status == 200)
    #expect(answer.json?["phase"] == .string("queued"))
    let preferred = await client.get("/jobs/\(id)", [.prefer: "wait=100000"])
    #expect(preferred.fields[.preferenceApplied] == "wait=100000")
    #expect(.milliseconds(400) ... .seconds(20) ~= ContinuousClock.now - start)
  }

  @Test("a wait with If-None-Match waits for another version, and is 304 if there is none")
  func untilChanged() async throws {
    let client = Client()
    let id = try await client.submitted()
    let tag = try #require(await client.get("/jobs/\(id)").fields[.eTag])
    #expect(await client.get("/jobs/\(id)?wait=0.02", [.ifNoneMatch: tag]).status == 304)
    async let answer = client.get("/jobs/\(id)?wait=30", [.ifNoneMatch: tag])
    try await Task.sleep(for: .milliseconds(20))
    client.service.change(id) { $0.start(at: $0.createdAt) }
    #expect(await answer.status == 200)
    #expect(await answer.json?["phase"] == .string("loading"))
    let other = await client.get("/jobs/\(id)?wait=30", [.ifNoneMatch: "\"old\""])
    #expect(other.status == 200)
  }

  @Test(
    "a wait that is not a number of seconds is 422",
    arguments: ["", "-1", "x", "NaN", "1s", "0x1", "+5", "1&wait=2"])
  func refuses(wait: String) async throws {
    let id = try await client.submitted()
    let answer = await client.get("/jobs/\(id)?wait=\(wait)")
    #expect(answer.mistakes == ["wait invalid_option"])
  }

  @Test(
    "Prefer is read in each legal form, and a long wait is shortened",
    arguments: [
      ("wait=\"3\"", "3"), ("wait = 3", "3"), ("WAIT\t=\t3 ; x=y", "3"),
      ("x=\"a, b\", wait=3", "3"),
      (", wait=03, wait=4", "3"), ("wait=10000000000", "10000000000"),
      ("wait=123456789012345678901234567890", "9223372036854775807"),
    ])
  func forms(prefer: String, applied: String) async throws {
    let client = Client { $0.maxWait = .milliseconds(1) }
    let id = try await client.submitted()
    let answer = await client.get("/jobs/\(id)", [.prefer: prefer])
    #expect(answer.status == 200)
    #expect(answer.fields[.preferenceApplied] == "wait=\(applied)")
  }

  @Test(
    "a malformed Prefer is ignored",
    arguments: [
      "wait=x", "wait", "wait=-1", "waits=9", "wait=1.5", "wait=", "wait=\"1", "wait=1x",
      "wait=1 2", "x; wait=1", "x=\"a, wait=1\"", "x=\"a, wait=1",
    ])
  func ignores(prefer: String) async throws {
    let id = try await client.submitted()
    let answer = await client.get("/jobs/\(id)", [.prefer: prefer])
    #expect(answer.status == 200)
    #expect(answer.fields[.preferenceApplied] == nil)
  }
}

@Suite("PATCH /jobs/{id}")
struct EditTests {
  let client = Client()

  private func patch(
    _ id: JobID, _ json: String, type: String = "application/merge-patch+json"
  ) async -> Answer {
    await client.send(.patch, "/jobs/\(id)", [.contentType: type], body: Array(json.utf8))
  }

  @Test("PATCH changes priority and tags, and returns the job")
  func changes() async throws {
    let id = try await client.submitted()
    let answer = await patch(id, #"{"priority":"high","tags":["x"]}"#)
    #expect(answer.status == 200)
    #expect(answer.json?["priority"] == .string("high"))
    #expect(answer.json?["tags"] == .array([.string("x")]))
    #expect(await patch(id, "{}", type: "application/json").json?["priority"] == .string("high"))
    let reset = await patch(id, #"{"priority":null,"tags":null}"#)
    #expect(reset.json?["priority"] == .string("normal"))
    #expect(reset.json?["tags"] == .array([]))
  }

  @Test("PATCH distinguishes a tag from one with the same characters in another encoding")
  func encodedTags() async throws {
    let id = try await client.submitted(#"{"url":"http://a/","tags":["caf\u00e9"]}"#)
    let answer = await patch(id, #"{"tags":["cafe\u0301"]}"#)
    let tag = answer.json?["tags"]?[0]?.string
    #expect(tag.map { Array($0.utf8) } == Array("cafe\u{301}".utf8))
  }

  @Test(
    "PATCH refuses all other members",
    arguments: [
      (#"{"phase":"success"}"#, 422), (#"{"priority":"x"}"#, 422), (#"{"tags":"x"}"#, 422),
      ("[]", 422),
      ("{", 400), (#"{"tags":["\#(String(repeating: "x", count: 70_000))"]}"#, 413),
    ])
  func refuses(json: String, status: Int) async throws {
    let id = try await client.submitted()
    #expect(await patch(id, json).status == status)
    #expect(client.service.with { $0.jobs[id]?.version } == 1)
  }

  @Test("another media type is 415 and lists the supported ones")
  func refusesType() async throws {
    let id = try await client.submitted()
    let answer = await patch(id, "{}", type: "application/json-patch+json")
    #expect(answer.status == 415)
    #expect(answer.fields[.acceptPatch] == "application/merge-patch+json, application/json")
  }
}

@Suite("GET /jobs")
struct ListTests {
  let client = Client()

  @Test("jobs are listed newest first, in pages joined by a cursor")
  func pages() async throws {
    var ids: [String] = []
    for _ in 0..<5 { ids.insert(try await client.submitted().description, at: 0) }
    var seen: [String] = []
    var target: String? = "/jobs?limit=2"
    while let next = target {
      let answer = await client.get(next)
      #expect(answer.status == 200)
      seen += answer.json?["jobs"]?.array?.compactMap { $0["id"]?.string } ?? []
      let link = answer.fields[.link]
      target = link.map { String($0.dropFirst().prefix { $0 != ">" }) }
      #expect((answer.json?["next_cursor"] == .null) == (link == nil))
      #expect(link?.hasSuffix(#">; rel="next""#) != false)
    }
    #expect(seen == ids)
  }

  @Test("jobs can be filtered by phases and a tag, which the link to the next page keeps")
  func filters() async throws {
    for tag in ["a b", "a b", "c"] {
      _ = try await client.submitted(#"{"url":"http://a/","tags":["\#(tag)"]}"#)
    }
    let id = try await client.submitted(#"{"url":"http://a/","tags":["a b"]}"#)
    client.service.change(id) { $0.start(at: $0.createdAt) }
    let queued = await client.get("/jobs?tag=a%20b&phase=queued&limit=1")
    #expect(queued.json?["jobs"]?.array?.count == 1)
    #expect(queued.fields[.link]?.contains("/jobs?phase=queued&tag=a%20b&limit=1&cursor=") == true)
    let both = await client.get("/jobs?tag=a+b&phase=queued&phase=loading")
    #expect(both.json?["jobs"]?.array?.count == 3)
    #expect(await client.get("/jobs?phase=failure").json?["jobs"] == .array([]))
  }

  @Test(
    "the filter by host accepts an IPv6 address with or without brackets",
    arguments: ["[::1]", "::1"])
  func addresses(host: String) async throws {
    _ = try await client.submitted(#"{"url":"http://[::1]/"}"#)
    #expect(await client.get("/jobs?host=\(host)").json?["jobs"]?.array?.count == 1)
    #expect(await client.get("/jobs?host=[::2]").json?["jobs"] == .array([]))
  }

  @Test("a time may have letters of either case", arguments: ["t09:30:00z", "T09:30:00.500Z"])
  func moments(time: String) async throws {
    _ = try await client.submitted()
    for (date, count) in [("2000-01-01", 1), ("2999-01-01", 0)] {
      let answer = await client.get("/jobs?since=\(date)\(time)")
      #expect(answer.json?["jobs"]?.array?.count == count, "\(answer.text)")
    }
  }

  @Test(
    "a wrong filter is 422",
    arguments: [
      ("limit=0", "limit"), ("limit=501", "limit"), ("limit=1.5", "limit"), ("limit=x", "limit"),
      ("phase=done", "phase"), ("cursor=x", "cursor"), ("tag=a&tag=b", "tag"), ("page=2", "page"),
      ("cursor=+123456789abcde0+123456789abcde0", "cursor"),
    ])
  func refuses(query: String, parameter: String) async {
    #expect(await client.get("/jobs?\(query)").mistakes == ["\(parameter) invalid_option"])
  }
}
