import TestSupport
import Testing

@Suite("The cache and redirects", .timeLimit(.minutes(5)))
struct RedirectCacheTests {
  private typealias Fields = [(String, String)]
  private static let credential = ["Authorization": "Basic YQ=="]

  @Test(
    "has nothing for others of what a credential led to",
    arguments: [301, 302, 303, 307, 308],
    [
      "private, no-store", "private, max-age=600", "no-store", "max-age=600", "",
    ])
  func credential(status: Int, control: String) async throws {
    let cdn = try ScriptedOrigin()
    defer { cdn.stop() }
    cdn.on("/own", .ok(image("own"), headers: [("Cache-Control", "public, max-age=600")]))
    try await withPipeline(twoOwners) { service, origin async throws in
      origin.on("/x") { request in
        guard request.header("Authorization") != nil else { return .ok(image("all")) }
        let fields = [("Location", cdn.url("/own")), ("Cache-Control", control)]
        return .status(status, headers: control.isEmpty ? [fields[0]] : fields)
      }
      let job: [String: Any] = ["url": origin.url("/x")]
      let own = try await service.run(
        job.merging(["headers": Self.credential]) { $1 }, headers: anna)
      #expect(own.image?.url == cdn.url("/own"))
      for mode in ["only-if-cached", "default", "force-cache"] {
        let other = try await service.run(job.merging(["cache": mode]) { $1 }, headers: bert)
        #expect(other.image?.etag != own.image?.etag, "\(mode)")
        #expect(mode == "only-if-cached" ? other.error?.code == "not_cached" : other.image != nil)
      }
    }
  }

  @Test(
    "asks a redirect again that may not be stored, or is not fresh by the origin's word",
    arguments: [
      (302, []), (303, []), (307, []), (302, [("Cache-Control", "public")]),
      (302, [("Cache-Control", "max-age=0")]), (301, [("Cache-Control", "no-store")]),
      (302, [("Cache-Control", "max-age=600"), ("Age", "600")]),
      (301, [("Cache-Control", "private")]), (301, [("Cache-Control", "no-cache")]),
      (302, [("Cache-Control", "max-age=600"), ("Vary", "*")]),
      (302, [("Expires", "Sun, 06 Nov 1994 08:49:37 GMT")]),
    ] as [(Int, [(String, String)])])
  func unstored(status: Int, fields: [(String, String)]) async throws {
    try await withPipeline { service, origin async throws in
      origin.on(
        "/x",
        inOrder: ["/1", "/2"].map { .status(status, headers: fields + [("Location", $0)]) })
      for path in ["/1", "/2"] {
        origin.on(path, .ok(image(path), headers: [("Cache-Control", "max-age=600")]))
      }
      let job: [String: Any] = ["url": origin.url("/x"), "cache_ttl": 600]
      _ = try await service.run(job)
      let second = try await service.run(job)
      #expect(try await service.image(of: second.id) == image("/2"))
    }
  }

  @Test(
    "uses an image again that redirects led to, where each of them may be",
    arguments: [
      (301, []), (308, []), (302, [("Cache-Control", "max-age=600")]),
      (307, [("Cache-Control", "s-maxage=600")]),
      (303, [("Expires", "Sun, 06 Nov 2050 08:49:37 GMT")]),
    ] as [(Int, [(String, String)])])
  func stored(status: Int, fields: [(String, String)]) async throws {
    try await withPipeline { service, origin async throws in
      for (path, next) in [("/x", "/y"), ("/y", "/z")] {
        origin.on(path, .status(status, headers: fields + [("Location", next)]))
      }
      origin.on("/z", .ok(image("z"), headers: [("Cache-Control", "max-age=600")]))
      #expect(try await service.run(["url": origin.url("/x")]).cache?.status == "miss")
      let second = try await service.run(["url": origin.url("/x")])
      #expect(second.cache?.status == "hit" && second.image?.url == origin.url("/z"))
      #expect(origin.requests.count == 3)
      #expect(try await service.run(["url": origin.url("/y")]).cache?.status == "miss")
    }
  }

