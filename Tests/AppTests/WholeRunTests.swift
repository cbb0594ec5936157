import Codec
import Foundation
import Jobs
import TestSupport
import Testing

@Suite("The built service", .timeLimit(.minutes(15)))
struct WholeRunTests {
  @Test("an image is served with the origin's bytes, its properties and safe header fields")
  func success() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/cat.jpg", .ok(Fixtures.progressiveJPEG, headers: [("Content-Type", "text/html")]))
    try await withService { service in
      let job = try await service.finished(service.submit(url: origin.url("/cat.jpg")))
      #expect(job["phase"] as? String == "success")
      let image = try #require(job["image"] as? [String: Any])
      #expect(image["format"] as? String == "jpeg" && image["progressive"] as? Bool == true)
      #expect(image["bytes"] as? Int == Fixtures.progressiveJPEG.count)
      let links = try #require(job["links"] as? [String: String])
      let answer = try await service.get(links["image"]!)
      #expect(answer.status == 200 && Array(answer.body) == Fixtures.progressiveJPEG)
      #expect(
        answer.headers["content-type"] == "image/jpeg", "from the bytes, not the origin's word")
      #expect(answer.headers["x-content-type-options"] == "nosniff")
      #expect(answer.headers["content-security-policy"] == imagePolicy)
      #expect(answer.headers["etag"] == image["etag"] as? String)
      let part = try await service.get(links["image"]!, headers: ["Range": "bytes=10-19"])
      #expect(part.status == 206 && Array(part.body) == Array(Fixtures.progressiveJPEG[10..<20]))
      let same = try await service.get(
        links["image"]!, headers: ["If-None-Match": answer.headers["etag"]!])
      #expect(same.status == 304 && same.body.isEmpty)
    }
  }

  @Test(
    "WebP, GIF, AVIF, JPEG XL and HEIC are fetched, even animated, and other formats are named",
    arguments: [
      ("animated.webp", "webp"), ("animated.gif", "gif"), ("animated.avif", "avif"),
      ("animated.jxl", "jxl"), ("sequence.heic", "heic"),
    ])
  func formats(name: String, format: String) async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let file = Fixtures.image(name)
    origin.on("/whole", .ok(file))
    origin.on("/cut", .ok(Array(file.prefix(file.count - 40))))
    origin.on("/other", .ok([0, 0, 0, 24] + Array("ftypmif1\0\0\0\0mif1miaf".utf8)))
    let known = try #require(Fixtures.known.first { $0.name == name }).description
    try await withService { service in
      let job = try await service.finished(service.submit(url: origin.url("/whole")))
      let image = try #require(job["image"] as? [String: Any], "\(job)")
      #expect(image["format"] as? String == format && image["frames"] as? Int == known.frames)
      #expect(image["width"] as? Int == known.width && image["height"] as? Int == known.height)
      let links = try #require(job["links"] as? [String: String])
      let answer = try await service.get(links["image"]!)
      #expect(Array(answer.body) == file)
      #expect(answer.headers["content-type"] == "image/\(format)")
      let cut = try await service.finished(service.submit(url: origin.url("/cut")))
      #expect((cut["error"] as? [String: Any])?["code"] as? String == "decode_failed")
      let other = try await service.finished(service.submit(url: origin.url("/other")))
      let error = try #require(other["error"] as? [String: Any])
      #expect(error["code"] as? String == "unsupported_format")
      #expect((error["detail"] as? String)?.contains("HEIF") == true)
    }
  }

  @Test("an ICO is fetched if decode.formats names it, and has variants")
  func furtherFormats() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let file = Fixtures.image("old.ico")
    origin.on("/whole", .ok(file))
    try await withService(["IMAGEFETCH_DECODE_FORMATS": "jpeg,ico"]) { service in
      let job = try await service.finished(service.submit(url: origin.url("/whole")))
      let image = try #require(job["image"] as? [String: Any], "\(job)")
      #expect(image["format"] as? String == "ico")
      let link = try #require((job["links"] as? [String: String])?["image"])
      let answer = try await service.get(link)
      #expect(Array(answer.body) == file)
      #expect(answer.headers["content-type"] == "image/vnd.microsoft.icon")
      let small = try await service.get(link + "?width=16&format=png")
      #expect(Decoding(Array(small.body), by: StreamingCodec()).description?.width == 16)
    }
  }

  @Test("each kind of misbehaving origin has its own failure")
  func misbehaving() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let png = Fixtures.png
    let cases: [(path: String, reply: ScriptedReply, code: String)] = [
      ("/truncated", .truncated(png, after: png.count / 2), "truncated"),
      ("/cut", .ok(Array(png.prefix(png.count / 2))), "decode_failed"),
      ("/longer", .lying(length: png.count + 10, body: png), "truncated"),
      ("/stalls", .stalled(png, after: 100), "stalled"),
      ("/silent", .silent, "stalled"),
      ("/drips", .dripped(png, size: 1, every: .milliseconds(300)), "timeout"),
      ("/endless", .endless(), "unsupported_format"),
      ("/html", .ok(Array("<!doctype html><p>hello".utf8)), "unsupported_format"),
      ("/empty", .ok([]), "no_data"),
      ("/large", .ok(png + [UInt8](repeating: 0, count: 400_000)), "too_large"),
      ("/missing", .status(404), "origin_status"),
      ("/garbage", .raw("this is no HTTP\r\n\r\n"), "connect_failure"),
      ("/loop", .redirect(to: "/loop"), "too_many_redirects"),
      ("/inside", .redirect(to: "http://169.254.169.254/latest/meta-data/"), "blocked_address"),
      ("/other", .redirect(to: "http://127.0.0.2:\(origin.port)/x"), "blocked_address"),
      ("/file", .redirect(to: "file:///etc/passwd"), "blocked_address"),
    ]
    for (path, reply, _) in cases { origin.on(path, reply) }
    let settings = [
      "IMAGEFETCH_FETCH_STALL_TIMEOUT": "2s", "IMAGEFETCH_FETCH_TIMEOUT": "6s",
      "IMAGEFETCH_FETCH_MAX_BYTES": "300KB", "IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1",
    ]
    try await withService(settings) { service in
      let answer = try await service.submit(cases.map { ["url": origin.url($0.path)] })
      let jobs = try #require(try answer.json()["jobs"] as? [[String: Any]])
      for (job, expected) in zip(jobs, cases) {
        let id = try #require(job["id"] as? String)
        let finished = try await service.finished(id)
        let error = finished["error"] as? [String: Any]
        #expect(error?["code"] as? String == expected.code, "\(expected.path): \(error ?? [:])")
        if expected.path == "/other" { #expect(finished["attempts"] as? Int == 1) }
        let image = try await service.get("/jobs/\(id)/image")
        #expect(image.status == 404, "never a partial image: \(expected.path)")
      }
      #expect(try FileManager.default.images(below: service.folder).isEmpty)
    }
  }

  @Test("no byte is sent to a forbidden address, whatever its spelling")
  func blocked() async throws {
    let origin = try ScriptedOrigin(host: "127.0.0.2")
    defer { origin.stop() }
    origin.on("/x", .ok(Fixtures.png))
    let hosts = ["127.0.0.2", "2130706434", "0x7f.2", "0177.0.0.2", "[::ffff:127.0.0.2]", "127.2"]
    try await withService { service in
      for host in hosts {
        let job = try await service.finished(service.submit(url: "http://\(host):\(origin.port)/x"))
        let error = job["error"] as? [String: Any]
        #expect(error?["code"] as? String == "blocked_address", "\(host)")
      }
    }
    #expect(origin.acceptedConnections == 0)
  }

  @Test("a cancelled job closes its connection at once, and other jobs continue")
  func cancel() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/slow", .stalled(Fixtures.png, after: 50))
    try await withService { service in
      let id = try await service.submit(url: origin.url("/slow"))
      #expect(await origin.waitForRequests(to: "/slow", count: 1))
      let connection = try #require(origin.requests(to: "/slow").first?.connection)
      let answer = try await service.send("DELETE", "/jobs/\(id)")
      let answered = ContinuousClock.now
      #expect(try answer.json()["phase"] as? String == "cancelled")
      let closed = try #require(await origin.waitForClose(of: connection))
      // The contract allows 100 ms. Busy machines may need longer, but much less than any timeout.
      #expect(closed - answered < .seconds(15), "\(closed - answered)")
      #expect(try await service.send("DELETE", "/jobs/\(id)?purge=true").status == 204)
      #expect(try await service.get("/jobs/\(id)").status == 404)
    }
  }

  @Test("stopping lets a running job finish, refuses new ones, and exits with 0")
  func drain() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on(
      "/slow",
      .dripped(
        Fixtures.smallPNG, size: max(1, Fixtures.smallPNG.count / 8), every: .milliseconds(150)))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let service = try await RunningService(folder: folder)
    let id = try await service.submit(url: origin.url("/slow"))
    #expect(await origin.waitForRequests(to: "/slow", count: 1))
    service.terminate()
    try await eventually { try await service.get("/readyz").status == 503 }
    let refused = try await service.submit(["url": origin.url("/slow")])
    #expect(refused.status == 503)
    #expect(try refused.json()["code"] as? String == "draining")
    #expect(try await service.ended() == 0)
    let next = try await RunningService(folder: folder)
    #expect(try await next.get("/jobs/\(id)").json()["phase"] as? String == "success")
    #expect(try await next.stop() == 0)
  }

  @Test("a job that does not finish in time is queued again and runs after the next start")
  func requeue() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/stuck", .stalled(Fixtures.png, after: 50))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = ["IMAGEFETCH_SERVER_DRAIN_TIMEOUT": "100ms"]
    let service = try await RunningService(folder: folder, settings: settings)
    let id = try await service.submit(url: origin.url("/stuck"))
    #expect(await origin.waitForRequests(to: "/stuck", count: 1))
    #expect(try await service.stop() == 0)
    origin.on("/stuck", .ok(Fixtures.png))
    let next = try await RunningService(folder: folder)
    #expect(try await next.finished(id)["phase"] as? String == "success")
    #expect(try await next.stop() == 0)
  }

  @Test("old images are evicted at storage.max_bytes, and their jobs return 410")
  func storage() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let image = Fixtures.filedPNG
    origin.on("/a", .ok(image))
    origin.on("/b", .ok(image + [0]))
    try await withService(["IMAGEFETCH_STORAGE_MAX_BYTES": "\(image.count + 10)"]) { service in
      let first = try await service.submit(url: origin.url("/a"))
      _ = try await service.finished(first)
      let second = try await service.submit(url: origin.url("/b"))
      #expect(try await service.finished(second)["phase"] as? String == "success")
      #expect(try await service.get("/jobs/\(second)/image").status == 200)
      let gone = try await service.get("/jobs/\(first)/image")
      #expect(gone.status == 410)
      #expect(try gone.json()["code"] as? String == "image_gone")
      #expect(try FileManager.default.images(below: service.folder).count == 1)
    }
  }

  @Test("equal bytes are stored once and deleted with the last job that uses them")
  func sharedBytes() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/a", .ok(Fixtures.filedPNG))
    origin.on("/b", .ok(Fixtures.filedPNG))
    try await withService { service in
      var ids: [String] = []
      for path in ["/a", "/b"] { ids.append(try await service.submit(url: origin.url(path))) }
      for id in ids { _ = try await service.finished(id) }
      #expect(try FileManager.default.images(below: service.folder).count == 1)
      _ = try await service.send("DELETE", "/jobs/\(ids[0])?purge=true")
      #expect(try await service.get("/jobs/\(ids[1])/image").status == 200)
      _ = try await service.send("DELETE", "/jobs/\(ids[1])?purge=true")
      #expect(try FileManager.default.images(below: service.folder).isEmpty)
    }
  }

  @Test("an uploaded image is decoded, stored and served like any other")
  func captured() async throws {
    try await withService { service in
      let answer = try await service.send(
        "POST", "/jobs?tags=camera", headers: ["Content-Type": "image/png"],
        body: Data(Fixtures.png))
      #expect(answer.status == 202)
      let id = try #require(try answer.json()["id"] as? String)
      #expect(try await service.finished(id)["phase"] as? String == "success")
      #expect(Array(try await service.get("/jobs/\(id)/image").body) == Fixtures.png)
    }
  }

  @Test("with tokens, a job is visible to its owner and to admins only")
  func tokens() async throws {
    // The SHA-256 of "alpha", "beta" and "boss".
    let tokens = """
      [{name: a, sha256: 8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8, scopes: [jobs]}, \
      {name: b, sha256: f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753, scopes: [jobs]}, \
      {name: boss, sha256: a5e7c002443743c5836758c7d1cd8ddefd9fcf2061daa0efaac683fb99966057, scopes: [jobs, admin]}]
      """
    try await withService(["IMAGEFETCH_AUTH_TOKENS": tokens]) { service in
      #expect(try await service.get("/jobs").status == 401)
      #expect(try await service.get("/livez").status == 200)
      let mine = ["Authorization": "Bearer alpha", "Content-Type": "application/json"]
      let answer = try await service.send(
        "POST", "/jobs", headers: mine, body: Data(#"{"url": "http://127.0.0.2/x"}"#.utf8))
      #expect(answer.status == 202)
      let id = try #require(try answer.json()["id"] as? String)
      #expect(try await service.get("/jobs/\(id)", headers: mine).status == 200)
      let others = ["Authorization": "Bearer beta"]
      #expect(try await service.get("/jobs/\(id)", headers: others).status == 404)
      #expect(try await service.send("DELETE", "/jobs/\(id)", headers: others).status == 404)
      let list = try await service.get("/jobs", headers: others).json()
      #expect((list["jobs"] as? [Any])?.isEmpty == true)
      #expect(try await service.get("/metrics", headers: others).status == 403)
    }
  }
}

extension FileManager {
  /// Returns the names of the files with images.
  func images(below folder: String) throws -> [String] {
    try subpathsOfDirectory(atPath: folder + "/data/images").filter { path in
      var isFolder: ObjCBool = false
      _ = fileExists(atPath: folder + "/data/images/" + path, isDirectory: &isFolder)
      return !isFolder.boolValue && !path.hasPrefix(".")
    }
  }
}
