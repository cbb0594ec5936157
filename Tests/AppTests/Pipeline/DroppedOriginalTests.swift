import Digests
import Foundation
import TestSupport
import Testing

@Suite("A dropped original", .timeLimit(.minutes(15)))
struct DroppedOriginalTests {
  private static var wanted: [[String: Any]] {
    [["width": 120], ["name": "card", "width": 60, "height": 60, "fit": "cover", "format": "png"]]
  }

  /// Whether these bytes occur in any file of the service.
  private static func keeps(_ bytes: [UInt8], _ service: RunningService) throws -> Bool {
    let names = try FileManager.default.subpathsOfDirectory(atPath: service.folder + "/data")
    return names.contains { name in
      let path = service.folder + "/data/" + name
      return FileManager.default.contents(atPath: path)?.range(of: Data(bytes)) != nil
    }
  }

  /// Checks that each variant is available by its name and by its options, with its own tag.
  private static func check(_ job: ShownJob, _ service: RunningService) async throws {
    let variants = try #require(job.image?.variants)
    #expect(variants.map(\.name) == ["v0", "card"])
    let queries = ["width=120", "width=60&height=60&fit=cover&format=png"]
    for (variant, query) in zip(variants, queries) {
      let named = try await service.get(variant.href)
      #expect(named.status == 200 && named.body.count == variant.bytes, "\(variant)")
      let digest = SHA256.hash(data: named.body).map { String(format: "%02x", $0) }.joined()
      #expect(variant.etag == "\"sha256-\(digest)\"" && named.headers["etag"] == variant.etag)
      let asked = try await service.get("/jobs/\(job.id)/image?\(query)")
      #expect(asked.body == named.body && asked.headers["etag"] == variant.etag)
      let known = try await service.get(variant.href, headers: ["If-None-Match": variant.etag])
      #expect(known.status == 304)
      let part = try await service.get(variant.href, headers: ["Range": "bytes=2-9"])
      #expect(part.status == 206 && part.body == named.body[2..<10])
    }
    for query in ["", "?width=7"] {
      let gone = try await service.get("/jobs/\(job.id)/image\(query)")
      #expect(gone.status == 410)
      #expect(try gone.json()["code"] as? String == "image_gone")
    }
    let instead = try await service.get("/jobs/\(job.id)/image?placeholder=true")
    #expect(instead.status == 200 && instead.headers["image-phase"] == "gone")
  }

  @Test(
    "a dropped original is checked and hashed, but only its variants are kept",
    arguments: ["photo.jpg", "photo.png", "photo.webp"], [true, false])
  func dropped(name: String, isSmall: Bool) async throws {
    // Bytes after the image's end belong to it and occur in no other file.
    let file = Fixtures.image(name) + (0..<(isSmall ? 64 : 200_000)).map { UInt8($0 * 7 % 251) }
    try await withPipeline { service, origin in
      origin.on("/x", .ok(file, headers: [("Cache-Control", "max-age=3600")]))
      let job = try await service.run(
        ["url": origin.url("/x"), "variants": Self.wanted, "original": "drop"])
      #expect(job.phase == "success", "\(job.summary)")
      let digest = SHA256.hash(data: file).map { String(format: "%02x", $0) }.joined()
      #expect(job.image?.sha256 == digest && job.image?.etag == "\"sha256-\(digest)\"")
      #expect(job.image?.bytes == file.count && job.image?.original == "drop")
      #expect(job.cache?.status == "miss" && job.cache?.freshUntil == nil)
      try await Self.check(job, service)
      // Bytes that a variant was rendered from are deleted at the next cleanup.
      let tail = Array(file.suffix(48))
      await service.within(.seconds(30)) { try !Self.keeps(tail, service) }
      #expect(try !Self.keeps(tail, service))
      // The dropped original answers no later job.
      let later = try await service.run(["url": origin.url("/x")])
      #expect(later.cache?.status == "miss" && origin.requests(to: "/x").count == 2)
      #expect(try await service.image(of: later.id) == file)
      // A cached image answers a job that drops its original.
      let again = try await service.run(
        ["url": origin.url("/x"), "variants": Self.wanted, "original": "drop"])
      #expect(again.cache?.status == "hit" && origin.requests(to: "/x").count == 2)
      try await Self.check(again, service)
    }
  }

