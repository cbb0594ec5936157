import Foundation
import TestSupport
import Testing

@Suite("Corrupt images on the disk", .timeLimit(.minutes(15)))
struct HarmedImageTests {
  private let png = Fixtures.filedPNG

  /// Changes a byte of the only stored image.
  private func harm(in folder: String) throws {
    let file = try #require(try FileManager.default.images(below: folder).first)
    let handle = try #require(
      FileHandle(forUpdatingAtPath: folder + "/data/images/" + file))
    defer { try? handle.close() }
    let last = UInt64(png.count - 20)
    try handle.seek(toOffset: last)
    try handle.write(contentsOf: [png[Int(last)] ^ 0xFF])
  }

  @Test(
    "corrupt images are not served, rendered or reused, even after a restart, but fetched again")
  func harmed() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/a", .ok(png, headers: [("Cache-Control", "max-age=3600")]))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = environment(["cache.memory": "0"])
    var service = try await RunningService(folder: folder, settings: settings)
    let id = try await service.post(["url": origin.url("/a")])
    #expect(try await service.outcome(id).phase == "success")
    for (round, isRestarted) in [true, false].enumerated() {
      if isRestarted { #expect(try await service.stop() == 0) }
      try harm(in: folder)
      if isRestarted { service = try await RunningService(folder: folder, settings: settings) }
      for query in ["", "?width=3&format=png", ""] {
        let answer = try await service.get("/jobs/\(id)/image\(query)")
        #expect(answer.status == 410)
        #expect(try answer.json()["code"] as? String == "image_gone")
      }
      // The response does not wait for the deletion of the bytes.
      try await eventually { try FileManager.default.images(below: folder).isEmpty }
      let next = try await service.run(["url": origin.url("/a")])
      #expect(next.cache?.status == "miss", "\(next.summary)")
      #expect(origin.requests(to: "/a").count == 2 + round)
      #expect(try await service.image(of: next.id) == png)
      try await service.fetchAgain(id)
      #expect(try await service.outcome(id).phase == "success")
      #expect(try await service.image(of: id) == png)
      #expect(try await service.get("/jobs/\(id)/image?width=3&format=png").status == 200)
      let purged = try await service.send("DELETE", "/jobs/\(next.id)?purge=true")
      #expect([200, 204].contains(purged.status))
      _ = try await service.send("DELETE", "/cache")
    }
    #expect(service.log.contains("changed on disk"))
    #expect(try await service.stop() == 0)
  }
}
