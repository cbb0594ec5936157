import Foundation
import TestSupport
import Testing

@Suite("Jobs on a constrained network", .timeLimit(.minutes(15)))
struct LowDataTests {
  private static let constrained = ["network.constrained": "true"]
  private let small = Fixtures.smallPNG
  private let regular = Fixtures.png

  private func script(_ origin: ScriptedOrigin) -> [String: Any] {
    origin.on("/regular", .ok(regular))
    origin.on("/small", .ok(small))
    return ["url": origin.url("/regular"), "low_data_url": origin.url("/small")]
  }

  @Test("a job fetches its low-data image, or nothing if it has none")
  func lowData() async throws {
    try await withPipeline(Self.constrained) { service, origin in
      let job = try await service.run(script(origin))
      #expect(job.phase == "success" && job.image?.variant == "low_data")
      #expect(job.image?.url == origin.url("/small") && origin.paths == ["/small"])
      #expect(try await service.image(of: job.id) == small)
      origin.on("/other", .ok(regular))
      let other = try await service.run(["url": origin.url("/other")])
      #expect(other.phase == "success" && other.image?.variant == "regular")
    }
  }

  @Test("afterwards the regular image replaces the low-data image")
  func replaced() async throws {
    try await withPipeline(Self.constrained) { service, origin in
      let low = try await service.run(script(origin))
      try await service.setConstrained(false)
      let job = try await service.wait(for: low.id) { $0.image?.variant == "regular" }
      #expect(job.phase == "success" && job.version > low.version)
      #expect(job.image?.etag != low.image?.etag && job.image?.url == origin.url("/regular"))
      #expect(job.progress.completed == regular.count && job.progress.total == regular.count)
      #expect(try await service.image(of: job.id) == regular)
      #expect(origin.paths == ["/small", "/regular"])
      // An image fetched this way is cached like any other.
      #expect(try await service.run(["url": origin.url("/regular")]).cache?.status == "hit")
    }
  }

  @Test(
    "afterwards variants are made again from the regular image", arguments: ["keep", "drop"])
  func variants(original: String) async throws {
    try await withPipeline(Self.constrained) { service, origin in
      let members = script(origin).merging(
        ["variants": [["width": 20, "name": "tiny"]], "original": original]
      ) { $1 }
      let low = try await service.run(members)
      #expect(low.image?.variant == "low_data" && low.image?.variants.count == 1)
      try await service.setConstrained(false)
      let job = try await service.wait(for: low.id) { $0.image?.variant == "regular" }
      #expect(job.image?.original == original)
      let (new, old) = (job.image?.variants.first, low.image?.variants.first)
      let variant = try #require(new)
      #expect(variant.name == "tiny" && variant.width == 20 && variant.etag != old?.etag)
      let answer = try await service.get(variant.href)
      #expect(answer.status == 200 && answer.headers["etag"] == variant.etag)
      #expect(answer.body.count == variant.bytes)
      let own = try await service.get("/jobs/\(job.id)/image")
      #expect(own.status == (original == "keep" ? 200 : 410))
    }
  }

  @Test(
    "afterwards the regular image is delivered instead of the low-data one",
    arguments: ["keep", "drop"])
  func delivered(original: String) async throws {
    try await withPipeline(Self.constrained) { service, origin in
      origin.on("/put", .status(200))
      let members = script(origin).merging(
        [
          "variants": [["width": 20]], "original": original,
          "deliver": [["put": origin.url("/put")]],
        ]
      ) { $1 }
      let low = try await service.run(members)
      #expect(low.image?.variant == "low_data" && low.attempts == 1, "\(low.summary)")
      try await service.setConstrained(false)
      let job = try await service.wait(for: low.id) { $0.image?.variant == "regular" }
      #expect(job.attempts == 2 && job.image?.original == original)
      #expect(origin.requests(to: "/put").map(\.content) == [small, regular])
      let document = try await service.get("/jobs/\(job.id)").json()
      let deliveries = document["deliveries"] as? [[String: Any]]
      #expect(deliveries?.compactMap { $0["bytes"] as? Int } == [regular.count])
    }
  }

