import Foundation
import Jobs
import S3
import TestSupport
import Testing

@Suite("The tour's import", .timeLimit(.minutes(15)))
struct TourImportTests {
  private static let title = "A thousand avatars, as WebP, into a bucket"

  @Test("one command delivers a thousand images to a bucket and reports it once")
  func imports() async throws {
    let page = Readme.file("docs/tour.md")
    let bucket = try await TestBucket()
    try await withVisitor(inFolder: true) { visitor, _ in
      visitor.replace(bucket: bucket, receiver: try freePort())
      let before = Readme.steps(of: Readme.section("Try it on one machine", of: page))
      let helpers = Readme.steps(of: Readme.section("Each endpoint", of: page)).prefix(1)
      let steps = Readme.steps(of: Readme.section(Self.title, of: page))
      try #require(steps.count == 3 && steps.last?.answer != nil)
      for step in before + helpers + steps { try await visitor.follow(step) }
      let keys = try await bucket.keys
      #expect(Set(keys) == Set((1...1000).map { "\($0).webp" }))
      for key in ["1.webp", "500.webp", "1000.webp"] {
        let got = try #require(try await bucket.bucket.get(key, atMost: 1 << 20))
        var bytes: [UInt8] = []
        while let piece = try await got.next() { bytes += piece }
        // The size is in a lossy frame's header (RFC 6386 section 9.1).
        #expect(String(decoding: bytes[8..<16], as: UTF8.self) == "WEBPVP8 ")
        #expect(bytes[26..<30].map { $0 & 0x3F } == [0, 1, 0, 1].map { $0 & 0x3F })
      }
      // The options came once with the batch. No job had its own.
      let service = try #require(visitor.service)
      let metrics = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
      #expect(metrics.contains("imagefetch_jobs_submitted_total 1000\n"))
    }
  }

  @Test("an unknown bucket is reported at once")
  func refused() async throws {
    let page = Readme.file("docs/tour.md")
    try await withVisitor(inFolder: true) { visitor, _ in
      let before = Readme.steps(of: Readme.section("Try it on one machine", of: page))
      let helpers = Readme.steps(of: Readme.section("Each endpoint", of: page)).prefix(1)
      for step in before + helpers { try await visitor.follow(step) }
      let steps = Readme.steps(of: Readme.section(Self.title, of: page))
      let said = try await visitor.run("receiver=127.0.0.1:9200\n" + steps[2].commands)
      #expect(said.contains("There is no destination of this name."), "\(said)")
      #expect(said.contains("\"parameter\":\"defaults\""), "\(said)")
    }
  }

  @Test("the README has the same import")
  func readme() throws {
    let query = #/--url-query '(defaults=[^']+)'/#
    let shown = try #require(Readme.text.firstMatch(of: query)?.1)
    #expect(Readme.section(Self.title, of: Readme.file("docs/tour.md")).contains(shown))
  }

  /// Returns a port that is free now.
  private func freePort() throws -> Int {
    let origin = try ScriptedOrigin()
    origin.stop()
    return origin.port
  }
}
