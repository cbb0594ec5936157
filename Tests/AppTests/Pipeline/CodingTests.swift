import Foundation
import TestSupport
import Testing

@Suite("Images with a content coding", .timeLimit(.minutes(15)))
struct CodingTests {
  private let png = Fixtures.png
  private let gzip = Compressed.gzip(Fixtures.png)
  private static let coded = [("Content-Encoding", "gzip"), ("ETag", "\"v1-gzip\"")]

  @Test("the image is stored and hashed decoded, and its progress has no total")
  func stored() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      let pieces = Compressed.gzip(png)
      origin.on("/x", .held(pieces, after: pieces.count / 2, by: gate, headers: Self.coded))
      let id = try await service.post(["url": origin.url("/x"), "integrity": integrity(png)])
      let shown = try await service.wait(for: id) { $0.progress.completed > 0 }
      #expect(shown.progress.total == nil && shown.progress.fraction == nil)
      gate.open()
      let job = try await service.outcome(id)
      #expect(job.phase == "success" && job.image?.bytes == png.count, "\(job.summary)")
      #expect(job.progress.completed == png.count)
      #expect(try await service.image(of: id) == png)
      let head = try await service.send("HEAD", "/jobs/\(id)/image")
      #expect(head.headers["content-length"] == "\(png.count)")
      #expect(head.headers["content-encoding"] == nil)
      #expect(origin.requests[0].header("Accept-Encoding") == "identity")
    }
  }

  @Test("the image is revalidated with the entity tag of the coded response")
  func revalidated() async throws {
    try await withPipeline { service, origin in
      let stale = [("Cache-Control", "max-age=0")]
      origin.on(
        "/x",
        inOrder: [
          .ok(gzip, headers: Self.coded + stale),
          .status(304, headers: Self.coded + stale),
          .status(304, headers: [("ETag", "\"v1-gzip\""), ("Cache-Control", "max-age=60")]),
        ])
      _ = try await service.run(["url": origin.url("/x")])
      for _ in 0..<2 {
        let job = try await service.run(["url": origin.url("/x")])
        #expect(job.phase == "success" && job.cache?.status == "revalidated", "\(job.summary)")
        #expect(try await service.image(of: job.id) == png)
      }
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.cache?.status == "hit")
      #expect(
        origin.requests.map { $0.header("If-None-Match") } == [nil, "\"v1-gzip\"", "\"v1-gzip\""])
    }
  }

  @Test("the image is fetched again completely if a coded part answers a resumed transfer")
  func codedPart() async throws {
    try await withPipeline(["jobs.max_attempts": "2"]) { service, origin in
      let half = png.count / 2
      let plain = Representation(png, etag: "\"v1\"")
      let range = ("Content-Range", "bytes \(half)-\(png.count - 1)/\(png.count)")
      let rest = Array(png[half...])
      origin.on(
        "/x", inOrder: { plain.reply(to: $0, breakingAt: half) },
        { _ in
          .status(
            206, headers: [range, ("ETag", "\"v1\""), ("Content-Encoding", "gzip")], body: rest)
        }, { _ in .ok(gzip, headers: Self.coded) })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.attempts == 3, "\(job.summary)")
      #expect(job.progress.resumedFrom == 0)
      #expect(
        origin.requests.map { $0.header("Range") } == [nil, "bytes=\(half)-", nil])
      #expect(try await service.image(of: job.id) == png)
    }
  }

  @Test("max_bytes limits the sent bytes and the decoded bytes")
  func limits() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", .ok(gzip, headers: Self.coded))
      let small = try await service.run(["url": origin.url("/x"), "max_bytes": png.count - 1])
      #expect(small.error?.code == "too_large" && small.error?.retryable == false)
      // Bytes after the end of the coding are sent, too.
      let long = gzip + [UInt8](repeating: 0, count: 1_000_000)
      origin.on("/y", .ok(long, headers: Self.coded))
      let limit = max(png.count, gzip.count)
      #expect(try await service.run(["url": origin.url("/y")]).phase == "success")
      for (path, code) in [("/x", nil), ("/y", "too_large")] {
        let job = ["url": origin.url(path), "max_bytes": limit, "cache": "reload"] as [String: Any]
        #expect(try await service.run(job).error?.code == code)
      }
    }
  }

  @Test(
    "an image with an unknown coding succeeds if the bytes are an image",
    arguments: ["utf-8", "base64", "aws-chunked", "zstd", "gzip, gzip, gzip, gzip"])
  func wrongName(name: String) async throws {
    try await withPipeline { service, origin in
      let fields = [
        ("Content-Encoding", name), ("ETag", "\"v1\""), ("Cache-Control", "max-age=600"),
      ]
      origin.on("/x", .ok(png, headers: fields))
      let job = try await service.run(["url": origin.url("/x"), "integrity": integrity(png)])
      #expect(job.phase == "success" && job.image?.bytes == png.count, "\(job.summary)")
      #expect(job.progress.total == png.count && job.attempts == 1)
      #expect(try await service.image(of: job.id) == png)
      let head = try await service.send("HEAD", "/jobs/\(job.id)/image")
      #expect(head.headers["content-encoding"] == nil)
      #expect(try await service.run(["url": origin.url("/x")]).cache?.status == "hit")
      let small: [String: Any] = [
        "url": origin.url("/x"), "max_bytes": png.count - 1, "cache": "reload",
      ]
      #expect(try await service.run(small).error?.code == "too_large")
    }
  }

  @Test("an image with an unknown coding is fetched again completely after a broken transfer")
  func brokenOff() async throws {
    try await withPipeline(["jobs.max_attempts": "2"]) { service, origin in
      let odd = Representation(
        png, headers: [("ETag", "\"v1\""), ("Content-Encoding", "aws-chunked")])
      origin.on("/x", inOrder: { odd.reply(to: $0, breakingAt: 100) }, { odd.reply(to: $0) })
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.phase == "success" && job.attempts == 2, "\(job.summary)")
      #expect(origin.requests.map { $0.header("Range") } == [nil, nil])
      #expect(try await service.image(of: job.id) == png)
    }
  }

  @Test("an image with an unsupported or broken coding fails without a retry")
  func failures() async throws {
    try await withPipeline(["jobs.max_attempts": "3"]) { service, origin in
      origin.on("/x", .ok([0x28, 0xB5, 0x2F, 0xFD] + png, headers: [("Content-Encoding", "zstd")]))
      let unknown = try await service.run(["url": origin.url("/x")])
      #expect(unknown.error?.code == "unsupported_format" && unknown.attempts == 1)
      #expect(unknown.error?.detail.contains("zstd") == true)
      origin.on("/y", .ok(Array(gzip.dropLast(9)), headers: Self.coded))
      let broken = try await service.run(["url": origin.url("/y")])
      #expect(broken.error?.code == "decode_failed" && broken.attempts == 1)
      #expect(broken.error?.retryable == false)
      #expect(broken.error?.detail.contains("gzip") == true)
    }
  }
}