  @Test(
    "a dropped original that is newer than the stored image invalidates it",
    arguments: ["no-cache", "reload"])
  func superseded(mode: String) async throws {
    try await withPipeline { service, origin in
      let fresh = [("Cache-Control", "max-age=3600")]
      origin.on(
        "/x", inOrder: ["1", "2", "3"].map { .ok(image($0, from: Fixtures.jpeg), headers: fresh) })
      let first = try await service.run(["url": origin.url("/x")])
      let dropped = try await service.run([
        "url": origin.url("/x"), "cache": mode, "variants": Self.wanted, "original": "drop",
      ])
      #expect(dropped.cache?.status == "miss", "\(dropped.summary)")
      let later = try await service.run(["url": origin.url("/x")])
      #expect(later.cache?.status == "miss")
      #expect(try await service.image(of: later.id) == image("3", from: Fixtures.jpeg))
      #expect(try await service.image(of: first.id) == image("1", from: Fixtures.jpeg))
    }
  }

  @Test("an uploaded original can be dropped, too")
  func captured() async throws {
    let file = Fixtures.jpeg + [UInt8](repeating: 7, count: 100_000)
    try await withPipeline { service, _ in
      let query = "?original=drop&variants=%5B%7B%22width%22%3A120%7D%5D"
      let job = try await service.capture(file, query: query)
      #expect(job.phase == "success" && job.image?.bytes == file.count, "\(job.summary)")
      let variant = try #require(job.image?.variants.first)
      #expect(try await service.get(variant.href).body.count == variant.bytes)
      #expect(try await service.get("/jobs/\(job.id)/image").status == 410)
      await service.within(.seconds(30)) { try !Self.keeps(Array(file.suffix(90_000)), service) }
      #expect(try !Self.keeps(Array(file.suffix(90_000)), service))
    }
  }

  @Test("variants survive a crash, and a job that was loading is loaded again")
  func crash() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let (file, gate) = (Fixtures.jpeg, Gate())
    origin.on("/x", .ok(file))
    origin.on("/held", .held(file, after: file.count - 9, by: gate))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = environment([:])
    let service = try await RunningService(folder: folder, settings: settings)
    let members: [String: Any] = ["variants": Self.wanted, "original": "drop"]
    let job = try await service.run(members.merging(["url": origin.url("/x")]) { $1 })
    let held = try await service.post(members.merging(["url": origin.url("/held")]) { $1 })
    try await service.wait(for: held) { $0.progress.completed > 0 }
    try await service.kill()
    gate.open()
    let next = try await RunningService(folder: folder, settings: settings)
    try await Self.check(try await next.job(job.id), next)
    try await Self.check(try await next.outcome(held), next)
    #expect(try await next.stop() == 0)
  }

  @Test("jobs with different variants share a transfer, each with its own variants")
  func shared() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      let file = Fixtures.jpeg
      origin.on("/x", .held(file, after: 100, by: gate))
      let ids = try await service.post(
        batch: [40, 50, 60].map { width in
          ["url": origin.url("/x"), "variants": [["width": width]], "original": "drop"]
        })
      try await service.wait(for: ids[0]) { $0.progress.completed > 0 }
      gate.open()
      for (job, width) in zip(try await service.outcomes(ids), [40, 50, 60]) {
        let variant = try #require(job.image?.variants.first, "\(job.summary)")
        #expect(variant.width == width)
        #expect(try await service.get(variant.href).body.count == variant.bytes)
      }
      #expect(origin.requests(to: "/x").count == 1)
    }
  }
}
