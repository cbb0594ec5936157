import API
import Foundation
import TestSupport
import Testing

@Suite("A large number of clients", .timeLimit(.minutes(10)))
struct CrowdTests {
  @Test("long JSON from many clients uses limited memory, and probes are answered")
  func bodies() async throws {
    try await withService { service in
      let idle = try service.residentMegabytes()
      let port = try #require(service.base.split(separator: ":").last.flatMap { Int($0) })
      let most = try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread {
          continuation.resume(with: Result { try Self.attack(port, service) })
        }
      }
      // 24 × 31 MiB without a limit. With the limit 64 MiB, and as much again while an array grows.
      // AddressSanitizer retains 256 MiB of freed memory.
      #expect(most - idle < (Sanitizer.isHere ? 556 : 300), "\(idle) to \(most) MiB")
      let probe = try await service.get("/livez")
      #expect(probe.status == 200)
      // The used memory is free again.
      try await eventually {
        try await service.submit([["url": "http://a.invalid/"]]).status == 202
      }
    }
  }

  @Test("records of commas alone do not use much memory for a table")
  func commas() async throws {
    try await withService { service in
      let before = try service.mostResidentMegabytes()
      let commas = String(repeating: ",", count: 12 << 20)
      let answer = try await service.send(
        "POST", "/batches", headers: ["Content-Type": "text/csv"],
        body: Data("url\n\(commas)\n".utf8))
      #expect(answer.status == 202)
      // 16 bytes per comma, and as much again while an array grows: at least 192 MiB. AddressSanitizer itself
      // takes 582 MiB.
      let most = try service.mostResidentMegabytes()
      #expect(most - before < (Sanitizer.isHere ? 700 : 60), "\(before) to \(most) MiB")
    }
  }

  @Test("unauthenticated requests do not hide errors from the alerts")
  func strangers() async throws {
    let keys = ["jobs.max_queued": "1"].merging(twoOwners) { $1 }
    try await withService(environment(keys)) { service in
      for (template, _) in Routes.table {
        let path = template.replacing("{code}", with: "timeout")
          .replacing("{id}", with: "0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88")
        for method in ["GET", "HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS"] {
          _ = try await service.send(method, path)
        }
      }
      let refused = try await service.send(
        "POST", "/jobs", headers: anna.merging(["Content-Type": "application/json"]) { $1 },
        body: Data(#"[{"url":"http://a.invalid/"},{"url":"http://b.invalid/"}]"#.utf8))
      #expect(refused.status == 503)
      let metrics = String(
        decoding: try await service.get("/metrics", headers: anna).body, as: UTF8.self)
      let counted = "imagefetch_http_requests_total{"
      #expect(metrics.contains(counted + #"method="POST",route="/jobs",status="503"} 1"#))
      // PATCH, DELETE and PUT have no meaning for this route.
      #expect(metrics.contains(counted + #"method="other",route="/jobs",status="401"} 3"#))
      #expect(!metrics.contains(#"route="other""#))
    }
  }

  /// - Returns: The largest resident memory in MiB.
  private static func attack(_ port: Int, _ service: RunningService) throws -> Int {
    let clients = try (0..<24).map { _ in try RawConnection(port) }
    for client in clients {
      client.send(
        "POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          + "Content-Length: \(31 << 20)\r\n\r\n[")
    }
    let piece = String(repeating: " ", count: 1 << 20)
    var most = 0
    for _ in 0..<15 {
      for client in clients { client.send(piece) }
      most = max(most, try service.residentMegabytes())
    }
    return most
  }
}
