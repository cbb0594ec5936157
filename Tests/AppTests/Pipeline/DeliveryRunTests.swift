import Foundation
import Jobs
import S3
import TestSupport
import Testing

@Suite("Deliveries of a running service", .timeLimit(.minutes(15)))
struct DeliveryRunTests {
  private struct Shown: Decodable {
    struct Delivery: Decodable {
      var to, put, key, etag: String?
      var what: String
      var bytes: Int
    }
    var phase: String
    var deliveries: [Delivery]
    var error: ShownJob.Failure?
  }

  private static func shown(_ id: String, at service: RunningService) async throws -> Shown {
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    return try decoder.decode(Shown.self, from: try await service.get("/jobs/\(id)").body)
  }

  /// Runs the body with a service that has a bucket of the real server as the destination `shop`.
  private static func withShop(
    _ body: (RunningService, ScriptedOrigin, TestBucket) async throws -> Void
  ) async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let bucket = try await TestBucket()
    let destinations = try bucket.destination("shop", prefix: "in/", in: folder)
    try await withPipeline(["destinations": destinations]) { service, origin in
      try await body(service, origin, bucket)
      #expect(
        !service.log.contains(ObjectStore.secretKey) && !service.log.contains("X-Amz-Signature"))
    }
  }

  private static func stored(_ key: String, in bucket: TestBucket) async throws -> [UInt8]? {
    guard let got = try await bucket.bucket.get(key, atMost: .max) else { return nil }
    var all: [UInt8] = []
    while let piece = try await got.next() { all += piece }
    return all
  }

  @Test(
    "originals and variants are delivered to a bucket and a presigned URL before success")
  func delivered() async throws {
    try await Self.withShop { service, origin, bucket in
      for bytes in [Fixtures.jpeg, Fixtures.filedPNG] {
        origin.on("/x", .ok(bytes))
        let job = try await service.run([
          "url": origin.url("/x"), "cache": "reload", "tags": ["../../cats"],
          "variants": [["name": "thumb", "width": 9, "format": "webp"]],
          "deliver": [
            ["to": "shop", "key": "a/{tag}/{sha256}.{ext}"], ["to": "shop", "what": "thumb"],
            ["put": bucket.presignedPut("signed/é x"), "what": "thumb"], ["to": "shop"],
          ],
        ])
        #expect(job.phase == "success", "\(job.summary)")
        let shown = try await Self.shown(job.id, at: service).deliveries
        let sha256 = try #require(job.image?.sha256)
        let ending = bytes == Fixtures.jpeg ? "jpg" : "png"
        #expect(
          shown.map(\.key) == [
            "a/.._.._cats/\(sha256).\(ending)", "\(job.id)-thumb.webp", nil, "\(job.id).\(ending)",
          ])
        #expect(shown.map(\.to) == ["shop", "shop", nil, "shop"])
        #expect(shown[2].put?.hasSuffix("/signed/%C3%A9%20x") == true)
        #expect(shown.map(\.what) == ["original", "thumb", "thumb", "original"])
        #expect(shown.allSatisfy { $0.etag != nil })
        let thumb = try await service.get("/jobs/\(job.id)/image?variant=thumb").body
        for (key, content) in [
          ("in/a/.._.._cats/\(sha256).\(ending)", bytes), ("in/\(job.id)-thumb.webp", Array(thumb)),
          ("signed/é x", Array(thumb)), ("in/\(job.id).\(ending)", bytes),
        ] {
          #expect(try await Self.stored(key, in: bucket) == content, "\(key)")
        }
      }
    }
  }

  @Test("a dropped original is delivered first, and uploads are delivered, too")
  func dropped() async throws {
    try await Self.withShop { service, origin, bucket in
      for (path, bytes) in [("/small", Fixtures.jpeg), ("/filed", Fixtures.filedPNG)] {
        origin.on(path, .ok(bytes))
        let job = try await service.run([
          "url": origin.url(path), "original": "drop", "variants": [["width": 8]],
          "deliver": [["to": "shop", "key": "dropped{ext}"]],
        ])
        #expect(job.phase == "success" && job.image?.original == "drop", "\(job.summary)")
        let ending = bytes == Fixtures.jpeg ? "jpg" : "png"
        #expect(try await Self.stored("in/dropped\(ending)", in: bucket) == bytes)
      }
      let deliver = "%5B%7B%22to%22:%22shop%22,%22key%22:%22uploaded%22%7D%5D"
      let answer = try await service.send(
        "POST", "/jobs?deliver=\(deliver)", headers: ["Content-Type": "image/png"],
        body: Data(Fixtures.smallPNG))
      let id = try #require(try answer.json()["id"] as? String)
      #expect(try await service.outcome(id).phase == "success")
      #expect(try await Self.stored("in/uploaded", in: bucket) == Fixtures.smallPNG)
    }
  }

  @Test("a failed delivery is delivery_failure and retryable, and /fetch delivers without fetching")
  func failed() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", .ok(Fixtures.jpeg, headers: [("Cache-Control", "max-age=3600")]))
      origin.on("/put", .status(503))
      let put = origin.url("/put?X-Amz-Signature=hidden")
      let job = try await service.run(["url": origin.url("/x"), "deliver": [["put": put]]])
      #expect(job.phase == "failure" && job.error?.code == "delivery_failure", "\(job.summary)")
      #expect(job.error?.retryable == true && job.error?.detail.contains("hidden") == false)
      #expect(job.error?.detail.contains("503") == true)
      // Three attempts in each of the job's three attempts.
      #expect(origin.requests(to: "/put").count == 9 && origin.requests(to: "/x").count == 1)
      // The fetched image answers another job, because it was kept.
      let other = try await service.run(["url": origin.url("/x")])
      #expect(other.cache?.status == "hit" && origin.requests(to: "/x").count == 1)

      origin.on("/put", .status(200, headers: [("ETag", "\"e\"")]))
      #expect(try await service.send("POST", "/jobs/\(job.id)/fetch").status == 200)
      let again = try await service.outcome(job.id)
      #expect(again.phase == "success", "\(again.summary)")
      #expect(origin.requests(to: "/x").count == 1 && origin.requests(to: "/put").count == 10)
      let shown = try await Self.shown(job.id, at: service).deliveries
      #expect(shown.map(\.put) == [origin.url("/put")] && shown.map(\.etag) == ["\"e\""])
      #expect(origin.requests(to: "/put").last?.content == Fixtures.jpeg)
      let document = String(decoding: try await service.get("/jobs/\(job.id)").body, as: UTF8.self)
      #expect(!document.contains("hidden") && !service.log.contains("hidden"))
    }
  }

  @Test("a delivery does not delay other jobs of the shared load, and stops with its job")
  func shared() async throws {
    try await withPipeline(["fetch.stall_timeout": "30s"]) { service, origin in
      let gate = Gate()
      origin.on("/x", .held(Fixtures.jpeg, after: 10, by: gate))
      origin.on("/put", .silent)
      let slow = try await service.post(
        ["url": origin.url("/x"), "deliver": [["put": origin.url("/put")]]])
      await origin.waitForRequests(to: "/x")
      let plain = try await service.post(["url": origin.url("/x")])
      gate.open()
      #expect(try await service.outcome(plain).phase == "success")
      await origin.waitForRequests(to: "/put")
      #expect(try await service.job(slow).phase == "loading")
      #expect(try await service.send("DELETE", "/jobs/\(slow)").status == 200)
      let request = try #require(origin.requests(to: "/put").first)
      #expect(await origin.waitForClose(of: request.connection, within: .seconds(20)) != nil)
      #expect(try await service.job(slow).phase == "cancelled")
      #expect(origin.requests(to: "/x").count == 1)
    }
  }

  @Test("only complete images are delivered, and never to forbidden addresses")
  func guarded() async throws {
    try await withPipeline { service, origin in
      let other = try ScriptedOrigin(host: "127.0.0.2")
      defer { other.stop() }
      origin.on("/x", .ok(Fixtures.jpeg))
      origin.on("/broken", .ok(Array(Fixtures.jpeg.dropLast(Fixtures.jpeg.count / 2))))
      origin.on("/put", .status(200))
      let deliver = [["put": origin.url("/put")]]
      let broken = try await service.run(["url": origin.url("/broken"), "deliver": deliver])
      #expect(broken.error?.code == "decode_failed")
      let digest = "sha256-" + Data(repeating: 1, count: 32).base64EncodedString()
      let wrong = try await service.run(
        ["url": origin.url("/x"), "integrity": digest, "deliver": deliver])
      #expect(wrong.error?.code == "integrity_mismatch")
      #expect(origin.requests(to: "/put").isEmpty)
      let blocked = try await service.run(
        ["url": origin.url("/x"), "deliver": [["put": other.url("/put")]]])
      #expect(blocked.error?.code == "delivery_failure" && other.acceptedConnections == 0)
      let unknown = try await service.submit(
        ["url": origin.url("/x"), "deliver": [["to": "shop"]]])
      #expect(unknown.status == 422)
    }
  }

  @Test("a delivery to an unreachable bucket fails, and clients do not see its address")
  func unreachable() async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    for (file, text) in [("access", "AK"), ("secret", "SK")] {
      try text.write(toFile: "\(folder)/\(file)", atomically: true, encoding: .utf8)
    }
    // Port 1 has no listener.
    let destinations = """
      {shop: {endpoint: "http://127.0.0.1:1", bucket: images, \
      access_key_file: "\(folder)/access", secret_key_file: "\(folder)/secret"}}
      """
    try await withPipeline(["destinations": destinations]) { service, origin in
      origin.on("/x", .ok(Fixtures.jpeg))
      let job = try await service.run([
        "url": origin.url("/x"), "deliver": [["to": "shop"]], "max_attempts": 1,
      ])
      #expect(job.error?.code == "delivery_failure")
      #expect(job.error?.detail == "shop could not be reached: shop: no connection.")
      #expect(service.log.contains("failed to deliver an image"))
    }
  }

  @Test("a delivery to a bucket with a wrong key fails, and clients do not see the key")
  func wrongKey() async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let bucket = try await TestBucket()
    let destinations = try bucket.destination("shop", prefix: "in/", in: folder)
    try "wrong-secret".write(toFile: folder + "/secret", atomically: true, encoding: .utf8)
    try await withPipeline(["destinations": destinations]) { service, origin in
      origin.on("/x", .ok(Fixtures.jpeg))
      let job = try await service.run(["url": origin.url("/x"), "deliver": [["to": "shop"]]])
      #expect(job.error?.code == "delivery_failure")
      #expect(job.error?.detail == "shop responded with 403 (SignatureDoesNotMatch).")
      #expect(!service.log.contains("wrong-secret") && !service.log.contains(ObjectStore.accessKey))
      // The right key is read once the file contains it.
      try ObjectStore.secretKey.write(toFile: folder + "/secret", atomically: true, encoding: .utf8)
      #expect(try await service.send("POST", "/jobs/\(job.id)/fetch").status == 200)
      #expect(try await service.outcome(job.id).phase == "success")
      #expect(origin.requests(to: "/x").count == 1)
    }
  }
}
