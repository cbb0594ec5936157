import Foundation
import Synchronization
import TestSupport
import Testing

@Suite("Resumed transfers", .timeLimit(.minutes(15)))
struct ResumeTests {
  private let png = Fixtures.png
  private var half: Int { png.count / 2 }
  private let tagged = Representation(Fixtures.png, etag: "\"v1\"")
  private static let tries = ["jobs.max_attempts": "4"]

  /// The requested ranges and validators, one text per request.
  private func asked(_ origin: ScriptedOrigin, _ path: String = "/x") -> [String] {
    origin.requests(to: path).map { request in
      [request.header("Range"), request.header("If-Range")].compactMap(\.self)
        .joined(separator: " ")
    }
  }

  @Test("a transfer is resumed at 40, 70 and 90 % of the image, each time at the missing byte")
  func thrice() async throws {
    try await withPipeline(Self.tries) { service, origin in
      let ends = [40, 70, 90].map { png.count * $0 / 100 }
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: ends[0]) },
        { tagged.reply(to: $0, breakingAt: ends[1]) },
        { tagged.reply(to: $0, breakingAt: ends[2]) }, { tagged.reply(to: $0) })
      let job = try await service.run(["url": origin.url("/x"), "integrity": integrity(png)])
      #expect(job.phase == "success" && job.attempts == 4, "\(job.summary)")
      #expect(asked(origin) == [""] + ends.map { "bytes=\($0)- \"v1\"" })
      #expect(job.progress.resumedFrom == ends[2])
      #expect(job.progress.completed == png.count && job.progress.total == png.count)
      #expect(try await service.image(of: job.id) == png)
    }
  }

  @Test("a transfer is resumed after a cancellation", arguments: [true, false])
  func cancelled(waits: Bool) async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, holdingAt: half, for: gate) },
        { tagged.reply(to: $0) })
      let id = try await service.post(["url": origin.url("/x")])
      try await service.wait(for: id) { $0.progress.completed == half }
      try await service.cancel(id)
      let connection = try #require(origin.requests.first?.connection)
      if waits { #expect(await origin.waitForClose(of: connection) != nil) }
      try await service.fetchAgain(id)
      let job = try await service.outcome(id)
      #expect(job.phase == "success" && job.attempts == 2 && job.error == nil, "\(job.summary)")
      #expect(asked(origin) == ["", "bytes=\(half)- \"v1\""])
      #expect(job.progress.resumedFrom == half)
      #expect(try await service.image(of: id) == png)
    }
  }

  @Test("a transfer is resumed when a failed job is fetched again")
  func failed() async throws {
    try await withPipeline(["jobs.max_attempts": "1"]) { service, origin in
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) }, { tagged.reply(to: $0) })
      let failed = try await service.run(["url": origin.url("/x")])
      #expect(failed.error?.code == "truncated")
      try await service.fetchAgain(failed.id)
      let job = try await service.outcome(failed.id)
      #expect(job.phase == "success" && job.attempts == 2 && job.progress.resumedFrom == half)
      #expect(asked(origin) == ["", "bytes=\(half)- \"v1\""])
      #expect(try await service.image(of: job.id) == png)
    }
  }

  @Test("a transfer is resumed after the service was killed, except for the newest bytes")
  func killed() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    // Long transfers are recorded: from 1 MiB on, or after half a second.
    let large = Representation(PNGFixture(width: 2000, height: 1300).bytes, etag: "\"v1\"")
    let half = large.body.count / 2
    let gate = Gate()
    origin.on(
      "/x", inOrder: { large.reply(to: $0, holdingAt: half, for: gate) },
      { large.reply(to: $0) })
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let service = try await RunningService(folder: folder, settings: environment([:]))
    let id = try await service.post(["url": origin.url("/x"), "integrity": integrity(large.body)])
    try await service.wait(for: id) { $0.progress.completed == half }
    try await service.kill()

    let next = try await RunningService(folder: folder, settings: environment([:]))
    let job = try await next.outcome(id)
    let start = job.progress.resumedFrom
    #expect(job.phase == "success" && start > half - 131_072 && start <= half, "\(job.summary)")
    #expect(asked(origin) == ["", "bytes=\(start)- \"v1\""])
    #expect(try await next.image(of: id) == large.body)
    #expect(try await next.stop() == 0)
  }

  @Test("a transfer is resumed after the service was restarted")
  func restarted() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let gate = Gate()
    origin.on(
      "/x", inOrder: { tagged.reply(to: $0, holdingAt: half, for: gate) }, { tagged.reply(to: $0) })
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = environment(["server.drain_timeout": "50ms"])
    let service = try await RunningService(folder: folder, settings: settings)
    let id = try await service.post(["url": origin.url("/x")])
    try await service.wait(for: id) { $0.progress.completed == half }
    #expect(try await service.stop() == 0)
    let next = try await RunningService(folder: folder, settings: settings)
    #expect(try await next.outcome(id).phase == "success")
    #expect(asked(origin) == ["", "bytes=\(half)- \"v1\""])
    #expect(try await next.image(of: id) == png)
    #expect(try await next.stop() == 0)
  }

  @Test("partial transfers stay within storage.partials, and the oldest is evicted")
  func limit() async throws {
    let settings = ["storage.partials": "\(half * 3 / 2)", "jobs.max_attempts": "1"]
    try await withPipeline(settings) { service, origin in
      var ids: [String] = []
      for path in ["/a", "/b"] {
        origin.on(
          path, inOrder: { tagged.reply(to: $0, breakingAt: half) }, { tagged.reply(to: $0) })
        let job = try await service.run(["url": origin.url(path)])
        #expect(job.error?.code == "truncated")
        ids.append(job.id)
      }
      for id in ids {
        #expect(try await service.send("POST", "/jobs/\(id)/fetch").status == 200)
        #expect(try await service.outcome(id).phase == "success")
      }
      #expect(asked(origin, "/a") == ["", ""])
      #expect(asked(origin, "/b") == ["", "bytes=\(half)- \"v1\""])
    }
  }

  /// Header fields of a response, and the validator that may continue it.
  private static let validators: [([(String, String)], validator: String?)] = [
    ([("ETag", "\"v1\"")], "\"v1\""),
    ([("ETag", "W/\"v1\"")], nil),
    ([("ETag", "v1")], nil),
    ([], nil),
    (
      [
        ("Date", "Sat, 21 Nov 2026 09:00:01 GMT"),
        ("Last-Modified", "Sat, 21 Nov 2026 09:00:00 GMT"),
      ], "Sat, 21 Nov 2026 09:00:00 GMT"
    ),
    (
      [
        ("Date", "Sat, 21 Nov 2026 09:00:00 GMT"),
        ("Last-Modified", "Sat, 21 Nov 2026 09:00:00 GMT"),
      ], nil
    ),
    ([("Last-Modified", "Sat, 21 Nov 2026 09:00:00 GMT")], nil),
    (
      [
        ("ETag", "W/\"v1\""), ("Date", "Sat, 21 Nov 2026 09:00:01 GMT"),
        ("Last-Modified", "Sat, 21 Nov 2026 09:00:00 GMT"),
      ], nil
    ),
    ([("ETag", "\"v1\""), ("Accept-Ranges", "none")], nil),
    ([("ETag", "\"v1\""), ("Content-Encoding", "gzip")], nil),
    ([("ETag", "\"v1\""), ("Cache-Control", "no-store")], nil),
  ]

  @Test(
    "a transfer is resumed only with a strong validator, without codings, if it may be stored",
    arguments: validators.indices)
  func validator(_ number: Int) async throws {
    let (headers, validator) = Self.validators[number]
    try await withPipeline { service, origin in
      let isCoded = headers.contains { $0.0 == "Content-Encoding" }
      let whole = Representation(isCoded ? Compressed.gzip(png) : png, headers: headers)
      let end = whole.body.count / 2
      origin.on("/x", inOrder: { whole.reply(to: $0, breakingAt: end) }, { whole.reply(to: $0) })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.attempts == 2, "\(job.summary)")
      #expect(asked(origin) == ["", validator.map { "bytes=\(half)- \($0)" } ?? ""])
      #expect(job.progress.resumedFrom == (validator == nil ? 0 : half))
      #expect(try await service.image(of: job.id) == png)
    }
  }

  @Test("a transfer starts again if the origin sends the complete image")
  func whole() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      let new = image("new", from: png)
      let start = png.count / 10
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) },
        { Representation(new, etag: "\"v2\"").reply(to: $0, holdingAt: start, for: gate) })
      let id = try await service.post(["url": origin.url("/x")])
      let shown = try await service.wait(for: id) {
        $0.attempts == 2 && $0.progress.completed > 0
      }
      #expect(shown.progress.completed == start && shown.progress.resumedFrom == 0)
      #expect(shown.progress.total == new.count)
      gate.open()
      let job = try await service.outcome(id)
      #expect(job.phase == "success" && job.progress.resumedFrom == 0)
      #expect(asked(origin) == ["", "bytes=\(half)- \"v1\""])
      #expect(try await service.image(of: id) == new)
    }
  }

  @Test("two versions are never mixed, however often each breaks")
  func versions() async throws {
    try await withPipeline(Self.tries) { service, origin in
      let new = Representation(image("new", from: png), etag: "\"v2\"")
      let late = png.count * 7 / 10
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) },
        { new.reply(to: $0, breakingAt: late) }, { new.reply(to: $0) })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.progress.resumedFrom == late, "\(job.summary)")
      #expect(asked(origin) == ["", "bytes=\(half)- \"v1\"", "bytes=\(late)- \"v2\""])
      #expect(try await service.image(of: job.id) == new.body)
    }
  }

  @Test("after a refused range the complete image is requested in the same attempt")
  func refused() async throws {
    try await withPipeline(["jobs.max_attempts": "2"]) { service, origin in
      let shorter = Fixtures.smallPNG
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) },
        { _ in .status(416, headers: [("Content-Range", "bytes */\(shorter.count)")]) },
        { _ in .ok(shorter) })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.attempts == 3, "\(job.summary)")
      #expect(job.progress.resumedFrom == 0 && job.progress.completed == shorter.count)
      #expect(asked(origin) == ["", "bytes=\(half)- \"v1\"", ""])
      #expect(try await service.image(of: job.id) == shorter)
    }
  }

  @Test(
    "after a wrong part the complete image is requested in the same attempt",
    arguments: [
      "start", "start before", "end", "total", "unit", "no range", "tag", "weak tag",
      "no tag", "length",
    ])
  func unfit(what: String) async throws {
    try await withPipeline(["jobs.max_attempts": "2"]) { service, origin in
      let (count, half) = (png.count, half)
      // With these bytes the image would differ.
      let other = Representation([UInt8](repeating: 0, count: count), etag: "\"v1\"")
      func range(_ start: Int, _ end: Int, _ total: String) -> String {
        "bytes \(start)-\(end)/\(total)"
      }
      let right = range(half, count - 1, "\(count)")
      let part: ScriptedReply =
        switch what {
        case "start":
          other.part(from: half + 1, contentRange: range(half + 1, count - 1, "\(count)"))
        case "start before":
          other.part(from: half - 1, contentRange: range(half - 1, count - 1, "\(count)"))
        case "end":
          .status(
            206,
            headers: [("ETag", "\"v1\""), ("Content-Range", range(half, count - 2, "\(count)"))],
            body: Array(other.body[half..<count - 1]))
        case "total": other.part(from: half, contentRange: range(half, count - 1, "\(count + 1)"))
        case "unit": other.part(from: half, contentRange: "rows \(half)-\(count - 1)/\(count)")
        case "no range":
          .status(206, headers: [("ETag", "\"v1\"")], body: Array(other.body[half...]))
        case "tag":
          Representation(other.body, etag: "\"v2\"").part(from: half, contentRange: right)
        case "weak tag":
          Representation(other.body, etag: "W/\"v1\"").part(from: half, contentRange: right)
        case "no tag": Representation(other.body).part(from: half, contentRange: right)
        default: other.part(from: half + 1, contentRange: right)
        }
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) }, { _ in part },
        { tagged.reply(to: $0) })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.attempts == 3, "\(job.summary)")
      #expect(job.progress.resumedFrom == 0)
      #expect(asked(origin) == ["", "bytes=\(half)- \"v1\"", ""])
      #expect(try await service.image(of: job.id) == png)
    }
  }

  @Test("a part without a total is accepted if the first response had it")
  func partWithoutTotal() async throws {
    try await withPipeline(Self.tries) { service, origin in
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) },
        { _ in tagged.part(from: half, contentRange: "bytes \(half)-\(png.count - 1)/*") })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.attempts == 2, "\(job.summary)")
      #expect(job.progress.resumedFrom == half && job.progress.total == png.count)
      #expect(try await service.image(of: job.id) == png)
    }
  }

  /// A response with the second half, without a length of its own.
  private func part(_ bytes: [UInt8], isChunked: Bool) -> ScriptedReply {
    let range = "bytes \(half)-\(png.count - 1)/\(png.count)"
    let fields = [("ETag", "\"v1\""), ("Content-Range", range)]
    guard isChunked else {
      return ScriptedReply(.send(ScriptedReply.head(206, fields) + bytes), .close)
    }
    let head = ScriptedReply.head(206, fields + [("Transfer-Encoding", "chunked")])
    let last = ScriptedReply.chunk([])
    let chunks = bytes.isEmpty ? last : ScriptedReply.chunk(bytes) + last
    return ScriptedReply(.send(head + chunks))
  }

  @Test(
    "a transfer is resumed after a part that ended early, whatever marks its end",
    arguments: [true, false])
  func cutPart(isChunked: Bool) async throws {
    try await withPipeline(Self.tries) { service, origin in
      let late = png.count * 7 / 10
      let cut = part(Array(png[half..<late]), isChunked: isChunked)
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) }, { _ in cut },
        { tagged.reply(to: $0) })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.attempts == 3, "\(job.summary)")
      #expect(asked(origin) == ["", "bytes=\(half)- \"v1\"", "bytes=\(late)- \"v1\""])
      #expect(job.progress.resumedFrom == late)
      #expect(try await service.image(of: job.id) == png)
    }
  }

  @Test(
    "a transfer is resumed after an empty part, whatever marks its end", arguments: [true, false])
  func emptyPart(isChunked: Bool) async throws {
    try await withPipeline(Self.tries) { service, origin in
      let empty = part([], isChunked: isChunked)
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) }, { _ in empty },
        { tagged.reply(to: $0) })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.attempts == 3, "\(job.summary)")
      #expect(asked(origin) == ["", "bytes=\(half)- \"v1\"", "bytes=\(half)- \"v1\""])
      #expect(job.progress.resumedFrom == half)
      #expect(try await service.image(of: job.id) == png)
    }
  }

  @Test("a part that ends before its range is truncated", arguments: [true, false])
  func truncatedPart(isChunked: Bool) async throws {
    try await withPipeline(["jobs.max_attempts": "2"]) { service, origin in
      let cut = part(Array(png[half..<(half + 1_000)]), isChunked: isChunked)
      origin.on("/x", inOrder: { tagged.reply(to: $0, breakingAt: half) }, { _ in cut })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.error?.code == "truncated" && job.error?.retryable == true, "\(job.summary)")
    }
  }

  @Test(
    "after a part beyond its range the complete image is requested in the same attempt",
    arguments: [true, false])
  func longPart(isChunked: Bool) async throws {
    try await withPipeline(["jobs.max_attempts": "2"]) { service, origin in
      let bytes = Array(png[half...]) + [UInt8](repeating: 0, count: 5_000)
      let long = part(bytes, isChunked: isChunked)
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) }, { _ in long },
        { tagged.reply(to: $0) })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.attempts == 3, "\(job.summary)")
      #expect(job.progress.resumedFrom == 0 && job.progress.completed == png.count)
      #expect(asked(origin) == ["", "bytes=\(half)- \"v1\"", ""])
      #expect(try await service.image(of: job.id) == png)
    }
  }

  @Test("the connection of a useless part is released before the complete image is requested")
  func letGo() async throws {
    try await withPipeline(["jobs.max_attempts": "2"]) { service, origin in
      let gate = Gate()
      let fields = [("ETag", "\"v1\""), ("Content-Range", "bytes 0-9/\(png.count)")]
      let part = ScriptedReply(.send(ScriptedReply.head(206, fields)), .hold(gate))
      let hasEnded = Mutex(false)
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) }, { _ in part },
        { [origin] request in
          let earlier = origin.requests(to: "/x")[1].connection
          let deadline = ContinuousClock.now + .seconds(20)
          while origin.closed(earlier) == nil, .now < deadline { usleep(1_000) }
          hasEnded.withLock { $0 = origin.closed(earlier) != nil }
          return tagged.reply(to: request)
        })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && hasEnded.withLock(\.self), "\(job.summary)")
      gate.open()
    }
  }

  @Test("bytes fetched with one credential never continue those of another")
  func credentials() async throws {
    try await withPipeline(["jobs.max_attempts": "1"]) { service, origin in
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) },
        { tagged.reply(to: $0) })
      func job(_ credential: String) -> [String: Any] {
        ["url": origin.url("/x"), "headers": ["Authorization": credential]]
      }
      #expect(try await service.run(job("Basic YQ==")).error?.code == "truncated")
      let other = try await service.run(job("Basic Yg=="))
      #expect(other.phase == "success" && other.progress.resumedFrom == 0)
      let same = try await service.run(job("Basic YQ=="))
      #expect(same.phase == "success" && same.progress.resumedFrom == half)
      let none = try await service.run(["url": origin.url("/x")])
      #expect(none.phase == "success" && none.progress.resumedFrom == 0)
      #expect(asked(origin) == ["", "", "bytes=\(half)- \"v1\"", ""])
    }
  }

  @Test("a job in no-store mode keeps no partial transfer")
  func noStore() async throws {
    try await withPipeline { service, origin in
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) }, { tagged.reply(to: $0) })
      let job = try await service.run(["url": origin.url("/x"), "cache": "no-store"])
      #expect(job.phase == "success" && asked(origin) == ["", ""])
    }
  }

  @Test("a purge deletes the job's partial transfer")
  func purged() async throws {
    try await withPipeline(["jobs.max_attempts": "1"]) { service, origin in
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: half) }, { tagged.reply(to: $0) })
      let failed = try await service.run(["url": origin.url("/x")])
      #expect(try await service.send("DELETE", "/jobs/\(failed.id)?purge=true").status == 204)
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && asked(origin) == ["", ""])
    }
  }

  @Test("a transfer that broke before its first byte is not resumed")
  func empty() async throws {
    try await withPipeline { service, origin in
      origin.on(
        "/x", inOrder: { tagged.reply(to: $0, breakingAt: 0) }, { tagged.reply(to: $0) })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && asked(origin) == ["", ""], "\(job.summary)")
    }
  }

  @Test("a transfer without a length is resumed")
  func chunked() async throws {
    try await withPipeline { service, origin in
      let head = ScriptedReply.head(200, [("Transfer-Encoding", "chunked"), ("ETag", "\"v1\"")])
      origin.on(
        "/x",
        inOrder: { _ in
          ScriptedReply(.send(head + ScriptedReply.chunk(Array(png[..<half]))), .close)
        }, { tagged.reply(to: $0) })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.progress.resumedFrom == half, "\(job.summary)")
      #expect(asked(origin) == ["", "bytes=\(half)- \"v1\""])
      #expect(try await service.image(of: job.id) == png)
    }
  }
}
