import Foundation
import TestSupport
import Testing

@Suite("The cache", .timeLimit(.minutes(15)))
struct CacheTests {
  private let png = Fixtures.smallPNG
  private static let fresh = [("Cache-Control", "max-age=600"), ("ETag", "\"v1\"")]
  /// The fields of a response that became stale a minute ago.
  private static func stale(_ more: String = "") -> [(String, String)] {
    [("Cache-Control", "max-age=60\(more)"), ("Age", "120"), ("ETag", "\"v1\"")]
  }

  /// Responds with a different image each time.
  private func count(
    _ origin: ScriptedOrigin, _ path: String, headers: [(String, String)] = fresh
  ) {
    origin.on(
      path, inOrder: (1...9).map { .ok(image("\($0)"), headers: headers) })
  }

  @Test("the cache answers the second job when it is submitted")
  func hit() async throws {
    try await withPipeline { service, origin in
      count(origin, "/x")
      let first = try await service.run(["url": origin.url("/x")])
      #expect(first.cache?.status == "miss" && first.cache?.freshUntil != nil)
      let answer = try await service.submit(["url": origin.url("/x")])
      #expect(answer.status == 202)
      let second = try answer.json()
      #expect(second["phase"] as? String == "success", "the job need not wait")
      #expect((second["cache"] as? [String: Any])?["status"] as? String == "hit")
      #expect((second["cache"] as? [String: Any])?["age"] as? Int != nil)
      #expect(second["attempts"] as? Int == 0)
      let id = try #require(second["id"] as? String)
      #expect(try await service.image(of: id) == image("1"))
      #expect(origin.requests.count == 1)
    }
  }

  @Test(
    "a response whose folded field forbids it is not reused",
    arguments: ["Cache-Control: max-age=3600,\r\n no-store", "Vary: Accept,\r\n\t*"])
  func folded(lines: String) async throws {
    try await withPipeline { service, origin async throws in
      let head = "HTTP/1.1 200 OK\r\nExpires: Sun, 06 Nov 2050 08:49:37 GMT\r\n\(lines)\r\n"
      let reply = Array("\(head)Content-Length: \(png.count)\r\n\r\n".utf8) + png
      origin.on("/x", ScriptedReply(.send(reply)))
      for _ in 0..<2 {
        #expect(try await service.run(["url": origin.url("/x")]).cache?.status == "miss")
      }
      #expect(origin.requests.count == 2)
    }
  }

  @Test("a folded field of a 304 is read, and a folded validator is sent back")
  func foldedValidator() async throws {
    try await withPipeline { service, origin async throws in
      func reply(_ status: Int, _ lines: String, _ body: [UInt8] = []) -> ScriptedReply {
        let length = status == 304 ? "" : "Content-Length: \(body.count)\r\n"
        return ScriptedReply(
          .send(Array("HTTP/1.1 \(status) OK\r\n\(lines)\r\n\(length)\r\n".utf8) + body))
      }
      origin.on(
        "/x",
        inOrder: [
          reply(200, "ETag:\r\n \"v1\"\r\nCache-Control: max-age=60\r\nAge:\r\n\t120", png),
          reply(304, "Cache-Control: max-age=600,\r\n no-cache"),
          reply(304, "Cache-Control: max-age=600"),
        ])
      _ = try await service.run(["url": origin.url("/x")])
      for _ in 0..<2 {
        let job = try await service.run(["url": origin.url("/x")])
        #expect(job.cache?.status == "revalidated")
      }
      #expect(origin.requests.map { $0.header("If-None-Match") } == [nil, "\"v1\"", "\"v1\""])
    }
  }

  @Test("in no-store mode the cache is neither read nor written")
  func noStore() async throws {
    try await withPipeline { service, origin in
      count(origin, "/x")
      let bypassing: [String: Any] = ["url": origin.url("/x"), "cache": "no-store"]
      let first = try await service.run(bypassing)
      #expect(first.cache?.status == "bypass")
      let second = try await service.run(["url": origin.url("/x")])
      #expect(second.cache?.status == "miss")
      let third = try await service.run(bypassing)
      #expect(third.cache?.status == "bypass")
      #expect(try await service.image(of: third.id) == image("3"))
      let fourth = try await service.run(["url": origin.url("/x")])
      #expect(fourth.cache?.status == "hit" && fourth.image?.etag == second.image?.etag)
      #expect(origin.requests.count == 3)
    }
  }

