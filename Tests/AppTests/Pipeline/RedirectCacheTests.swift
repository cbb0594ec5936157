import TestSupport
import Testing

@Suite("The cache and redirects", .timeLimit(.minutes(15)))
struct RedirectCacheTests {
  private typealias Fields = [(String, String)]
  private static let credential = ["Authorization": "Basic YQ=="]

  @Test(
    "other owners never receive an image that a credential's redirect led to",
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
    "a redirect that may not be stored or is not fresh is requested again",
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
    "an image behind redirects is reused if each of them may be stored",
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

  @Test("each redirect of a chain is followed although the second one's target is stored")
  func chain() async throws {
    try await withPipeline { service, origin async throws in
      origin.on("/a", .status(302, headers: [("Location", "/b")]))
      origin.on("/b", .status(302, headers: [("Location", "/c"), ("Cache-Control", "max-age=60")]))
      origin.on("/c", .ok(image("c"), headers: [("Cache-Control", "max-age=600")]))
      #expect(try await service.run(["url": origin.url("/b")]).image?.url == origin.url("/c"))
      for _ in 0..<2 {
        let job = try await service.run(["url": origin.url("/a")])
        #expect(job.image?.url == origin.url("/c"))
      }
      #expect(origin.paths.filter { $0 == "/b" }.count > 1)
    }
  }

  @Test("a redirect's target is revalidated at its own URL only")
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

  @Test("no other URL is asked to revalidate an image", arguments: [false, true])
  func elsewhere(isRedirected: Bool) async throws {
    let other = try ScriptedOrigin()
    defer { other.stop() }
    // An origin that would confirm every validator.
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

  @Test("a broken transfer is resumed at the URL that its bytes came from, and at no other")
  func resumed() async throws {
    let other = try ScriptedOrigin()
    defer { other.stop() }
    let png = Fixtures.png
    let tagged = Representation(
      png, headers: [("ETag", "\"v1\""), ("Cache-Control", "max-age=0")])
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

  @Test("a cached image is revalidated if a redirect that may not be stored leads to it")
  func target() async throws {
    let cdn = try ScriptedOrigin()
    defer { cdn.stop() }
    cdn.on("/z") { request in
      let fields = [("Cache-Control", "max-age=60"), ("Age", "60"), ("ETag", "\"v1\"")]
      return request.header("If-None-Match") == nil
        ? .ok(image("z"), headers: fields)
        : .status(304, headers: [("Cache-Control", "max-age=600")])
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
      // A job for the image itself is answered by the cache.
      let direct = try await service.run(["url": cdn.url("/z")], headers: bert)
      #expect(direct.cache?.status == "hit")
      #expect(try await run(origin.url("/x"), "reload", by: anna).cache?.status == "miss")
      #expect(cdn.requests.last?.header("If-None-Match") == nil)
    }
  }

  @Test(
    "a fresh image is reused behind a redirect that must be requested again",
    arguments: [
      (302, [("Cache-Control", "no-store")]), (302, []), (303, []), (307, []),
      (301, [("Cache-Control", "private, no-store")]), (308, [("Cache-Control", "no-cache")]),
      (302, [("Cache-Control", "max-age=600"), ("Age", "600")]),
      (301, [("Cache-Control", "max-age=0")]), (302, [("Vary", "*")]),
    ] as [(Int, [(String, String)])])
  func freshTarget(status: Int, fields: [(String, String)]) async throws {
    let cdn = try ScriptedOrigin()
    cdn.on("/z", .ok(image("z"), headers: [("Cache-Control", "max-age=600")]))
    try await withPipeline(twoOwners) { service, origin async throws in
      origin.on("/x", .status(status, headers: fields + [("Location", cdn.url("/z"))]))
      let first = try await service.run(["url": origin.url("/x")], headers: anna)
      #expect(first.cache?.status == "miss")
      // The image's origin receives no request at all.
      cdn.stop()
      for owner in [anna, bert] {
        let job = try await service.run(["url": origin.url("/x")], headers: owner)
        #expect(job.phase == "success" && job.cache?.status == "hit", "\(job.summary)")
        #expect(job.image?.url == cdn.url("/z") && job.image?.etag == first.image?.etag)
        #expect(try await service.image(of: job.id, headers: owner) == image("z"))
      }
      #expect(origin.paths == ["/x", "/x", "/x"])
      #expect(cdn.requests.count == 1)
    }
  }

  @Test("a redirect's target is fetched again if its own response may not be reused")
  func unusableTarget() async throws {
    let unusable: [Fields] = [
      [("Cache-Control", "no-store")], [("Cache-Control", "private, max-age=600")],
      [("Cache-Control", "max-age=600"), ("Age", "600")], [("Cache-Control", "no-cache")],
      [("Cache-Control", "max-age=600"), ("Vary", "*")],
    ]
    try await withPipeline { service, origin async throws in
      for (place, fields) in unusable.enumerated() {
        origin.on("/x\(place)", .redirect(to: "/z\(place)"))
        origin.on(
          "/z\(place)", inOrder: ["1", "2"].map { .ok(image($0), headers: fields) })
        _ = try await service.run(["url": origin.url("/x\(place)")])
        let second = try await service.run(["url": origin.url("/x\(place)")])
        #expect(second.cache?.status == "miss", "\(fields)")
        #expect(try await service.image(of: second.id) == image("2"), "\(fields)")
      }
    }
  }

  @Test("a job's cache mode and integrity apply to a redirect's target")
  func targetModes() async throws {
    try await withPipeline { service, origin async throws in
      origin.on("/x", .redirect(to: "/z"))
      origin.on("/z") { request in
        let fields = [("Cache-Control", "max-age=600"), ("ETag", "\"v1\"")]
        return request.header("If-None-Match") == nil
          ? .ok(image("z"), headers: fields) : .status(304, headers: fields)
      }
      func run(_ more: [String: Any]) async throws -> ShownJob {
        try await service.run(["url": origin.url("/x")].merging(more) { $1 })
      }
      #expect(try await run([:]).cache?.status == "miss")
      #expect(try await run([:]).cache?.status == "hit")
      #expect(try await run(["integrity": integrity(image("z"))]).cache?.status == "hit")
      #expect(try await run(["cache": "no-cache"]).cache?.status == "revalidated")
      #expect(try await run(["cache": "reload"]).cache?.status == "miss")
      #expect(try await run(["cache": "no-store"]).cache?.status == "bypass")
      let other = try await run(["integrity": integrity(image("other"))])
      #expect(other.error?.code == "integrity_mismatch")
      #expect(
        origin.requests(to: "/z").map { $0.header("If-None-Match") }
          == [nil, "\"v1\"", nil, nil, nil])
    }
  }

  @Test("Vary selects a stored response by the fields that a redirect passes on")
  func targetVary() async throws {
    let cdn = try ScriptedOrigin()
    defer { cdn.stop() }
    let fields = [("Cache-Control", "max-age=600"), ("Vary", "Accept")]
    cdn.on("/z", .ok(image("z"), headers: fields))
    try await withPipeline { service, origin async throws in
      origin.on("/z", .ok(image("z"), headers: fields))
      origin.on("/near", .redirect(to: "/z"))
      origin.on("/far", .redirect(to: cdn.url("/z")))
      func run(_ path: String, _ accept: String) async throws -> String? {
        try await service.run(["url": origin.url(path), "headers": ["Accept": accept]])
          .cache?.status
      }
      #expect(try await run("/near", "image/png") == "miss")
      #expect(try await run("/near", "image/webp") == "miss")
      #expect(try await run("/near", "image/png") == "hit")
      #expect(try await run("/far", "image/png") == "miss")
      #expect(try await run("/far", "image/webp") == "hit", "another origin gets no fields")
      #expect(origin.requests(to: "/z").count == 2 && cdn.requests.count == 1)
    }
  }

  @Test(
    "an image behind a redirect is kept from owners whose fields did not fetch it",
    arguments: [
      ("Authorization", "max-age=600"), ("Cookie", "max-age=600"), ("X-Api-Key", "max-age=600"),
      ("X-Forwarded-Host", "public, max-age=600"), ("Authorization", "private, max-age=600"),
    ])
  func ownTarget(name: String, control: String) async throws {
    try await withPipeline(twoOwners) { service, origin async throws in
      origin.on("/x", .redirect(to: "/z"))
      origin.on("/z") { request in
        .ok(
          image(request.header(name) ?? "all"),
          headers: [("Cache-Control", control), ("Vary", name)])
      }
      func run(_ value: String?, by owner: [String: String]) async throws -> [UInt8] {
        let headers = value.map { [name: $0] } ?? [:]
        let job = try await service.run(
          ["url": origin.url("/x"), "headers": headers], headers: owner)
        return try await service.image(of: job.id, headers: owner)
      }
      let (one, two) = name == "Authorization" ? ("Basic YQ==", "Basic Yg==") : ("a=1", "b=2")
      for _ in 0..<2 {
        #expect(try await run(one, by: anna) == image(one))
        #expect(try await run(nil, by: bert) == image("all"))
        #expect(try await run(two, by: bert) == image(two))
        #expect(try await run(one, by: bert) == image(one))
      }
      let asked = origin.requests(to: "/z").map { $0.header(name) }
      // The origin responds to bert's request, although anna sent the same fields.
      #expect(asked.count { $0 == one } >= 2)
    }
  }

  @Test("an image behind a credential's redirect is given only to owners who are redirected")
  func redirectedByCredential() async throws {
    let cdn = try ScriptedOrigin()
    defer { cdn.stop() }
    cdn.on("/secret", .ok(image("own"), headers: [("Cache-Control", "max-age=600")]))
    try await withPipeline(twoOwners) { service, origin async throws in
      origin.on("/x") { request in
        let fields = [("Location", cdn.url("/secret")), ("Cache-Control", "no-store")]
        return request.header("Authorization") == Self.credential["Authorization"]
          ? .status(302, headers: fields) : .status(401)
      }
      func run(_ headers: [String: String], by owner: [String: String]) async throws -> ShownJob {
        try await service.run(["url": origin.url("/x"), "headers": headers], headers: owner)
      }
      #expect(try await run(Self.credential, by: anna).cache?.status == "miss")
      for headers in [[:], ["Authorization": "Basic Yg=="]] {
        #expect(try await run(headers, by: bert).error?.originStatus == 401)
      }
      #expect(try await run(Self.credential, by: bert).cache?.status == "hit")
      #expect(cdn.requests.map { $0.header("Authorization") } == [nil])
    }
  }

  @Test("owners are separated at a redirect's target if the cache separates owners")
  func apartTarget() async throws {
    try await withPipeline(twoOwners.merging(["cache.shared": "false"]) { $1 }) {
      service, origin async throws in
      origin.on("/x", .redirect(to: "/z"))
      origin.on("/z", .ok(image("z"), headers: [("Cache-Control", "public, max-age=600")]))
      for (owner, status) in [(anna, "miss"), (bert, "miss"), (anna, "hit"), (bert, "hit")] {
        let job = try await service.run(["url": origin.url("/x")], headers: owner)
        #expect(job.cache?.status == status)
      }
      #expect(origin.requests(to: "/z").count == 2)
    }
  }

  @Test("a redirect that may be stored later is stored, and then neither is requested again")
  func storedLater() async throws {
    try await withPipeline { service, origin async throws in
      let fresh = [("Cache-Control", "max-age=600")]
      origin.on(
        "/x",
        inOrder: [
          .redirect(to: "/z"), .status(302, headers: fresh + [("Location", "/z")]),
        ])
      origin.on("/z", .ok(image("z"), headers: fresh))
      let jobs = try await [
        service.run(["url": origin.url("/x")]), service.run(["url": origin.url("/x")]),
        service.run(["url": origin.url("/x")]),
      ]
      #expect(jobs.map(\.cache?.status) == ["miss", "hit", "hit"])
      #expect(jobs.map { $0.cache?.freshUntil != nil } == [false, true, true])
      #expect(origin.paths == ["/x", "/z", "/x"])
    }
  }

  @Test("a redirect's target is removed once it sends a response that may not be stored")
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

  @Test("the complete image is requested once if a revalidation is of no use")
  func useless() async throws {
    try await withPipeline { service, origin async throws in
      origin.on("/x", .redirect(to: "/z"))
      origin.on("/z") { request in
        request.header("If-None-Match") == nil
          ? .ok(image("z"), headers: [("ETag", "\"v1\""), ("Cache-Control", "max-age=0")])
          : .status(304, headers: [("ETag", "\"v2\"")])
      }
      _ = try await service.run(["url": origin.url("/x")])
      #expect(try await service.run(["url": origin.url("/x")]).cache?.status == "miss")
      #expect(origin.requests(to: "/z").map { $0.header("If-None-Match") } == [nil, "\"v1\"", nil])
    }
  }

  @Test("the lifetime is the shortest of all responses")
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
      #expect(ends.count == 2 && ends[0] < ends[1], "RFC 3339 times in UTC sort chronologically")
    }
  }

  @Test(
    "a stale image is used after an error only if every redirect allows it",
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
