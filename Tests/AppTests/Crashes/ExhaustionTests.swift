import Foundation
import TestSupport
import Testing

@Suite("A service that runs out of descriptors or threads", .timeLimit(.minutes(5)))
struct ExhaustionTests {
  /// Starts it where the system gives it so little.
  private static func limited(_ limits: String, in folder: String) throws -> String {
    let path = folder + "/limited"
    let script = "#!/bin/sh\n\(limits)\nexec '\(RunningService.executable)' \"$@\"\n"
    try script.write(toFile: path, atomically: true, encoding: .utf8)
    try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: path)
    return path
  }

  @Test("keeps descriptors for jobs, however many connections come, and says so")
  func descriptors() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let service = try await RunningService(
      folder: folder, settings: environment(["jobs.workers": "4", "fetch.max_per_host": "4"]),
      program: try Self.limited("ulimit -n 192", in: folder))
    for number in 0..<16 {
      origin.on(
        "/\(number)",
        .dripped(Self.picture(number), size: 4_000, every: .milliseconds(100)))
    }
    let ids = try await service.post(batch: (0..<16).map { ["url": origin.url("/\($0)")] })
    // Each has asked for something, so that none is closed for one that has.
    let port = try #require(Int(service.base.split(separator: ":").last!))
    var crowd: [RawConnection] = []
    for _ in 0..<300 {
      let connection = try RawConnection(port)
      connection.send("GET /jobs/\(ids[0]) HTTP/1.1\r\nHost: x\r\n")
      crowd.append(connection)
    }
    // All of theirs, beside what an idle service has.
    try await eventually { Self.descriptors(of: service) > 48 + 32 }
    await origin.waitForRequests(to: "/15")
    #expect(Self.descriptors(of: service) < 192)
    crowd = []
    for (number, id) in ids.enumerated() {
      let job = try await service.outcome(id)
      #expect(job.phase == "success", "\(job.summary)")
      #expect(try await service.image(of: id) == Self.picture(number))
    }
    #expect(try await service.get("/readyz").status == 200)
    #expect(service.log.contains("fewer connections than configured"))
    // As it would be for want of a descriptor.
    #expect(!service.log.contains("connect_failure") && !service.log.contains("storage_full"))
    #expect(try await service.stop() == 0)
  }

  private static func picture(_ number: Int) -> [UInt8] {
    image(
      "\(number)", from: number % 2 == 0 ? Fixtures.filedPNG : Fixtures.smallPNG)
  }

  private static func descriptors(of service: RunningService) -> Int {
    let path = "/proc/\(service.processIdentifier)/fd"
    return (try? FileManager.default.contentsOfDirectory(atPath: path).count) ?? 0
  }
}
