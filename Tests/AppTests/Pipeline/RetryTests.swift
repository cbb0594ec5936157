import Foundation
import TestSupport
import Testing

@Suite("Failed attempts", .timeLimit(.minutes(15)))
struct RetryTests {
  private let png = Fixtures.smallPNG

  @Test(
    "a failed attempt is followed by another one only if that may help",
    arguments: [
      (400, false), (401, false), (403, false), (404, false), (408, true), (410, false),
      (421, false), (425, true), (429, true), (451, false), (500, true), (501, false), (502, true),
      (503, true), (504, true),
    ])
  func statuses(status: Int, isRetried: Bool) async throws {
    try await withPipeline { service, origin in
      origin.on("/x", inOrder: [.status(status), .ok(png)])
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == (isRetried ? "success" : "failure"))
      #expect(job.attempts == (isRetried ? 2 : 1))
      #expect(origin.requests.count == job.attempts)
      if !isRetried {
        #expect(job.error?.originStatus == status && job.error?.retryable == false)
      }
    }
  }

  @Test("max_attempts limits the attempts, and the job says that another may help")
  func attempts() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", .status(503))
      let job = try await service.run(["url": origin.url("/x"), "max_attempts": 5])
      #expect(job.phase == "failure" && job.attempts == 5 && origin.requests.count == 5)
      #expect(job.error?.code == "origin_status" && job.error?.retryable == true)
    }
  }

  @Test("an attempt with a broken image, or none, is the last one")
  func broken() async throws {
    try await withPipeline { service, origin in
      origin.on("/cut", .ok(Array(png.dropLast(20))))
      origin.on("/text", .ok(Array("no image at all".utf8)))
      let cut = try await service.run(["url": origin.url("/cut")])
      #expect(cut.error?.code == "decode_failed" && cut.attempts == 1)
      let text = try await service.run(["url": origin.url("/text")])
      #expect(text.error?.code == "unsupported_format" && text.attempts == 1)
      #expect(origin.requests.count == 2)
    }
  }

  @Test("the next attempt waits for the seconds in Retry-After")
  func seconds() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", inOrder: [.status(503, headers: [("Retry-After", "1")]), .ok(png)])
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success")
      let times = origin.requests.map(\.received)
      #expect(times[1] - times[0] >= .seconds(1))
      #expect(times[1] - times[0] < .seconds(30))
    }
  }

  @Test("the next attempt waits for the date in Retry-After")
  func date() async throws {
    try await withPipeline { service, origin in
      let due = Date(timeIntervalSinceNow: 2)
      let format = DateFormatter()
      format.locale = Locale(identifier: "en_US_POSIX")
      format.timeZone = TimeZone(identifier: "GMT")
      format.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
      let text = format.string(from: due)
      origin.on("/x", inOrder: [.status(429, headers: [("Retry-After", text)]), .ok(png)])
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && origin.requests.count == 2)
      let named = try #require(format.date(from: text))
      #expect(Date.now >= named)
    }
  }

  @Test("the next attempt waits for the longest back-off at most, whatever Retry-After says")
  func maximum() async throws {
    try await withPipeline(["jobs.retry_backoff.maximum": "200ms"]) { service, origin in
      origin.on(
        "/x",
        inOrder: [
          .status(503, headers: [("Retry-After", "86400")]),
          .status(503, headers: [("Retry-After", "Sat, 01 Jan 2095 00:00:00 GMT")]), .ok(png),
        ])
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.attempts == 3)
      let times = origin.requests.map(\.received)
      #expect(times[1] - times[0] >= .milliseconds(200))
      #expect(times[2] - times[1] >= .milliseconds(200))
    }
  }

  @Test("a waiting job can be cancelled at once, and makes no further attempt")
  func cancelled() async throws {
    try await withPipeline(["jobs.retry_backoff.maximum": "1s"]) { service, origin in
      origin.on("/x", .status(503, headers: [("Retry-After", "60")]))
      origin.on("/later", inOrder: [.status(503, headers: [("Retry-After", "60")]), .ok(png)])
      let id = try await service.post(["url": origin.url("/x")])
      try await service.wait(for: id) { $0.phase == "queued" && $0.attempts == 1 }
      try await service.cancel(id)
      #expect(try await service.job(id).phase == "cancelled")
      // This job's back-off began later and is over, so the cancelled job's would be over, too.
      #expect(try await service.run(["url": origin.url("/later")]).phase == "success")
      #expect(origin.requests(to: "/x").count == 1)
    }
  }

  @Test("the alternatives are tried one after the other, and the job says which one succeeded")
  func alternatives() async throws {
    try await withPipeline { service, origin in
      origin.on("/broken", .ok(Array(png.dropLast(20))))
      origin.on("/good", .ok(png))
      let rest = ["/broken", "/good", "/unasked"].map { origin.url($0) }
      let job = try await service.run(["url": origin.url("/missing"), "alternatives": rest])
      #expect(job.phase == "success" && job.attempts == 3, "\(job.summary)")
      #expect(job.image?.url == origin.url("/good"))
      #expect(job.source.url == origin.url("/missing"))
      #expect(origin.paths == ["/missing", "/broken", "/good"])
      #expect(try await service.image(of: job.id) == png)
    }
  }

  @Test("one attempt covers all alternatives, and the next begins with the first URL")
  func rounds() async throws {
    try await withPipeline { service, origin in
      origin.on("/a", .status(503))
      origin.on("/b", inOrder: [.status(503), .ok(png)])
      let job = try await service.run([
        "url": origin.url("/a"), "alternatives": [origin.url("/b")], "max_attempts": 2,
      ])
      #expect(job.phase == "success" && job.attempts == 4, "\(job.summary)")
      #expect(origin.paths == ["/a", "/b", "/a", "/b"])
    }
  }

  @Test("after all alternatives failed, the longest Retry-After counts")
  func longestTime() async throws {
    try await withPipeline { service, origin in
      origin.on("/a", inOrder: [.status(503, headers: [("Retry-After", "1")]), .ok(png)])
      origin.on("/b", .status(503))
      let job = try await service.run([
        "url": origin.url("/a"), "alternatives": [origin.url("/b")], "max_attempts": 2,
      ])
      #expect(job.phase == "success" && job.attempts == 3, "\(job.summary)")
      #expect(origin.paths == ["/a", "/b", "/a"])
      let times = origin.requests.map(\.received)
      #expect(times[2] - times[0] >= .seconds(1))
    }
  }

  @Test("the next attempt is made if it may help for any alternative")
  func anyMayHelp() async throws {
    try await withPipeline { service, origin in
      origin.on("/a", inOrder: [.status(503), .ok(png)])
      let gone = [origin.url("/gone")]
      let job = try await service.run(["url": origin.url("/a"), "alternatives": gone])
      #expect(job.phase == "success" && job.attempts == 3, "\(job.summary)")
      #expect(origin.paths == ["/a", "/gone", "/a"])
      origin.on("/busy", .status(503))
      let lost = try await service.run([
        "url": origin.url("/busy"), "alternatives": gone, "max_attempts": 2,
      ])
      #expect(lost.phase == "failure" && lost.attempts == 4, "\(lost.summary)")
      #expect(lost.error?.originStatus == 503 && lost.error?.retryable == true)
      let none = try await service.run(["url": origin.url("/none"), "alternatives": gone])
      #expect(none.error?.originStatus == 404 && none.attempts == 2)
    }
  }

  @Test("a cancelled attempt tries no alternative")
  func cancelledAlternative() async throws {
    try await withPipeline { service, origin in
      origin.on("/a", .stalled(png, after: 50))
      origin.on("/b", .ok(png))
      let id = try await service.post([
        "url": origin.url("/a"), "alternatives": [origin.url("/b")],
      ])
      #expect(await origin.waitForRequests(to: "/a"))
      try await service.cancel(id)
      #expect(await origin.waitForClose(of: origin.requests[0].connection) != nil)
      #expect(try await service.run(["url": origin.url("/other")]).phase == "failure")
      #expect(try await service.job(id).phase == "cancelled")
      #expect(origin.paths == ["/a", "/other"])
    }
  }

  @Test("integrity covers all bytes, even of a resumed image")
  func integrityOfResumed() async throws {
    try await withPipeline { service, origin in
      let whole = Representation(Fixtures.png, etag: "\"v1\"")
      let half = whole.body.count / 2
      // A valid but different image: the bytes after its end differ.
      let long = Representation(image("other", from: whole.body), etag: "\"v1\"")
      origin.on(
        "/right", inOrder: { whole.reply(to: $0, breakingAt: half) }, { whole.reply(to: $0) })
      origin.on(
        "/wrong", inOrder: { long.reply(to: $0, breakingAt: half) }, { long.reply(to: $0) })
      let digest = integrity(whole.body)
      let right = try await service.run(["url": origin.url("/right"), "integrity": digest])
      #expect(right.phase == "success" && right.progress.resumedFrom == half, "\(right.summary)")
      let wrong = try await service.run(["url": origin.url("/wrong"), "integrity": digest])
      #expect(wrong.error?.code == "integrity_mismatch" && wrong.progress.resumedFrom == half)
      #expect(wrong.error?.retryable == false && wrong.attempts == 2)
      #expect(try await service.get("/jobs/\(wrong.id)/image").status == 404)
    }
  }

  @Test("an image with a different digest leads to the alternatives, too")
  func integrityOfAlternatives() async throws {
    try await withPipeline { service, origin in
      origin.on("/a", .ok(image("another", from: png)))
      origin.on("/b", .ok(png))
      let job = try await service.run([
        "url": origin.url("/a"), "alternatives": [origin.url("/b")], "integrity": integrity(png),
      ])
      #expect(job.phase == "success" && job.image?.url == origin.url("/b"))
    }
  }

  @Test("a failed job does not prevent later jobs from trying the same URL")
  func nextJob() async throws {
    try await withPipeline { service, origin async throws in
      origin.on("/x", inOrder: [.status(404), .status(403), .ok(png)])
      let job = ["url": origin.url("/x")]
      #expect(try await service.run(job).error?.originStatus == 404)
      #expect(try await service.run(job).error?.originStatus == 403)
      #expect(try await service.run(job).phase == "success")
      #expect(origin.requests.count == 3)
    }
  }
}
