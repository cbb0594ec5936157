import Foundation
import TestSupport
import Testing

@Suite("Variants of images", .timeLimit(.minutes(15)))
struct VariantRunTests {
  /// Decodes an image with Pillow and returns its format and size: `JPEG 60x40`.
  private static func seen(_ picture: Data) throws -> String {
    let script = """
      import sys, io
      from PIL import Image
      image = Image.open(io.BytesIO(sys.stdin.buffer.read()))
      image.load()
      print(image.format, "%dx%d" % image.size, end="")
      """
    return try ChildProcess.run(["/usr/bin/python3", "-c", script], input: picture).text
  }

  private static func variants(
    _ service: RunningService, _ format: String, _ outcome: String
  ) async throws -> Int {
    try await metric(service, "total{format=\"\(format)\",outcome=\"\(outcome)\"}")
  }

  /// Returns a metric's value; 0 if nothing was counted.
  private static func metric(_ service: RunningService, _ name: String) async throws -> Int {
    let text = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
    let name = "imagefetch_variants_\(name) "
    let line = text.split(separator: "\n").first { $0.hasPrefix(name) }
    return line.flatMap { Int($0.dropFirst(name.count)) } ?? 0
  }

  @Test("a variant has the requested size and format")
  func pictures() async throws {
    try await withPipeline { service, origin in
      // The image has 480 x 320 pixels.
      origin.on("/x", .ok(Fixtures.jpeg))
      let id = try await service.run(["url": origin.url("/x")]).id
      for (query, accept, expected) in [
        ("width=60", "*/*", "JPEG 60x40"), ("height=40&format=png", "*/*", "PNG 60x40"),
        ("width=60&height=60&fit=cover", "*/*", "JPEG 60x60"),
        ("width=60&height=60&fit=fill&dpr=1.5&format=png", "*/*", "PNG 90x90"),
        ("width=9999", "*/*", "JPEG 480x320"), ("format=auto&width=48", "image/png", "PNG 48x32"),
        ("quality=10&format=jpeg", "*/*", "JPEG 480x320"),
      ] {
        let answer = try await service.get(
          "/jobs/\(id)/image?\(query)", headers: ["Accept": accept])
        #expect(answer.status == 200, "\(query)")
        #expect(try Self.seen(answer.body) == expected, "\(query)")
        let kind = expected.prefix { $0 != " " }.lowercased()
        #expect(answer.headers["content-type"] == "image/\(kind)")
        #expect(answer.headers["content-length"] == "\(answer.body.count)")
      }
      #expect(try await Data(service.image(of: id)) == Data(Fixtures.jpeg))
    }
  }

