import Foundation
import TestSupport
import Testing

@Suite("Variants requested with a job", .timeLimit(.minutes(15)))
struct VariantsAheadRunTests {
  private static func rendered(_ service: RunningService) async throws -> Int {
    let text = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
    return text.split(separator: "\n").filter {
      $0.hasPrefix("imagefetch_variants_total") && $0.contains("outcome=\"rendered\"")
    }
    .reduce(0) { $0 + (Int($1.split(separator: " ").last ?? "") ?? 0) }
  }

  private static var wanted: [[String: Any]] {
    [
      ["width": 120], ["name": "card", "width": 60, "height": 60, "fit": "cover", "format": "png"],
      ["name": "web", "height": 20, "dpr": 2, "format": "webp"],
    ]
  }

  @Test(
    "the variants exist before success, by name and as queries, without further rendering",
    arguments: ["photo.jpg", "photo-progressive.jpg", "photo.png"])
  func ahead(name: String) async throws {
    let file = Fixtures.image(name)
    try await withPipeline { service, origin in
      origin.on("/x", .ok(file))
      let job = try await service.run(["url": origin.url("/x"), "variants": Self.wanted])
      #expect(job.phase == "success", "\(job.summary)")
      let variants = try #require(job.image?.variants)
      #expect(variants.map(\.name) == ["v0", "card", "web"])
      let own = name.hasSuffix("png") ? "png" : "jpeg"
      #expect(variants.map(\.format) == [own, "png", "webp"])
      #expect(variants.map(\.width) == [120, 60, name.hasSuffix("png") ? 53 : 60])
      let queries = [
        "width=120", "width=60&height=60&fit=cover&format=png", "height=40&format=webp",
      ]
      for (variant, query) in zip(variants, queries) {
        let named = try await service.get(variant.href)
        #expect(named.status == 200 && named.body.count == variant.bytes, "\(variant)")
        #expect(named.headers["etag"] == variant.etag)
        #expect(named.headers["content-type"] == variant.contentType)
        let asked = try await service.get("/jobs/\(job.id)/image?\(query)")
        #expect(asked.body == named.body && asked.headers["etag"] == variant.etag)
      }
      #expect(try await Self.rendered(service) == 0)
      #expect(try await service.get("/jobs/\(job.id)/image?variant=other").status == 404)
      #expect(try await service.get("/jobs/\(job.id)/image?variant=card&width=5").status == 422)
      #expect(try await Data(service.image(of: job.id)) == Data(file))
    }
  }

