import TestSupport
import Testing

@Suite("The order of jobs", .timeLimit(.minutes(15)))
struct PriorityTests {
  /// Runs the body while a first job blocks the only worker, and then releases it.
  /// - Returns: The paths requested after that, once there are `count` requests.
  private func order(
    of count: Int, _ body: (RunningService, ScriptedOrigin) async throws -> Void
  ) async throws -> [String] {
    var paths: [String] = []
    try await withPipeline(["jobs.workers": "1"]) { service, origin in
      let gate = Gate()
      origin.on("/first", .held(Fixtures.smallPNG, by: gate))
      _ = try await service.post(["url": origin.url("/first")])
      #expect(await origin.waitForRequests(to: "/first"))
      try await body(service, origin)
      gate.open()
      await poll { origin.requests.count > count }
      let ids = try await service.all("queued") + service.all("loading")
      for id in ids { _ = try await service.outcome(id) }
      paths = Array(origin.paths.dropFirst())
    }
    return paths
  }

  @Test("jobs run by priority, and within one priority in the order of submission")
  func levels() async throws {
    let paths = try await order(of: 7) { service, origin in
      let jobs = [
        ("/a", "low"), ("/b", "normal"), ("/c", "high"), ("/d", "normal"), ("/e", "very_high"),
        ("/f", "very_low"), ("/g", "high"),
      ]
      _ = try await service.post(
        batch: jobs.map { ["url": origin.url($0.0), "priority": $0.1, "max_attempts": 1] })
    }
    #expect(paths == ["/e", "/c", "/g", "/b", "/d", "/a", "/f"])
  }

  @Test("a raised job goes behind the jobs of its new priority, a lowered one ahead of them")
  func changes() async throws {
    let paths = try await order(of: 6) { service, origin in
      let jobs = [
        ("/raised", "normal"), ("/high 1", "high"), ("/lowered", "high"), ("/high 2", "high"),
        ("/normal 1", "normal"), ("/normal 2", "normal"),
      ]
      let ids = try await service.post(
        batch: jobs.map { path, priority in
          ["url": origin.url(path.replacing(" ", with: "-")), "priority": priority]
        })
      try await service.setPriority(of: ids[0], to: "high")
      try await service.setPriority(of: ids[2], to: "normal")
      #expect(try await service.job(ids[0]).priority == "high")
    }
    #expect(paths == ["/high-1", "/high-2", "/raised", "/lowered", "/normal-1", "/normal-2"])
  }

  @Test("a running job's priority can be changed")
  func running() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", .held(Fixtures.smallPNG, by: gate))
      let id = try await service.post(["url": origin.url("/x")])
      let before = try await service.wait(for: id) { $0.phase == "loading" }
      #expect(await origin.waitForRequests(to: "/x"))
      try await service.setPriority(of: id, to: "very_low")
      let after = try await service.job(id)
      #expect(after.phase == "loading" && after.priority == "very_low")
      #expect(after.version > before.version)
      gate.open()
      let end = try await service.outcome(id)
      #expect(end.phase == "success" && end.priority == "very_low" && end.attempts == 1)
    }
  }

  @Test("equal jobs run at the highest of their priorities, with one request")
  func equalJobs() async throws {
    let paths = try await order(of: 2) { service, origin in
      origin.on("/equal", .ok(Fixtures.smallPNG))
      let jobs = [("/equal", "low"), ("/other", "normal"), ("/equal", "high")]
      _ = try await service.post(
        batch: jobs.map { ["url": origin.url($0.0), "priority": $0.1, "cache": "no-store"] })
    }
    #expect(paths == ["/equal", "/other"])
  }

  @Test("when the highest equal job is cancelled, the others run at their own priority")
  func equalJobsLeft() async throws {
    let paths = try await order(of: 2) { service, origin in
      origin.on("/equal", .ok(Fixtures.smallPNG))
      let jobs = [("/equal", "low"), ("/other", "normal"), ("/equal", "high")]
      let ids = try await service.post(
        batch: jobs.map { ["url": origin.url($0.0), "priority": $0.1] })
      try await service.cancel(ids[2])
    }
    #expect(paths == ["/other", "/equal"])
  }

  @Test("a job that waits for its host or its next attempt occupies no worker")
  func waiting() async throws {
    let settings = ["jobs.workers": "2", "fetch.max_per_host": "1"]
    try await withPipeline(settings) { service, busy in
      let other = try ScriptedOrigin()
      defer { other.stop() }
      let gate = Gate()
      for number in 0..<5 { busy.on("/\(number)", .held(image("\(number)"), by: gate)) }
      other.on("/later", .status(503, headers: [("Retry-After", "30")]))
      other.on("/x", .ok(Fixtures.smallPNG))
      let held = try await service.post(batch: (0..<5).map { ["url": busy.url("/\($0)")] })
      let later = try await service.post(["url": other.url("/later")])
      try await service.wait(for: later) { $0.phase == "queued" && $0.attempts == 1 }
      #expect(try await service.run(["url": other.url("/x")]).phase == "success")
      #expect(busy.requests.count == 1)
      gate.open()
      for job in try await service.outcomes(held) { #expect(job.phase == "success") }
      #expect(busy.mostAtOnce == 1)
    }
  }
}
