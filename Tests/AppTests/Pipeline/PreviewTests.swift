import Foundation
import TestSupport
import Testing

@Suite("The preview of a job")
struct PreviewTests {
  private let file = Fixtures.progressiveJPEG
  private let ends = JPEGFixture(Fixtures.progressiveJPEG).scanEnds.map { $0 + 4 }

  @Test("the preview is updated while bytes arrive, and the image replaces it")
  func comes() async throws {
    try await withPipeline { service, origin in
      let gates = [Gate(), Gate(), Gate()]
      origin.on(
        "/x",
        ScriptedReply(
          .hold(gates[0]),
          .send(ScriptedReply.head(200, [("Content-Length", "\(file.count)")]) + file[..<ends[0]]),
          .hold(gates[1]), .send(Array(file[ends[0]..<ends[4]])),
          .hold(gates[2]), .send(Array(file[ends[4]...]))))
      let id = try await service.post(["url": origin.url("/x")])
      #expect(await origin.waitForRequests(to: "/x"))
      let none = try await service.get("/jobs/\(id)/preview")
      #expect(none.status == 204 && none.body.isEmpty)
      gates[0].open()

      let first = try await service.wait(for: id) { $0.progress.previews == 1 }
      let blurred = try await service.shownPreview(of: id, scan: 1)
      gates[1].open()
      let second = try await service.wait(for: id) { $0.progress.previews > 1 }
      #expect(second.version > first.version)
      try await eventually {
        try await service.get("/jobs/\(id)/preview").headers["image-preview"] == "scan=5"
      }
      let sharper = try await service.shownPreview(of: id, scan: 5)
      gates[2].open()
      #expect(try await service.outcome(id).progress.previews == 0)
      let image = try await service.get("/jobs/\(id)/preview")
      #expect(image.status == 200 && Array(image.body) == file && image.headers["etag"] != nil)
      #expect(image.headers["image-preview"] == nil)
      let whole = try #require(try await ShownPixels(file))
      #expect(sharper.likeness(to: whole) > blurred.likeness(to: whole) + 3)
    }
  }