  @Test(
    "a variant of an animation may be animated, with the job and on demand",
    arguments: ["animated.gif", "animated.webp"])
  func animated(name: String) async throws {
    let file = Fixtures.image(name)
    try await withPipeline { service, origin in
      origin.on("/x", .ok(file))
      let wanted: [[String: Any]] = [
        ["width": 20, "animated": true], ["width": 20, "format": "webp"],
      ]
      let job = try await service.run(["url": origin.url("/x"), "variants": wanted])
      let variants = try #require(job.image?.variants, "\(job.summary)")
      #expect(variants.map(\.format) == ["webp", "webp"])
      let made = try await service.get(variants[0].href)
      #expect(Data(made.body).range(of: Data("ANMF".utf8)) != nil)
      #expect(
        Data(try await service.get(variants[1].href).body).range(of: Data("ANMF".utf8)) == nil)
      let asked = try await service.get("/jobs/\(job.id)/image?width=20&animated=true")
      #expect(asked.body == made.body && asked.headers["content-type"] == "image/webp")
      let other = try await service.get("/jobs/\(job.id)/image?width=10&animated=true&format=auto")
      #expect(Data(other.body).range(of: Data("ANMF".utf8)) != nil)
    }
  }

  @Test(
    "variants have equal tags exactly if they have equal bytes")
  func tags() async throws {
    // The smaller variant alone is decoded at a fourth of the size, but not together with the larger one.
    let sizes: [[String: Any]] = [["width": 30, "format": "png"], ["width": 400]]
    var made: [(tag: String, bytes: Data)] = []
    for wanted in [Array(sizes[..<1]), sizes, []] {
      try await withPipeline { service, origin in
        origin.on("/x", .ok(Fixtures.jpeg))
        let job = try await service.run(["url": origin.url("/x"), "variants": wanted])
        let answer = try await service.get("/jobs/\(job.id)/image?width=30&format=png")
        let tag = try #require(answer.headers["etag"])
        #expect(answer.status == 200 && (job.image?.variants.first.map { $0.etag == tag } ?? true))
        made.append((tag, answer.body))
      }
    }
    #expect(made[0] == made[2], "alone and on demand it has the same bytes")
    #expect(made[0].bytes != made[1].bytes, "the test needs different bytes here")
    #expect(made[0].tag != made[1].tag)
  }

  /// Decoded at another scale together with the larger variant than alone.
  private static var small: [String: Any] { ["width": 30, "format": "png"] }
  private static var set: [[String: Any]] { [small, ["width": 400]] }

  /// Checks that the variants of ``set`` are served with the announced sizes and tags.
  private static func expectAsTold(_ job: ShownJob, _ service: RunningService) async throws {
    let variants = try #require(job.image?.variants, "\(job.summary)")
    for (variant, query) in zip(variants, ["width=30&format=png", "width=400"]) {
      for target in [variant.href, "/jobs/\(job.id)/image?\(query)"] {
        let answer = try await service.get(target)
        #expect(answer.status == 200 && answer.body.count == variant.bytes, "\(target)")
        #expect(answer.headers["etag"] == variant.etag, "\(target)")
      }
    }
  }

  @Test(
    "a variant that is rendered again has the announced bytes",
    arguments: ["photo.jpg", "photo-progressive.jpg", "photo.webp"], ["no-store", "default"])
  func again(name: String, mode: String) async throws {
    try await withPipeline { service, origin in
      origin.on("/x", .ok(Fixtures.image(name)))
      let together = try await service.run(
        ["url": origin.url("/x"), "cache": mode, "variants": Self.set])
      // Alone, the variant is a different one.
      let alone = try await service.run(
        ["url": origin.url("/x"), "cache": mode, "variants": [Self.small]])
      for _ in 0..<2 {
        for job in [together, alone] { try await Self.expectAsTold(job, service) }
        #expect(try await service.send("DELETE", "/cache").status == 200)
      }
    }
  }

  @Test(
    "variants keep their announced bytes if jobs with other variants share the transfer",
    arguments: [true, false])
  func againShared(isSmallFirst: Bool) async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", .held(Fixtures.jpeg, after: 100, by: gate))
      let wanted = isSmallFirst ? [[Self.small], Self.set] : [Self.set, [Self.small]]
      var ids: [String] = []
      for variants in wanted {
        let id = try await service.post(["url": origin.url("/x"), "variants": variants])
        try await service.wait(for: id) { $0.progress.completed == 100 }
        ids.append(id)
      }
      gate.open()
      let jobs = try await service.outcomes(ids)
      #expect(origin.requests(to: "/x").count == 1)
      #expect(jobs[0].image?.variants.first?.etag != jobs[1].image?.variants.first?.etag)
      for _ in 0..<2 {
        for job in jobs { try await Self.expectAsTold(job, service) }
        #expect(try await service.send("DELETE", "/cache").status == 200)
      }
    }
  }

  @Test("variants of formats without scaled decoding are rendered before success")
  func others() async throws {
    try await withPipeline { service, origin in
      for name in ["photo.webp", "animated.gif", "small.avif"] {
        origin.on("/x", .ok(Fixtures.image(name)))
        let job = try await service.run(
          ["url": origin.url("/x"), "cache": "reload", "variants": [["width": 4]]])
        let variant = try #require(job.image?.variants.first, "\(job.summary)")
        #expect(variant.width == 4)
        let rendered = try await Self.rendered(service)
        #expect(try await service.get(variant.href).body.count == variant.bytes)
        #expect(try await Self.rendered(service) == rendered)
      }
    }
  }

  @Test("jobs that share a transfer get their own variants, and later variants need no fetch")
  func shared() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", .ok(Fixtures.jpeg, headers: [("Cache-Control", "max-age=3600")]))
      let first = try await service.run(["url": origin.url("/x"), "variants": [["width": 50]]])
      #expect(first.image?.variants.map(\.width) == [50])
      let second = try await service.run(
        [
          "url": origin.url("/x"),
          "variants": [["width": 51, "name": "other"], ["width": 50, "name": "same"]],
        ])
      #expect(second.cache?.status == "hit", "\(second.summary)")
      #expect(second.image?.variants.map(\.name) == ["other", "same"])
      #expect(second.image?.variants.last?.etag == first.image?.variants.first?.etag)
      #expect(try await Self.rendered(service) == 1)
      // All variants are stored by now, so the cache answers at once.
      let third = try await service.run(["url": origin.url("/x"), "variants": [["width": 51]]])
      #expect(third.image?.variants.first?.bytes == second.image?.variants.first?.bytes)
      #expect(try await Self.rendered(service) == 1)
      #expect(origin.requests(to: "/x").count == 1)
    }
  }

  @Test("a variant that cannot be made fails the job with the reason")
  func unmakable() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", .ok(Fixtures.image("small.webp")))
      // More pixels than the AVIF encoder accepts.
      let variant: [String: Any] = ["width": 5000, "height": 5000, "fit": "fill", "format": "avif"]
      let job = try await service.run(["url": origin.url("/x"), "variants": [variant]])
      #expect(job.phase == "failure" && job.error?.code == "too_many_pixels", "\(job.summary)")
    }
  }
}