  @Test("confirms what was redirected to at its own URL only")
  func confirmed() async throws {
    try await withPipeline { service, origin async throws in
      let stale = [("Cache-Control", "max-age=600"), ("Age", "600"), ("ETag", "\"v1\"")]
      origin.on("/x", .status(302, headers: stale + [("Location", "/z")]))
      origin.on("/z") { request in
        request.header("If-None-Match") == nil
          ? .ok(image("z"), headers: stale) : .status(304, headers: stale)
      }
      let first = try await service.run(["url": origin.url("/x")])
      let second = try await service.run(["url": origin.url("/x")])
      #expect(second.cache?.status == "revalidated" && second.image?.etag == first.image?.etag)
      #expect(origin.paths == ["/x", "/z", "/x", "/z"])
      #expect(
        origin.requests.map { $0.header("If-None-Match") } == [nil, nil, nil, "\"v1\""])
    }
  }

  @Test("asks no other URL to confirm what it has", arguments: [false, true])
  func elsewhere(isRedirected: Bool) async throws {
    let other = try ScriptedOrigin()
    defer { other.stop() }
    // An origin that would confirm whatever it is asked for.
    other.on("/z") { request in
      request.header("If-None-Match") == nil
        ? .ok(image("other"), headers: [("ETag", "\"v1\"")]) : .status(304)
    }
    try await withPipeline { service, origin async throws in
      let stale = [("Cache-Control", "max-age=600"), ("Age", "600"), ("ETag", "\"v1\"")]
      origin.on("/y", .ok(image("y"), headers: stale))
      let away = ScriptedReply.redirect(to: other.url("/z"))
      origin.on(
        "/x",
        inOrder: [
          isRedirected
            ? .status(302, headers: stale + [("Location", "/y")])
            : .ok(image("y"), headers: stale), away,
        ])
      _ = try await service.run(["url": origin.url("/x")])
      let second = try await service.run(["url": origin.url("/x")])
      #expect(second.cache?.status == "miss")
      #expect(try await service.image(of: second.id) == image("other"))
      #expect(other.requests.map { $0.header("If-None-Match") } == [nil])
    }
  }

  @Test("goes on with broken-off bytes at the URL that they came from, and at no other")
  func resumed() async throws {
    let other = try ScriptedOrigin()
    defer { other.stop() }
    let png = Fixtures.png
    let tagged = Representation(png, etag: "\"v1\"")
    other.on("/z") { tagged.reply(to: $0) }
    try await withPipeline(["jobs.max_attempts": "4"]) { service, origin async throws in
      let half = png.count / 2
      origin.on("/y", inOrder: { tagged.reply(to: $0, breakingAt: half) }, { tagged.reply(to: $0) })
      origin.on("/same", .redirect(to: "/y"))
      let same = try await service.run(["url": origin.url("/same")])
      #expect(same.phase == "success" && same.progress.resumedFrom == half, "\(same.summary)")
      #expect(origin.requests(to: "/same").map { $0.header("Range") } == [nil, nil])
      #expect(
        origin.requests(to: "/y").map { $0.header("Range") } == [nil, "bytes=\(half)-"])
      origin.on("/y", { tagged.reply(to: $0, breakingAt: half) })
      origin.on(
        "/away", inOrder: [.redirect(to: "/y"), .redirect(to: other.url("/z"))])
      let away = try await service.run(["url": origin.url("/away")])
      #expect(away.phase == "success" && away.progress.resumedFrom == 0, "\(away.summary)")
      #expect(other.requests.map { $0.header("Range") } == [nil])
      #expect(other.requests.map { $0.header("If-Range") } == [nil])
      #expect(origin.requests(to: "/away").map { $0.header("Range") } == [nil, nil])
    }
  }

  @Test("confirms what it has of a URL where a redirect that may not be stored leads")
  func target() async throws {
    let cdn = try ScriptedOrigin()
    defer { cdn.stop() }
    cdn.on("/z") { request in
      let fields = [("Cache-Control", "max-age=600"), ("ETag", "\"v1\"")]
      return request.header("If-None-Match") == nil
        ? .ok(image("z"), headers: fields) : .status(304, headers: fields)
    }
    try await withPipeline(twoOwners) { service, origin async throws in
      for path in ["/x", "/y"] {
        origin.on(
          path, .status(302, headers: [("Location", cdn.url("/z")), ("Cache-Control", "private")]))
      }
      func run(_ url: String, _ mode: String = "default", by owner: [String: String]) async throws
        -> ShownJob
      {
        try await service.run(
          ["url": url, "cache": mode, "headers": Self.credential], headers: owner)
      }
      let first = try await run(origin.url("/x"), by: anna)
      #expect(first.cache?.status == "miss" && first.cache?.freshUntil == nil)
      let second = try await run(origin.url("/y"), by: bert)
      #expect(second.cache?.status == "revalidated" && second.cache?.freshUntil == nil)
      #expect(second.image?.etag == first.image?.etag)
      #expect(origin.paths == ["/x", "/y"])
      #expect(cdn.requests.map { $0.header("If-None-Match") } == [nil, "\"v1\""])
      #expect(try await run(origin.url("/x"), "reload", by: anna).cache?.status == "miss")
      #expect(cdn.requests.last?.header("If-None-Match") == nil)
      // Who asks for the image itself has it.
      let direct = try await service.run(["url": cdn.url("/z")], headers: bert)
      #expect(direct.cache?.status == "hit")
    }
  }

  @Test("has no more of a URL where a redirect leads once that has sent what may not be stored")
  func superseded() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", .redirect(to: "/z"))
      origin.on(
        "/z",
        inOrder: [
          .ok(image("1"), headers: [("Cache-Control", "max-age=600")]),
          .ok(image("2"), headers: [("Cache-Control", "no-store")]),
        ])
      _ = try await service.run(["url": origin.url("/x")])
      #expect(try await service.run(["url": origin.url("/z")]).cache?.status == "hit")
      let second = try await service.run(["url": origin.url("/x"), "cache": "reload"])
      let direct = try await service.run(["url": origin.url("/z")])
      #expect(direct.cache?.status == "miss" && direct.image?.etag == second.image?.etag)
      #expect(try await service.image(of: direct.id) == image("2"))
    }
  }

  @Test("asks for the whole, once, where a confirmation is of no use")
  func useless() async throws {
    try await withPipeline { service, origin async throws in
      origin.on("/x", .redirect(to: "/z"))
      origin.on("/z") { request in
        request.header("If-None-Match") == nil
          ? .ok(image("z"), headers: [("ETag", "\"v1\"")])
          : .status(304, headers: [("ETag", "\"v2\"")])
      }
      _ = try await service.run(["url": origin.url("/x")])
      #expect(try await service.run(["url": origin.url("/x")]).cache?.status == "miss")
      #expect(origin.requests(to: "/z").map { $0.header("If-None-Match") } == [nil, "\"v1\"", nil])
    }
  }

  @Test("is as fresh as the least of all")
  func least() async throws {
    try await withPipeline { service, origin async throws in
      origin.on(
        "/x",
        .status(
          302, headers: [("Location", "/y"), ("Cache-Control", "max-age=600"), ("Age", "0")]))
      origin.on("/y", .ok(image("y"), headers: [("Cache-Control", "max-age=86400")]))
      origin.on("/z", .ok(image("y"), headers: [("Cache-Control", "max-age=86400")]))
      let redirected = try await service.run(["url": origin.url("/x")])
      let plain = try await service.run(["url": origin.url("/z")])
      let ends = [redirected, plain].compactMap { $0.cache?.freshUntil }
      #expect(ends.count == 2 && ends[0] < ends[1], "RFC 3339 in UTC sorts as the moments do")
    }
  }

  @Test(
    "uses what is stale after an error only where every redirect allows it",
    arguments: [("stale-if-error=600", "stale"), ("", nil), ("must-revalidate", nil)]
      as [(String, String?)])
  func staleIfError(control: String, status: String?) async throws {
    try await withPipeline(["jobs.max_attempts": "1"]) { service, origin async throws in
      let old = [("Age", "600"), ("Location", "/y")]
      let more = control.isEmpty ? "" : ", " + control
      origin.on(
        "/x",
        inOrder: [
          .status(302, headers: old + [("Cache-Control", "max-age=600" + more)]), .status(503),
        ])
      origin.on(
        "/y", .ok(image("y"), headers: [("Cache-Control", "max-age=600, stale-if-error=600")]))
      _ = try await service.run(["url": origin.url("/x")])
      let second = try await service.run(["url": origin.url("/x")])
      #expect(
        (second.error == nil ? second.cache?.status : nil) == status, "\(second.summary)")
    }
  }
}