  @Test("a preview exists even if the total size is unknown")
  func withoutTotal() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on(
        "/x",
        ScriptedReply(
          .send(ScriptedReply.head(200, [("Connection", "close")]) + file[..<ends[2]]),
          .hold(gate), .send(Array(file[ends[2]...])), .close))
      let id = try await service.post(["url": origin.url("/x")])
      let shown = try await service.wait(for: id) { $0.progress.previews == 1 }
      #expect(shown.progress.total == nil && shown.progress.fraction == nil)
      _ = try await service.shownPreview(of: id, scan: 3)
      gate.open()
      #expect(try await service.outcome(id).phase == "success")
    }
  }

  @Test("a baseline JPEG has no preview, whatever its EXIF block contains")
  func baseline() async throws {
    try await withPipeline { service, origin in
      var picture = JPEGFixture(Fixtures.jpeg)
      let tiff = EXIFFixture.tiff(orientation: 1, isBigEndian: true)
      picture.insert(EXIFFixture.app1(tiff + Fixtures.image("small-progressive.jpg")))
      let gate = Gate()
      origin.on("/base", .held(picture.bytes, after: picture.bytes.count - 500, by: gate))
      origin.on("/x", .held(file, after: ends[1], by: gate))
      let id = try await service.post(["url": origin.url("/base")])
      try await service.wait(for: id) { $0.progress.completed == picture.bytes.count - 500 }
      // A job that started later already has its preview.
      let other = try await service.post(["url": origin.url("/x")])
      try await service.wait(for: other) { $0.progress.previews == 1 }
      #expect(try await service.get("/jobs/\(id)/preview").status == 204)
      #expect(try await service.job(id).progress.previews == 0)
      gate.open()
      for job in try await service.outcomes([id, other]) { #expect(job.phase == "success") }
    }
  }

  @Test("the preview of an interlaced PNG is a PNG, for all jobs that share the transfer")
  func interlaced() async throws {
    var png = PNGFixture(width: 100, height: 80)
    png.isInterlaced = true
    let (file, ends) = png.file { x, y in [UInt8(x * 2), UInt8(y * 3), UInt8(x ^ y)] }
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", .held(file, after: ends[3], by: gate))
      let ids = try await service.post(batch: Array(repeating: ["url": origin.url("/x")], count: 3))
      for id in ids {
        try await service.wait(for: id) { $0.progress.previews == 1 }
        let answer = try await service.get("/jobs/\(id)/preview")
        #expect(answer.headers["content-type"] == "image/png")
        #expect(answer.headers["image-preview"] == "scan=4")
        let shown = try #require(try await ShownPixels(Array(answer.body)))
        #expect(shown.format == "PNG" && shown.width == 100 && shown.height == 80)
      }
      gate.open()
      for job in try await service.outcomes(ids) { #expect(job.phase == "success") }
      #expect(origin.paths.count == 1)
    }
  }

  @Test("a preview is made at most twice per second, and never for bytes that arrive at once")
  func pace() async throws {
    try await withPipeline { service, origin in
      origin.on("/drip", .dripped(file, size: file.count / 40, every: .milliseconds(60)))
      origin.on("/whole", .ok(file))
      let clock = ContinuousClock()
      let began = clock.now
      let id = try await service.post(["url": origin.url("/drip")])
      var newest = 0
      var job = try await service.job(id)
      while !job.isFinished {
        let atMost = Int((clock.now - began) / .milliseconds(500))
        #expect(newest <= atMost)
        newest = max(newest, job.progress.previews)
        try await Task.sleep(for: .milliseconds(20))
        job = try await service.job(id)
      }
      #expect(newest >= 1 && job.phase == "success")
      let whole = try await service.run(["url": origin.url("/whole")])
      #expect(whole.phase == "success")
    }
  }

  @Test("previews continue when a broken transfer is resumed")
  func resumes() async throws {
    try await withPipeline { service, origin in
      let picture = Representation(file, etag: "\"1\"")
      let gate = Gate()
      origin.on("/x") { request in
        origin.requests.count == 1
          ? picture.reply(to: request, breakingAt: ends[2])
          : picture.reply(to: request, holdingAt: ends[3], for: gate)
      }
      let id = try await service.post(["url": origin.url("/x")])
      let shown = try await service.wait(for: id) {
        $0.progress.resumedFrom > 0 && $0.progress.previews > 0
      }
      #expect(shown.progress.resumedFrom == ends[2])
      try await eventually {
        try await service.get("/jobs/\(id)/preview").headers["image-preview"] == "scan=4"
      }
      _ = try await service.shownPreview(of: id, scan: 4)
      gate.open()
      #expect(try await service.outcome(id).phase == "success")
      #expect(try await service.image(of: id) == file)
    }
  }

  @Test("a preview is deleted with its attempt")
  func ends() async throws {
    try await withPipeline { service, origin in
      let (gate, other) = (Gate(), Gate())
      origin.on("/x") { _ in
        origin.requests.count == 1 ? .held(file, after: ends[2], by: gate) : .held(file, by: other)
      }
      let id = try await service.post(["url": origin.url("/x")])
      try await service.wait(for: id) { $0.progress.previews == 1 }
      try await service.cancel(id)
      let cancelled = try await service.get("/jobs/\(id)/preview")
      #expect(cancelled.status == 404)
      #expect(String(decoding: cancelled.body, as: UTF8.self).contains("image_unavailable"))
      try await service.fetchAgain(id)
      try await service.wait(for: id) { $0.phase == "loading" }
      #expect(await origin.waitForRequests(to: "/x", count: 2))
      #expect(try await service.get("/jobs/\(id)/preview").status == 204)
      #expect(try await service.job(id).progress.previews == 0)
      other.open()
      #expect(try await service.outcome(id).phase == "success")
    }
  }

  @Test("a preview of broken bytes does not change how the job ends")
  func broken() async throws {
    try await withPipeline { service, origin in
      var damaged = file
      for index in ends[4] + 200..<ends[4] + 220 { damaged[index] = 0xFF }
      let gate = Gate()
      origin.on("/x", .held(damaged, after: ends[2], by: gate))
      let id = try await service.post(["url": origin.url("/x")])
      try await service.wait(for: id) { $0.progress.previews == 1 }
      gate.open()
      #expect(try await service.outcome(id).error?.code == "decode_failed")
      #expect(try await service.get("/jobs/\(id)/preview").status == 404)
    }
  }

  @Test("a job has a placeholder of a few bytes, also from the cache")
  func placeholder() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", .ok(file))
      for status in ["miss", "hit"] {
        let job = try await service.run(["url": origin.url("/x")])
        #expect(job.cache?.status == status)
        let text = try #require(job.image?.thumbhash)
        let hash = try #require(Data(base64Encoded: text))
        #expect(5...25 ~= hash.count)
        let colour = try #require(job.image?.dominantColor)
        #expect(colour.wholeMatch(of: #/#[0-9a-f]{6}/#) != nil)
      }
    }
  }
}

extension RunningService {
  /// Returns the job's preview after checking the fields that every preview has.
  fileprivate func shownPreview(of id: String, scan: Int) async throws -> ShownPixels {
    let answer = try await get("/jobs/\(id)/preview")
    #expect(answer.status == 200)
    #expect(answer.headers["image-preview"] == "scan=\(scan)")
    #expect(answer.headers["content-type"] == "image/jpeg")
    #expect(answer.headers["cache-control"] == "no-store")
    #expect(answer.headers["x-content-type-options"] == "nosniff")
    #expect(answer.headers["content-security-policy"] == imagePolicy)
    let shown = try #require(try await ShownPixels(Array(answer.body)))
    #expect(shown.width == 480 && shown.height == 320)
    return shown
  }
}
