import Foundation
import TestSupport
import Testing

@Suite("A service whose disk is slow or fails", .timeLimit(.minutes(15)))
struct DiskFaultTests {
  /// Runs the body with a service on a disk that the test controls.
  private static func withDisk(
    _ body: (RunningService, ScriptedOrigin, RecordedDisk) async throws -> Void
  ) async throws {
    let disk = try await RecordedDisk()
    defer { disk.remove() }
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let service = try await RunningService(
      folder: disk.folder, settings: environment([:]).merging(disk.settings) { $1 })
    try await body(service, origin, disk)
    if service.isRunning { try await service.kill() }
  }

  /// Runs two jobs until they have ended. One image is in the database, the other in a file.
  private static func runTwo(
    _ service: RunningService, _ origin: ScriptedOrigin
  ) async throws -> [(id: String, bytes: [UInt8])] {
    var ended: [(id: String, bytes: [UInt8])] = []
    for (path, picture) in [("/small", Fixtures.smallPNG), ("/filed", Fixtures.filedPNG)] {
      origin.on(path, .ok(picture))
      ended.append((try await service.run(["url": origin.url(path)]).id, picture))
    }
    return ended
  }

  private static func expectAll(
    _ jobs: [(id: String, bytes: [UInt8])], on service: RunningService
  ) async throws {
    for job in jobs {
      #expect(try await service.outcome(job.id).phase == "success")
      #expect(try await service.image(of: job.id) == job.bytes)
    }
  }

  @Test("reads are answered while a sync hangs, and nothing is lost")
  func slow() async throws {
    try await Self.withDisk { service, origin, disk in
      var jobs = try await Self.runTwo(service, origin)
      origin.on("/late", .ok(image("late")))
      let before = disk.moment
      disk[.areSyncsHeld] = 1
      async let late = service.post(["url": origin.url("/late")])
      var sync: DiskChange?
      try await eventually {
        sync = try disk.changes().first { $0.moment > before && $0.kind == .sync }
        return sync != nil
      }
      for path in ["/livez", "/metrics", "/jobs?limit=10"] + jobs.map({ "/jobs/\($0.id)" }) {
        #expect(try await service.get(path).status == 200)
      }
      for job in jobs { #expect(try await service.image(of: job.id) == job.bytes) }
      let isDone = try disk.changes().contains { $0.kind == .synced && $0.at == sync?.at }
      #expect(!isDone, "the requests had to wait")
      disk[.areSyncsHeld] = 0
      jobs.append((try await late, image("late")))
      try await Self.expectAll(jobs, on: service)
      try await disk.cutPower(of: service)
      let next = try await RunningService(folder: disk.folder, settings: environment([:]))
      try await Self.expectAll(jobs, on: next)
      #expect(try await next.stop() == 0)
    }
  }

  @Test("a read-only disk makes the service refuse jobs but serve images, and it recovers")
  func readOnly() async throws {
    try await Self.withDisk { service, origin, disk in
      var jobs = try await Self.runTwo(service, origin)
      let late = image("late")
      origin.on("/late", .dripped(late, size: late.count / 4, every: .milliseconds(100)))
      let id = try await service.post(["url": origin.url("/late")])
      await origin.waitForRequests(to: "/late")
      disk[.isReadOnly] = 1
      let refusal = try await service.submit(["url": origin.url("/small")])
      #expect(refusal.status == 503 && refusal.headers["retry-after"] != nil)
      #expect(try refusal.json()["code"] as? String == "store_unavailable")
      let upload = try await service.send(
        "POST", "/jobs", headers: ["Content-Type": "image/png"], body: Data(Fixtures.filedPNG + [1])
      )
      #expect(upload.status == 503)
      #expect(try await service.get("/livez").status == 200)
      #expect(try await service.get("/jobs?limit=10").status == 200)
      try await Self.expectAll(jobs, on: service)
      // The image has arrived, but the result cannot be saved yet.
      try await eventually { service.log.contains("failed to save a job's result, retrying") }
      #expect(try await service.job(id).phase == "loading")
      disk[.isReadOnly] = 0
      jobs.append((id, late))
      try await Self.expectAll(jobs, on: service)
      jobs += try await Self.runTwo(service, origin)
      try await Self.expectAll(jobs, on: service)
      #expect(try await service.stop() == 0)

      disk[.isReadOnly] = 1
      let refused = await #expect(throws: RunningService.Unstarted.self) {
        _ = try await RunningService(
          folder: disk.folder, settings: environment([:]).merging(disk.settings) { $1 })
      }
      let said = refused?.log ?? ""
      #expect(said.contains("Read-only file system") || said.contains("readonly"), "\(said)")
    }
  }
}
