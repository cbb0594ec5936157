import Foundation
import TestSupport
import Testing

@Suite("A killed service", .timeLimit(.minutes(15)))
struct CrashTests {
  @Test(
    "all of 200 acknowledged jobs finish after the restart, with the origin's bytes")
  func kill() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    // Bytes after the image's end make each body unique. Every tenth body is corrupt, and every eighth is
    // stored in a file.
    @Sendable func isFiled(_ target: String) -> Bool { Int(target.dropFirst())! % 8 == 0 }
    @Sendable func body(_ target: String) -> [UInt8] {
      (isFiled(target) ? Fixtures.filedPNG : Fixtures.smallPNG) + Array(target.utf8)
    }
    for number in 0..<200 {
      origin.on("/\(number)") { request in
        number % 10 == 9
          ? .ok(Array(Fixtures.smallPNG.prefix(30)))
          : .dripped(
            body(request.target), size: body(request.target).count / 2, every: .milliseconds(20))
      }
    }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = ["IMAGEFETCH_JOBS_WORKERS": "8", "IMAGEFETCH_FETCH_MAX_PER_HOST": "8"]
    let service = try await RunningService(folder: folder, settings: settings)
    let acknowledged = try await submit(200, to: service, origin)
    try await eventually {
      let done = try await service.get("/jobs?phase=success&limit=500").json()["jobs"] as? [Any]
      return (done?.count ?? 0) >= 40
    }
    try await service.kill()

    // A crash may leave a half-written file, and a stored file that no job refers to.
    let incoming = folder + "/data/images/incoming/left-behind"
    try Data([1, 2, 3]).write(to: URL(fileURLWithPath: incoming))
    let orphan = folder + "/data/images/ab/" + String(repeating: "c", count: 62)
    try Data([1, 2, 3]).write(to: URL(fileURLWithPath: orphan))

    let next = try await RunningService(folder: folder, settings: settings)
    var filed: Set<String> = []
    for (id, path) in acknowledged {
      let job = try await next.finished(id)
      let isBroken = Int(path.dropFirst())! % 10 == 9
      #expect(job["phase"] as? String == (isBroken ? "failure" : "success"), "\(path)")
      guard !isBroken else { continue }
      let answer = try await next.get("/jobs/\(id)/image")
      #expect(Array(answer.body) == body(path))
      if isFiled(path) { filed.insert(answer.headers["etag"] ?? "") }
    }
    // The sweep runs concurrently with the work.
    try await eventually { try FileManager.default.images(below: folder).count <= filed.count }
    let files = try FileManager.default.images(below: folder)
    #expect(files.count == filed.count && filed.count >= 20, "no orphan is left")
    #expect(try await next.stop() == 0)
  }

  /// Submits sixteen jobs at a time. Each is acknowledged separately.
  private func submit(
    _ count: Int, to service: RunningService, _ origin: ScriptedOrigin
  ) async throws -> [(id: String, path: String)] {
    try await withThrowingTaskGroup(of: (id: String, path: String).self) { group in
      var all: [(id: String, path: String)] = []
      for number in 0..<count {
        if number >= 16, let one = try await group.next() { all.append(one) }
        group.addTask { (try await service.submit(url: origin.url("/\(number)")), "/\(number)") }
      }
      for try await one in group { all.append(one) }
      return all
    }
  }
}