  @Test("the tag, ranges, 304 and HEAD of a variant belong to the same bytes")
  func representation() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", .ok(Fixtures.png))
      let id = try await service.run(["url": origin.url("/x")]).id
      let whole = try await service.get("/jobs/\(id)/image?width=80&format=png")
      let tag = try #require(whole.headers["etag"])
      let same = "/jobs/\(id)/image?format=png&dpr=2&width=40&fit=scale-down"
      let head = try await service.send("HEAD", same)
      #expect(head.headers["etag"] == tag)
      #expect(head.headers["content-length"] == "\(whole.body.count)")
      let part = try await service.get(same, headers: ["Range": "bytes=8-19", "If-Range": tag])
      #expect(part.status == 206)
      #expect(part.body == whole.body[8..<20])
      #expect(try await service.get(same, headers: ["If-None-Match": tag]).status == 304)
      #expect(try await Self.variants(service, "png", "rendered") == 1)
    }
  }

  @Test(
    "large variants are served from files, with their tags, ranges and HEAD",
    arguments: ["default", "no-store"])
  func large(mode: String) async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    origin.on("/x", .ok(Fixtures.jpeg))
    let service = try await RunningService(folder: folder, settings: environment([:]))
    let id = try await service.run(["url": origin.url("/x"), "cache": mode]).id
    let target = "/jobs/\(id)/image?width=1500&enlarge=true&format=png"
    let whole = try await service.get(target)
    #expect(whole.status == 200 && whole.body.count > 128 << 10)
    #expect(try Self.seen(whole.body) == "PNG 1500x1000")
    let tag = try #require(whole.headers["etag"])
    let head = try await service.send("HEAD", target)
    #expect(head.headers["etag"] == tag)
    #expect(head.headers["content-length"] == "\(whole.body.count)")
    let part = try await service.get(
      target, headers: ["Range": "bytes=200000-200009", "If-Range": tag])
    #expect(part.status == 206 && part.body == whole.body[200_000..<200_010])
    #expect(try await service.get(target, headers: ["If-None-Match": tag]).status == 304)
    // A variant that is not stored is rendered again and leaves no file.
    let rendered = try await Self.variants(service, "png", "rendered")
    #expect(mode == "default" ? rendered == 1 : rendered == 4)
    try await eventually {
      try FileManager.default.contentsOfDirectory(atPath: folder + "/data/images/incoming").isEmpty
    }
    #expect(try await service.stop() == 0)
  }

  @Test("equal variants are rendered once and reused after a restart, unless corrupt")
  func kept() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    origin.on("/x", .ok(Fixtures.jpeg))
    var service = try await RunningService(folder: folder, settings: environment([:]))
    let id = try await service.run(["url": origin.url("/x")]).id
    let target = "/jobs/\(id)/image?width=200"
    let bodies = try await withThrowingTaskGroup { [service] group in
      for _ in 0..<50 { group.addTask { try await service.get(target).body } }
      return try await group.reduce(into: Set<Data>()) { $0.insert($1) }
    }
    #expect(bodies.count == 1)
    #expect(try await Self.variants(service, "jpeg", "rendered") == 1)
    try await eventually { try await service.get("/cache").json()["entries"] as? Int == 2 }
    #expect(try await service.stop() == 0)

    service = try await RunningService(folder: folder, settings: environment([:]))
    #expect(try await service.get(target).body == bodies.first)
    #expect(try await Self.variants(service, "jpeg", "hit") == 1)
    #expect(try await Self.variants(service, "jpeg", "rendered") == 0)
    #expect(try await service.stop() == 0)

    try Self.harm(bodies.first ?? Data(), below: folder)
    service = try await RunningService(folder: folder, settings: environment([:]))
    #expect(try await service.get(target).body == bodies.first)
    #expect(try await Self.variants(service, "jpeg", "rendered") == 1)
    #expect(try await service.stop() == 0)
  }

  /// Changes a byte of the file with this content.
  private static func harm(_ bytes: Data, below folder: String) throws {
    let path = try #require(
      FileManager.default.subpaths(atPath: folder)?.map { "\(folder)/\($0)" }
        .first { FileManager.default.contents(atPath: $0) == bytes })
    var harmed = bytes
    harmed[harmed.count / 2] ^= 1
    try harmed.write(to: URL(fileURLWithPath: path))
  }

  @Test("rendering stops or never begins if its clients disconnect")
  func abandoned() async throws {
    try await withPipeline(["decode.threads": "1"]) { service, origin in
      let picture = try Self.largePicture()
      origin.on("/x", .ok(picture))
      let id = try await service.run(["url": origin.url("/x")]).id
      let requests = (0..<20).map { number in
        Task { try await service.get("/jobs/\(id)/image?width=\(5000 + number)&format=png") }
      }
      try await eventually { try await Self.metric(service, "waiting") > 5 }
      for request in requests { request.cancel() }
      try await eventually {
        try await Self.metric(service, "waiting") + Self.metric(service, "rendering") == 0
      }
      #expect(try await Self.variants(service, "png", "abandoned") > 0)
      #expect(try await Self.variants(service, "png", "rendered") < 20)
      #expect(try await service.get("/jobs/\(id)/image?width=50").status == 200)
    }
  }

  /// A PNG of 48 megapixels. Encoding it takes seconds.
  private static func largePicture() throws -> [UInt8] {
    let script = """
      import sys
      from PIL import Image
      Image.linear_gradient("L").resize((8000, 6000)).convert("RGB").save(
          sys.stdout.buffer, "PNG", compress_level=1)
      """
    return Array(try ChildProcess.run(["/usr/bin/python3", "-c", script]).output)
  }
}