  @Test("in reload mode the cache is written but not read")
  func reload() async throws {
    try await withPipeline { service, origin in
      count(origin, "/x")
      _ = try await service.run(["url": origin.url("/x")])
      let reloaded = try await service.run(["url": origin.url("/x"), "cache": "reload"])
      #expect(reloaded.cache?.status == "miss")
      #expect(origin.requests.allSatisfy { $0.header("If-None-Match") == nil })
      let next = try await service.run(["url": origin.url("/x")])
      #expect(next.cache?.status == "hit" && next.image?.etag == reloaded.image?.etag)
      #expect(origin.requests.count == 2)
    }
  }

  @Test("in no-cache mode a fresh response is revalidated")
  func noCache() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", inOrder: [.ok(png, headers: Self.fresh), .status(304, headers: Self.fresh)])
      let first = try await service.run(["url": origin.url("/x")])
      let second = try await service.run(["url": origin.url("/x"), "cache": "no-cache"])
      #expect(second.phase == "success" && second.cache?.status == "revalidated")
      #expect(second.attempts == 1 && second.image?.etag == first.image?.etag)
      #expect(second.progress.completed == png.count && second.progress.total == png.count)
      #expect(origin.requests.map { $0.header("If-None-Match") } == [nil, "\"v1\""])
      #expect(try await service.image(of: second.id) == png)
    }
  }

  @Test(
    "an image evicted during a revalidation is fetched again, even if it is still in memory",
    arguments: [true, false])
  func gaveWay(isFiled: Bool) async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let gate = Gate()
    let picture = isFiled ? Fixtures.filedPNG : png
    let other = image("y", from: Fixtures.filedPNG)
    origin.on(
      "/x",
      inOrder: [
        .ok(picture, headers: Self.fresh),
        ScriptedReply([.hold(gate)] + ScriptedReply.status(304, headers: Self.fresh).steps),
        .ok(picture, headers: Self.fresh),
      ])
    origin.on("/y", .ok(other))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    // The store has space for the other image only.
    let settings = environment(["storage.max_bytes": "\(other.count)"])
    let service = try await RunningService(folder: folder, settings: settings)
    let first = try await service.run(["url": origin.url("/x")])
    #expect(try await service.image(of: first.id) == picture)
    let id = try await service.post(["url": origin.url("/x"), "cache": "no-cache"])
    #expect(await origin.waitForRequests(to: "/x", count: 2))
    #expect(try await service.run(["url": origin.url("/y")]).phase == "success")
    gate.open()
    let job = try await service.outcome(id)
    #expect(job.phase == "success" && job.cache?.status == "miss", "\(job.summary)")
    #expect(origin.requests(to: "/x").count == 3)
    #expect(try await service.stop() == 0)
    let next = try await RunningService(folder: folder, settings: settings)
    #expect(try await next.image(of: id) == picture)
    #expect(try await next.stop() == 0)
  }

  @Test("a new response to a revalidation replaces the cached one")
  func changed() async throws {
    try await withPipeline { service, origin in
      count(origin, "/x", headers: Self.stale())
      _ = try await service.run(["url": origin.url("/x")])
      let second = try await service.run(["url": origin.url("/x")])
      #expect(second.cache?.status == "miss")
      #expect(try await service.image(of: second.id) == image("2"))
      #expect(origin.requests.map { $0.header("If-None-Match") } == [nil, "\"v1\""])
    }
  }

  @Test("in force-cache mode a stale response is used, and a missing one is fetched")
  func forceCache() async throws {
    try await withPipeline { service, origin async throws in
      count(origin, "/x", headers: Self.stale())
      let job: [String: Any] = ["url": origin.url("/x"), "cache": "force-cache"]
      #expect(try await service.run(job).cache?.status == "miss")
      #expect(try await service.run(job).cache?.status == "stale")
      #expect(origin.requests.count == 1)
    }
  }

  @Test("in only-if-cached mode no origin is requested")
  func onlyIfCached() async throws {
    try await withPipeline { service, origin in
      count(origin, "/x", headers: Self.stale())
      let job: [String: Any] = ["url": origin.url("/x"), "cache": "only-if-cached"]
      let none = try await service.run(job)
      #expect(none.error?.code == "not_cached" && none.attempts == 0)
      #expect(none.error?.retryable == false && origin.requests.isEmpty)
      _ = try await service.run(["url": origin.url("/x")])
      let stored = try await service.run(job)
      #expect(stored.phase == "success" && stored.cache?.status == "stale")
      #expect(origin.requests.count == 1)
    }
  }

  @Test("a stale response is used while one background request revalidates it")
  func staleWhileRevalidate() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on(
        "/x",
        inOrder: [
          .ok(png, headers: Self.stale(", stale-while-revalidate=600")),
          ScriptedReply([.hold(gate)] + ScriptedReply.status(304, headers: Self.fresh).steps),
        ])
      _ = try await service.run(["url": origin.url("/x")])
      for _ in 0..<5 {
        let job = try await service.run(["url": origin.url("/x")])
        #expect(job.phase == "success" && job.cache?.status == "stale" && job.attempts == 0)
      }
      #expect(await origin.waitForRequests(to: "/x", count: 2))
      #expect(try await service.run(["url": origin.url("/x")]).cache?.status == "stale")
      gate.open()
      try await eventually {
        try await service.run(["url": origin.url("/x")]).cache?.status == "hit"
      }
      #expect(origin.requests.map { $0.header("If-None-Match") } == [nil, "\"v1\""])
    }
  }

  @Test(
    "a stale response is used if the origin fails and stale-if-error allows it",
    arguments: [503, 404])
  func staleIfError(status: Int) async throws {
    try await withPipeline(["jobs.max_attempts": "1"]) { service, origin in
      origin.on(
        "/x", inOrder: [.ok(png, headers: Self.stale(", stale-if-error=600")), .status(status)])
      _ = try await service.run(["url": origin.url("/x")])
      let job = try await service.run(["url": origin.url("/x")])
      if status == 503 {
        #expect(job.phase == "success" && job.cache?.status == "stale", "\(job.summary)")
        #expect(try await service.image(of: job.id) == png)
      } else {
        #expect(job.error?.originStatus == 404, "the image is no longer there")
      }
      #expect(origin.requests.count == 2)
    }
  }

  @Test("a stale response is not used in other cases of a failing origin")
  func error() async throws {
    try await withPipeline(["jobs.max_attempts": "1"]) { service, origin in
      origin.on("/x", inOrder: [.ok(png, headers: Self.stale()), .status(503)])
      _ = try await service.run(["url": origin.url("/x")])
      #expect(try await service.run(["url": origin.url("/x")]).error?.originStatus == 503)
    }
  }

  @Test("a variant is stored for each value of the fields in Vary")
  func vary() async throws {
    try await withPipeline { service, origin in
      origin.on("/x") { request in
        .ok(
          image(request.header("Accept-Language") ?? ""),
          headers: [("Vary", "Accept-Language"), ("Cache-Control", "max-age=600")])
      }
      func run(_ language: String) async throws -> ShownJob {
        try await service.run([
          "url": origin.url("/x"), "headers": ["Accept-Language": language],
        ])
      }
      for language in ["en", "de"] {
        #expect(try await run(language).cache?.status == "miss")
      }
      for language in ["en", "de"] {
        let job = try await run(language)
        #expect(job.cache?.status == "hit")
        #expect(try await service.image(of: job.id) == image(language))
      }
      #expect(origin.requests.count == 2)
    }
  }

  @Test("a response to a request with credentials is reused only if it is public")
  func authorization() async throws {
    try await withPipeline { service, origin in
      count(origin, "/own")
      count(origin, "/public", headers: [("Cache-Control", "public, max-age=600")])
      for (path, status) in [("/own", "miss"), ("/public", "hit")] {
        _ = try await service.run([
          "url": origin.url(path), "headers": ["Authorization": "Basic YQ=="],
        ])
        let job = try await service.run(["url": origin.url(path)])
        #expect(job.cache?.status == status, "\(path)")
      }
    }
  }

  @Test(
    "a response without a lifetime is fresh for default_ttl or the job's cache_ttl",
    arguments: [
      ("1d", nil, "hit"), ("0", nil, "miss"), ("0", 600, "hit"), ("1d", 0, "miss"),
    ] as [(String, Int?, String)])
  func lifetime(configured: String, own: Int?, status: String) async throws {
    try await withPipeline(["cache.default_ttl": configured]) { service, origin in
      count(origin, "/x", headers: [])
      var job: [String: Any] = ["url": origin.url("/x")]
      if let own { job["cache_ttl"] = own }
      _ = try await service.run(job)
      #expect(try await service.run(job).cache?.status == status)
    }
  }

  @Test("entries and their lifetimes survive a restart and a crash")
  func restart() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    count(origin, "/x")
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    var service = try await RunningService(folder: folder)
    let first = try await service.run(["url": origin.url("/x")])
    #expect(try await service.stop() == 0)
    service = try await RunningService(folder: folder)
    let second = try await service.run(["url": origin.url("/x")])
    try await service.kill()
    service = try await RunningService(folder: folder)
    let third = try await service.run(["url": origin.url("/x")])
    for job in [second, third] {
      #expect(job.cache?.status == "hit" && job.cache?.freshUntil == first.cache?.freshUntil)
      #expect(try await service.image(of: job.id) == image("1"))
    }
    #expect(origin.requests.count == 1)
    #expect(try await service.stop() == 0)
  }

  @Test("the cache can be cleared completely or for one URL, and jobs keep their images")
  func forget() async throws {
    try await withPipeline { service, origin in
      count(origin, "/a")
      count(origin, "/b")
      let a = try await service.run(["url": origin.url("/a")])
      let b = try await service.run(["url": origin.url("/b")])
      let url = try #require(
        origin.url("/a").addingPercentEncoding(withAllowedCharacters: .alphanumerics))
      let one = try await service.send("DELETE", "/cache?url=\(url)")
      #expect(try one.json()["removed"] as? Int == 1)
      #expect(try await service.run(["url": origin.url("/b")]).cache?.status == "hit")
      #expect(try await service.run(["url": origin.url("/a")]).cache?.status == "miss")
      #expect(try await service.send("DELETE", "/cache").json()["removed"] as? Int == 2)
      #expect(try await service.get("/cache").json()["entries"] as? Int == 0)
      #expect(try await service.run(["url": origin.url("/b")]).cache?.status == "miss")
      #expect(try await service.image(of: a.id) == image("1"))
      #expect(try await service.image(of: b.id) == image("1"))
    }
  }

  @Test("an entry is deleted with the job that is purged")
  func purged() async throws {
    try await withPipeline { service, origin in
      count(origin, "/x")
      let first = try await service.run(["url": origin.url("/x")])
      #expect(try await service.send("DELETE", "/jobs/\(first.id)?purge=true").status == 204)
      let second = try await service.run(["url": origin.url("/x")])
      #expect(second.cache?.status == "miss")
      #expect(origin.requests.count == 2)
    }
  }

  @Test("an entry whose file is corrupt or missing is not used", arguments: [true, false])
  func harmed(isHarmed: Bool) async throws {
    let png = Fixtures.filedPNG
    try await withPipeline { service, origin in
      origin.on("/x", .ok(png, headers: Self.fresh))
      #expect(try await service.run(["url": origin.url("/x")]).cache?.status == "miss")
      let files = try FileManager.default.images(below: service.folder)
      #expect(files.count == 1)
      let file = service.folder + "/data/images/" + (try #require(files.first))
      if isHarmed {
        try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
        let handle = try #require(FileHandle(forWritingAtPath: file))
        try handle.seek(toOffset: 40)
        try handle.write(contentsOf: Data([0, 1, 2]))
        try handle.close()
      } else {
        try FileManager.default.removeItem(atPath: file)
      }
      let second = try await service.run(["url": origin.url("/x")])
      #expect(second.phase == "success" && second.cache?.status == "miss", "\(second.summary)")
      #expect(try await service.image(of: second.id) == png)
      #expect(try await service.run(["url": origin.url("/x")]).cache?.status == "hit")
      #expect(origin.requests.count == 2)
    }
  }

  @Test("the cache stays within its size on disk and evicts the least recently used entries")
  func leastRecentlyUsed() async throws {
    // Each image is the fixture plus two bytes.
    let size = png.count + 2
    try await withPipeline(["cache.disk": "\(3 * size)"]) { service, origin in
      for path in ["/a", "/b", "/c", "/d"] {
        origin.on(path, .ok(image(path), headers: Self.fresh))
      }
      func run(_ path: String) async throws -> String? {
        try await service.run(["url": origin.url(path)]).cache?.status
      }
      for path in ["/a", "/b", "/c"] { #expect(try await run(path) == "miss") }
      #expect(try await service.get("/cache").json()["bytes"] as? Int == 3 * size)
      #expect(try await run("/a") == "hit")
      // Uses are recorded once per second, and after each purge.
      let other = try await service.run(["url": origin.url("/missing")])
      #expect(try await service.send("DELETE", "/jobs/\(other.id)?purge=true").status == 204)
      #expect(try await run("/d") == "miss")
      let counts = try await service.get("/cache").json()
      #expect(counts["bytes"] as? Int == 3 * size && counts["entries"] as? Int == 3)
      #expect(try await run("/a") == "hit")
      #expect(try await run("/c") == "hit")
      #expect(try await run("/b") == "miss")
    }
  }

  @Test("an image larger than the cache is not stored and evicts nothing")
  func tooLarge() async throws {
    try await withPipeline(["cache.disk": "\(png.count + 10)"]) { service, origin in
      origin.on("/small", .ok(png, headers: Self.fresh))
      origin.on("/large", .ok(Fixtures.png, headers: Self.fresh))
      #expect(try await service.run(["url": origin.url("/small")]).cache?.status == "miss")
      let large = try await service.run(["url": origin.url("/large")])
      #expect(large.phase == "success")
      #expect(try await service.image(of: large.id) == Fixtures.png)
      #expect(try await service.run(["url": origin.url("/small")]).cache?.status == "hit")
      #expect(try await service.run(["url": origin.url("/large")]).cache?.status == "miss")
    }
  }

  @Test("without the cache every job requests the origin")
  func off() async throws {
    try await withPipeline(["cache.enabled": "false"]) { service, origin async throws in
      count(origin, "/x")
      for _ in 0..<2 {
        #expect(try await service.run(["url": origin.url("/x")]).cache?.status == "bypass")
      }
      #expect(origin.requests.count == 2)
      let failed = try await service.run(["url": origin.url("/none")])
      #expect(failed.phase == "failure" && failed.cache?.status == "bypass")
    }
  }

  @Test("broken images and errors are not stored")
  func broken() async throws {
    try await withPipeline { service, origin async throws in
      origin.on(
        "/cut", inOrder: [.ok(Array(png.dropLast(20)), headers: Self.fresh), .ok(png)])
      origin.on("/gone", inOrder: [.status(404, headers: Self.fresh), .ok(png)])
      for path in ["/cut", "/gone"] {
        #expect(try await service.run(["url": origin.url(path)]).phase == "failure")
      }
      #expect(try await service.get("/cache").json()["entries"] as? Int == 0)
      for path in ["/cut", "/gone"] {
        #expect(try await service.run(["url": origin.url(path)]).phase == "success")
      }
      #expect(origin.requests.count == 4)
    }
  }

  @Test("the cache counts its results and reports them in Cache-Status")
  func counts() async throws {
    try await withPipeline { service, origin in
      origin.on(
        "/x", inOrder: [.ok(png, headers: Self.fresh), .status(304, headers: Self.fresh), .ok(png)])
      func status(_ mode: String) async throws -> String {
        let job = try await service.run(["url": origin.url("/x"), "cache": mode])
        return try await service.get("/jobs/\(job.id)/image").headers["cache-status"] ?? ""
      }
      let seconds = #/ttl=(59\d|600)/#
      let miss = try await status("default")
      #expect(miss.hasPrefix("imagefetch; fwd=uri-miss; stored; ttl="))
      let hit = try await status("default")
      #expect(hit.hasPrefix("imagefetch; hit; ttl="))
      let revalidated = try await status("no-cache")
      #expect(revalidated.hasPrefix("imagefetch; fwd=request; fwd-status=304; ttl="))
      for text in [miss, hit, revalidated] { #expect(text.contains(seconds), "\(text)") }
      #expect(try await status("no-store") == "imagefetch; fwd=bypass")
      let counts = try await service.get("/cache").json()
      #expect(counts["entries"] as? Int == 1 && counts["bytes"] as? Int == png.count)
      #expect(counts["hits"] as? Int == 1 && counts["misses"] as? Int == 1)
      #expect(counts["revalidations"] as? Int == 1)
      #expect((counts["memory_bytes"] as? Int ?? 0) >= png.count, "the image was asked for")
    }
  }

  @Test("a response of one job's URL answers another job's alternative")
  func alternatives() async throws {
    try await withPipeline { service, origin in
      count(origin, "/good")
      _ = try await service.run(["url": origin.url("/good")])
      let job = try await service.run([
        "url": origin.url("/missing"), "alternatives": [origin.url("/good")],
      ])
      #expect(job.phase == "success" && job.cache?.status == "hit")
      #expect(job.image?.url == origin.url("/good"))
      #expect(origin.paths == ["/good", "/missing"])
    }
  }

  @Test("the images in memory stay within cache.memory")
  func memory() async throws {
    try await withPipeline(["cache.memory": "8KB"]) { service, origin in
      struct Counts: Decodable { var memory_bytes: Int }
      var most = 0
      for number in 0..<60 {
        origin.on("/\(number)", .ok(image("\(number)"), headers: Self.fresh))
        let job = try await service.run(["url": origin.url("/\(number)")])
        #expect(try await service.image(of: job.id) == image("\(number)"))
        let answer = try await service.get("/cache")
        most = max(most, try JSONDecoder().decode(Counts.self, from: answer.body).memory_bytes)
      }
      #expect(60 * png.count > 8_000 && 4_000...8_000 ~= most)
    }
  }
}
