import Foundation
import TestSupport
import Testing

@Suite("Submissions that wait for their result", .timeLimit(.minutes(15)))
struct AwaitedTests {
  private let png = Fixtures.smallPNG

  private func submit(
    _ service: RunningService, _ json: Any, _ query: String, key: String? = nil
  ) async throws -> [String: Any] {
    var headers = ["Content-Type": "application/json"]
    headers["Idempotency-Key"] = key
    let answer = try await service.send(
      "POST", "/jobs?" + query, headers: headers,
      body: JSONSerialization.data(withJSONObject: json))
    #expect(answer.status == 202)
    return try answer.json()
  }

  @Test(
    "a waiting request shows a job's whole life: its retry, a crash, its end and its deletion")
  func wholeLife() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on(
      "/x", inOrder: [.status(503, headers: [("Retry-After", "3600")]), .ok(png)])
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = environment(["jobs.retry_backoff.maximum": "4s", "jobs.workers": "2"])
    let service = try await RunningService(folder: folder, settings: settings)
    let job: [String: Any] = ["url": origin.url("/x")]
    let id = try #require(try await submit(service, job, "wait=0", key: "k")["id"] as? String)
    var waiting: [String: Any] = [:]
    try await eventually {
      waiting = try await service.get("/jobs/\(id)").json()
      return waiting["last_error"] is [String: Any]
    }
    try Self.check(waiting, origin)
    // Everything is stored, except the reason that the job waits for.
    try await service.kill()
    let next = try await RunningService(folder: folder, settings: settings)
    let restarted = try await next.get("/jobs/\(id)").json()
    #expect(restarted["next_attempt_at"] as? String == waiting["next_attempt_at"] as? String)
    if restarted["phase"] as? String == "queued" { try Self.check(restarted, origin) }

    let done = try await submit(next, job, "wait=50", key: "k")
    #expect(done["id"] as? String == id && done["phase"] as? String == "success")
    #expect(done["attempts"] as? Int == 2)
    for member in ["last_error", "next_attempt_at", "waiting_for"] {
      #expect(done[member] is NSNull, "\(member)")
    }
    #expect(try await next.send("DELETE", "/jobs/\(id)?purge=true").status == 204)
    let gone = try await submit(next, job, "wait=50", key: "k")
    #expect(gone.count == 2 && gone["id"] as? String == id && gone["phase"] as? String == "gone")
    #expect(origin.requests.count == 2)
    #expect(try await next.stop() == 0)
  }

  private static func check(_ job: [String: Any], _ origin: ScriptedOrigin) throws {
    let error = try #require(job["last_error"] as? [String: Any])
    #expect(error["code"] as? String == "origin_status" && error["origin_status"] as? Int == 503)
    #expect(job["error"] is NSNull)
    let due = try #require(job["next_attempt_at"] as? String)
    let waiting = try #require(job["waiting_for"] as? [String: Any])
    // Once the retry is due, the job waits for a worker.
    if waiting["reason"] as? String == "retry" { #expect(waiting["until"] as? String == due) }
    #expect(waiting["origin"] as? String == "http://127.0.0.1:\(origin.port)")
  }

  @Test("a request that waits for several jobs is answered when all have ended")
  func batch() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/a", .ok(png))
      origin.on("/b", .held(png, by: gate))
      let urls = ["/a", "/b", "/none"].map { ["url": origin.url($0)] }
      async let answer = submit(service, urls, "wait=50")
      #expect(await origin.waitForRequests(to: "/b"))
      gate.open()
      let jobs = try #require(try await answer["jobs"] as? [[String: Any]])
      #expect(jobs.map { $0["phase"] as? String } == ["success", "success", "failure"])
    }
  }

  @Test("a waiting request is answered when the service stops, and its job is not lost")
  func draining() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/stuck", inOrder: [.stalled(png, after: 20), .ok(png)])
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = environment(["server.drain_timeout": "100ms"])
    let service = try await RunningService(folder: folder, settings: settings)
    async let answer = submit(service, ["url": origin.url("/stuck")], "wait=60")
    #expect(await origin.waitForRequests(to: "/stuck", count: 1))
    let stopped = ContinuousClock.now
    service.terminate()
    let job = try await answer
    #expect(ContinuousClock.now - stopped < .seconds(40))
    #expect(["queued", "loading"].contains(job["phase"] as? String))
    #expect(try await service.ended() == 0)
    let next = try await RunningService(folder: folder, settings: settings)
    let id = try #require(job["id"] as? String)
    #expect(try await next.finished(id)["phase"] as? String == "success")
    #expect(try await next.stop() == 0)
  }

  @Test("a key returns the same job until the key expires")
  func keys() async throws {
    try await withPipeline(["api.idempotency_ttl": "1s"]) { service, origin in
      origin.on("/x", .ok(png))
      let job = ["url": origin.url("/x")]
      let first = try await submit(service, job, "wait=50", key: "k")["id"] as? String
      try await eventually {
        try await submit(service, job, "wait=50", key: "k")["id"] as? String != first
      }
    }
  }
}
