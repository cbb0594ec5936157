import TestSupport
import Testing

@Suite("Equal jobs", .timeLimit(.minutes(15)))
struct SharingTests {
  private let png = Fixtures.png
  private var half: Int { png.count / 2 }

  @Test("a thousand equal jobs in one request cause one request, and all have the image")
  func thousand() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", .held(png, after: half, by: gate))
      let job = ["url": origin.url("/x"), "cache": "no-store"]
      let ids = try await service.post(batch: Array(repeating: job, count: 1_000))
      try await eventually { try await service.all("loading").count == 1_000 }
      gate.open()
      try await eventually { try await service.all("success").count == 1_000 }
      #expect(origin.requests.count == 1)
      #expect(Set(try await service.all("success")) == Set(ids))
      for id in [ids[0], ids[500], ids[999]] {
        #expect(try await service.image(of: id) == png)
        #expect(try await service.job(id).attempts == 1)
      }
    }
  }

  @Test("equal jobs that arrive while the first is loading join it")
  func joining() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", .held(png, by: gate))
      let job = ["url": origin.url("/x"), "cache": "no-store"]
      var ids = [try await service.post(job)]
      #expect(await origin.waitForRequests(to: "/x"))
      ids += try await withThrowingTaskGroup { group in
        for _ in 0..<8 {
          group.addTask {
            var ids: [String] = []
            for _ in 0..<25 { ids.append(try await service.post(job)) }
            return ids
          }
        }
        return try await group.reduce(into: []) { $0 += $1 }
      }
      gate.open()
      let ends = try await service.outcomes(ids)
      #expect(ends.count == 201 && ends.allSatisfy { $0.phase == "success" })
      #expect(Set(ends.compactMap { $0.image?.etag }).count == 1)
      #expect(origin.requests.count == 1)
    }
  }

  @Test("jobs with another credential, field or cache mode are not shared")
  func different() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      // A job with the wrong response would have the wrong bytes.
      origin.on("/x") { request in
        let name = (request.header("Authorization") ?? "") + (request.header("X-Colour") ?? "")
        return .held(image(name), by: gate)
      }
      let url = origin.url("/x")
      let jobs: [([String: Any], String)] = [
        (["url": url], ""),
        (["url": url, "headers": ["Authorization": "Basic YQ=="]], "Basic YQ=="),
        (["url": url, "headers": ["Authorization": "Basic Yg=="]], "Basic Yg=="),
        (["url": url, "headers": ["X-Colour": "red"]], "red"),
        (["url": url, "cache": "reload"], ""),
        (["url": url, "headers": ["x-colour": "red"]], "red"),
      ]
      let ids = try await service.post(batch: jobs.map(\.0))
      #expect(await origin.waitForRequests(to: "/x", count: 5))
      gate.open()
      for (id, job) in zip(ids, jobs) {
        let end = try await service.outcome(id)
        #expect(end.phase == "success", "\(end.summary)")
        #expect(try await service.image(of: id) == image(job.1))
      }
      #expect(origin.requests.count == 5, "field names are compared without case")
    }
  }

  @Test("one owner's jobs share by cache_key, whatever their URLs, but not with other owners")
  func cacheKey() async throws {
    // The SHA-256 of "alpha" and "beta".
    let tokens = """
      [{name: a, sha256: 8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8, scopes: [jobs]}, \
      {name: b, sha256: f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753, scopes: [jobs]}]
      """
    let (a, b) = (["Authorization": "Bearer alpha"], ["Authorization": "Bearer beta"])
    try await withPipeline(["auth.tokens": tokens]) { service, origin in
      let gate = Gate()
      for path in ["/1", "/2", "/3"] { origin.on(path, .held(image(path), by: gate)) }
      func job(_ path: String) -> [String: Any] {
        ["url": origin.url(path), "cache_key": "cat"]
      }
      let first = try await service.post(job("/1"), headers: a)
      #expect(await origin.waitForRequests(to: "/1"))
      let second = try await service.post(job("/2"), headers: a)
      let others = try await service.post(job("/3"), headers: b)
      #expect(await origin.waitForRequests(to: "/3"))
      gate.open()
      let ends = [
        try await service.outcome(first, headers: a), try await service.outcome(second, headers: a),
        try await service.outcome(others, headers: b),
      ]
      #expect(ends.allSatisfy { $0.phase == "success" })
      #expect(ends[0].image?.etag == ends[1].image?.etag)
      #expect(ends[0].image?.etag != ends[2].image?.etag, "another owner's key is separate")
      // The cache separates them, too.
      let again = try await service.outcome(service.post(job("/2"), headers: b), headers: b)
      #expect(again.cache?.status == "hit" && again.image?.etag == ends[2].image?.etag)
      #expect(Set(origin.paths) == ["/1", "/3"])
    }
  }

  @Test("cancelling one job leaves the others, and the last cancel closes the connection")
  func cancelling() async throws {
    try await withPipeline { service, origin in
      var delays: [Duration] = []
      // The contract allows 100 ms. Other processes may slow down some rounds.
      for round in 0..<5 where delays.min() ?? .seconds(1) >= .milliseconds(100) {
        let path = "/\(round)"
        origin.on(path, .stalled(png, after: half))
        let job = ["url": origin.url(path)]
        let ids = try await service.post(batch: [job, job, job])
        for id in ids { try await service.wait(for: id) { $0.progress.completed == half } }
        let connection = try #require(origin.requests(to: path).first?.connection)
        try await service.cancel(ids[0])
        try await service.cancel(ids[2])
        #expect(try await service.job(ids[0]).phase == "cancelled")
        #expect(try await service.job(ids[1]).phase == "loading")
        #expect(origin.closed(connection) == nil)
        try await service.cancel(ids[1])
        let answered = ContinuousClock.now
        let closed = try #require(await origin.waitForClose(of: connection))
        delays.append(closed - answered)
        #expect(origin.requests(to: path).count == 1)
      }
      #expect(delays.min() ?? .seconds(10) < .seconds(2), "\(delays)")
    }
  }

  @Test("each job keeps its own limits, and a failing job does not disturb the others")
  func limits() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", .held(png, after: half, by: gate))
      let url = origin.url("/x")
      let jobs: [([String: Any], code: String?)] = [
        (["url": url], nil), (["url": url, "max_bytes": half], "too_large"),
        (["url": url, "max_pixels": 100], "too_many_pixels"),
        (["url": url, "timeout": 0.3, "max_attempts": 1], "timeout"),
        (["url": url, "integrity": integrity(png)], nil),
        (["url": url, "integrity": integrity([])], "integrity_mismatch"),
      ]
      let ids = try await service.post(batch: jobs.map(\.0))
      // These three jobs fail before the end of the transfer.
      for place in 1...3 {
        let end = try await service.outcome(ids[place])
        #expect(end.error?.code == jobs[place].code, "\(end.summary)")
      }
      #expect(try await service.job(ids[0]).phase == "loading")
      gate.open()
      for (id, job) in zip(ids, jobs) {
        let end = try await service.outcome(id)
        #expect(end.error?.code == job.code, "\(end.summary)")
        #expect(end.phase == (job.code == nil ? "success" : "failure"))
      }
      #expect(origin.requests.count == 1)
    }
  }

  @Test("a job that joins late shows the bytes received so far")
  func lateJoiner() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", .held(png, after: half, by: gate))
      let first = try await service.post(["url": origin.url("/x")])
      try await service.wait(for: first) { $0.progress.completed == half }
      let second = try await service.post(["url": origin.url("/x")])
      let shown = try await service.job(second)
      #expect(shown.phase == "loading" && shown.progress.completed == half)
      #expect(shown.progress.total == png.count && shown.attempts == 1)
      gate.open()
      #expect(try await service.outcome(second).phase == "success")
    }
  }

  @Test(
    "a job that joins at or just after the last byte succeeds",
    arguments: ["default", "no-store"])
  func atTheEnd(mode: String) async throws {
    try await withPipeline { service, origin in
      var ids: [String] = []
      for round in 0..<20 {
        let gate = Gate()
        origin.on("/\(round)", .held(png, after: png.count - 1, by: gate))
        let job = ["url": origin.url("/\(round)"), "cache": mode]
        ids.append(try await service.post(job))
        #expect(await origin.waitForRequests(to: "/\(round)"))
        gate.open()
        for _ in 0..<4 { ids.append(try await service.post(job)) }
      }
      for job in try await service.outcomes(ids) {
        #expect(job.phase == "success" && job.image?.bytes == png.count, "\(job.summary)")
      }
    }
  }

  @Test("a failure affects all jobs, and their next attempts share one request again")
  func failure() async throws {
    try await withPipeline(["jobs.retry_backoff.initial": "50ms"]) { service, origin in
      let gate = Gate()
      origin.on(
        "/x", inOrder: [ScriptedReply([.hold(gate)] + ScriptedReply.status(503).steps), .ok(png)])
      let job = ["url": origin.url("/x"), "cache": "reload"]
      let ids = try await service.post(batch: Array(repeating: job, count: 20))
      try await eventually { try await service.all("loading").count == 20 }
      gate.open()
      for end in try await service.outcomes(ids) {
        #expect(end.phase == "success" && end.attempts == 2, "\(end.summary)")
      }
      #expect(origin.requests.count == 2)
    }
  }

  @Test("a final failure affects all jobs with its reason")
  func finalFailure() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", ScriptedReply([.hold(gate)] + ScriptedReply.status(410).steps))
      let ids = try await service.post(
        batch: Array(repeating: ["url": origin.url("/x")], count: 10))
      try await eventually { try await service.all("loading").count == 10 }
      gate.open()
      for end in try await service.outcomes(ids) {
        #expect(end.error?.code == "origin_status" && end.error?.originStatus == 410)
      }
      #expect(origin.requests.count == 1)
    }
  }
}
