import Foundation
import TestSupport
import Testing

@Suite("A service whose wall clock jumps", .timeLimit(.minutes(15)))
struct ClockJumpTests {
  private static let hour = 3_600_000_000_000

  @Test(
    "each job ends once, waiting jobs are retried, and nothing is deleted too early",
    arguments: [5 * hour, -72 * hour])
  func jumps(by offset: Int) async throws {
    let disk = try await RecordedDisk()
    defer { disk.remove() }
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let settings = environment([
      "jobs.workers": "4", "jobs.retention": "7d", "jobs.retry_backoff.initial": "2s",
      "webhooks.allow_networks": "127.0.0.0/8", "webhooks.allow_http": "true",
      "webhooks.allow_ports": "", "webhooks.retry": "2s,2s,2s",
    ]).merging(disk.settings) { $1 }
    let bytes = { (name: String) in image(name, from: Fixtures.smallPNG) }
    origin.on("/ended", .ok(bytes("ended")))
    origin.on("/loading", .dripped(bytes("loading"), size: 20, every: .milliseconds(200)))
    origin.on(
      "/retried", inOrder: [.status(503, headers: [("Retry-After", "2")]), .ok(bytes("retried"))])
    origin.on("/queued", .ok(bytes("queued")))
    origin.on("/hook", inOrder: [.status(500), .status(204)])
    let service = try await RunningService(folder: disk.folder, settings: settings)
    var jobs: [String: String] = [:]
    jobs["ended"] = try await service.run([
      "url": origin.url("/ended"), "notify": ["url": origin.url("/hook")],
    ]).id
    for name in ["loading", "retried"] {
      jobs[name] = try await service.post(["url": origin.url("/\(name)")])
      await origin.waitForRequests(to: "/\(name)")
    }
    try await service.wait(for: jobs["retried"]!) { $0.phase == "queued" && $0.attempts == 1 }
    await origin.waitForRequests(to: "/hook")

    disk[.clockOffset] = offset
    jobs["queued"] = try await service.post(["url": origin.url("/queued")])
    try await Self.expectAll(jobs, on: service)
    #expect(try await service.stop() == 0)

    // The service starts with the wrong time, and the clock is corrected while it runs.
    let next = try await RunningService(folder: disk.folder, settings: settings)
    try await Self.expectAll(jobs, on: next)
    origin.on("/after", .ok(bytes("after")))
    jobs["after"] = try await next.run(["url": origin.url("/after")]).id
    disk[.clockOffset] = 0
    origin.on("/right", .ok(bytes("right")))
    origin.on("/other", .status(204))
    // This job's message triggers a check of the others, which otherwise happens once per minute.
    jobs["right"] = try await next.run([
      "url": origin.url("/right"), "notify": ["url": origin.url("/other")],
    ]).id
    try await Self.expectAll(jobs, on: next)
    #expect(await origin.waitForRequests(to: "/hook", count: 2), "the message is sent again")
    for name in jobs.keys {
      let count = origin.requests(to: "/\(name)").count
      #expect(count == (name == "retried" ? 2 : 1), "\(name) was asked for \(count) times")
    }
    #expect(try await next.stop() == 0)
  }

  private static func expectAll(_ jobs: [String: String], on service: RunningService) async throws {
    for (name, id) in jobs {
      let job = try await service.outcome(id)
      #expect(job.phase == "success", "\(job.summary)")
      #expect(try await service.image(of: id) == image(name))
    }
  }
}