  @Test(
    "a low-data image that is still loading is replaced later")
  func replacedLater() async throws {
    try await withPipeline(Self.constrained) { service, origin in
      let gate = Gate()
      let members = script(origin)
      origin.on("/small", .held(small, after: 100, by: gate))
      let id = try await service.post(members)
      try await service.wait(for: id) { $0.progress.completed == 100 }
      try await service.setConstrained(false)
      gate.open()
      _ = try await service.outcome(id)
      var newest = try await service.job(id)
      await service.within(.seconds(5)) {
        newest = try await service.job(id)
        return newest.image?.variant == "regular"
      }
      #expect(newest.image?.variant == "regular")
    }
  }

  @Test("after a restart the regular images replace the low-data ones")
  func restarted() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let service = try await RunningService(
      folder: folder, settings: environment(Self.constrained))
    let low = try await service.run(script(origin))
    #expect(low.image?.variant == "low_data")
    #expect(try await service.stop() == 0)
    let next = try await RunningService(folder: folder, settings: environment([:]))
    await next.within(.seconds(5)) {
      try await next.job(low.id).image?.variant == "regular"
    }
    #expect(try await next.job(low.id).image?.variant == "regular")
    #expect(try await next.stop() == 0)
  }

  @Test("a job keeps its low-data image if the regular one cannot be fetched")
  func regularFails() async throws {
    try await withPipeline(Self.constrained) { service, origin in
      let members = script(origin)
      origin.on("/regular", .status(404))
      let low = try await service.run(members)
      try await service.setConstrained(false)
      #expect(await origin.waitForRequests(to: "/regular"))
      // The next job's regular image is fetched after that attempt.
      origin.on("/next", .ok(small))
      #expect(try await service.run(["url": origin.url("/next")]).phase == "success")
      let job = try await service.job(low.id)
      #expect(job.phase == "success" && job.image?.variant == "low_data" && job.error == nil)
    }
  }

  @Test("no other failure makes a job use its low-data image", arguments: [404, 503])
  func otherFailures(status: Int) async throws {
    try await withPipeline(["jobs.max_attempts": "2"]) { service, origin in
      let members = script(origin)
      origin.on("/regular", .status(status))
      let failed = try await service.run(members)
      #expect(failed.phase == "failure" && failed.error?.originStatus == status)
      origin.on("/regular", .stalled(regular, after: 100))
      try await service.fetchAgain(failed.id)
      try await service.wait(for: failed.id) { $0.progress.completed == 100 }
      try await service.cancel(failed.id)
      #expect(try await service.outcome(failed.id).phase == "cancelled")
      #expect(origin.requests(to: "/small").isEmpty)
    }
  }

  @Test("a cached regular image is preferred")
  func cached() async throws {
    try await withPipeline { service, origin in
      let members = script(origin)
      _ = try await service.run(["url": origin.url("/regular")])
      try await service.setConstrained(true)
      let job = try await service.run(members)
      #expect(job.image?.variant == "regular" && job.cache?.status == "hit")
      #expect(origin.paths == ["/regular"])
    }
  }

  @Test("a job with Save-Data: on keeps its low-data image forever")
  func saveData() async throws {
    try await withPipeline { service, origin in
      let members = script(origin)
      let saving = try await service.run(members, headers: ["Save-Data": "on"])
      #expect(saving.image?.variant == "low_data")
      let other = try await service.run(members)
      #expect(other.image?.variant == "regular")
      // The regular image replaces another job's low-data image, but not this job's.
      try await service.setConstrained(true)
      origin.on("/regular2", .ok(regular))
      let low = try await service.run([
        "url": origin.url("/regular2"), "low_data_url": origin.url("/small"),
      ])
      #expect(low.image?.variant == "low_data")
      try await service.setConstrained(false)
      try await service.wait(for: low.id) { $0.image?.variant == "regular" }
      #expect(try await service.job(saving.id).image?.variant == "low_data")
      #expect(try await service.job(saving.id).version == saving.version)
    }
  }

  @Test("a waiting job uses the image that is right when it starts")
  func retry() async throws {
    try await withPipeline(Self.constrained) { service, origin in
      let members = script(origin)
      origin.on("/small", .status(503, headers: [("Retry-After", "1")]))
      let id = try await service.post(members)
      try await service.wait(for: id) { $0.phase == "queued" && $0.attempts == 1 }
      try await service.setConstrained(false)
      let job = try await service.outcome(id)
      let end =
        job.image?.variant == "regular"
        ? job : try await service.wait(for: id) { $0.image?.variant == "regular" }
      #expect(end.phase == "success" && end.image?.variant == "regular")
    }
  }
}
