import API
import Foundation
import TestSupport
import Testing

@Suite("A crowd of clients", .timeLimit(.minutes(10)))
struct CrowdTests {
  @Test("that sends long JSON at once takes no more memory than there is for it, and probes answer")
  func bodies() async throws {
    try await withService { service in
      let idle = try service.residentMegabytes()
      let port = try #require(service.base.split(separator: ":").last.flatMap { Int($0) })
      let most = try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread {
          continuation.resume(with: Result { try Self.attack(port, service) })
        }
      }
      // 24 × 31 MiB without a limit; 64 MiB with it, and as much again while an array grows.
      // AddressSanitizer holds back 256 MiB of what was freed.
      #expect(most - idle < (Sanitizer.isHere ? 556 : 300), "\(idle) to \(most) MiB")
      let probe = try await service.get("/livez")
      #expect(probe.status == 200)
      // What was taken is free again.
      try await eventually {
        try await service.submit([["url": "http://a.invalid/"]]).status == 202
      }
    }
  }

  @Test("has no more memory for a table by records of nothing but commas")
  func commas() async throws {
    try await withService { service in
      let before = try service.mostResidentMegabytes()
      let commas = String(repeating: ",", count: 12 << 20)
      let answer = try await service.send(
        "POST", "/batches", headers: ["Content-Type": "text/csv"],
        body: Data("url\n\(commas)\n".utf8))
      #expect(answer.status == 202)
      // 16 bytes a comma, and as much again while an array grows: 192 MiB at the least. AddressSanitizer takes 582 for itself.
      let most = try service.mostResidentMegabytes()
      #expect(most - before < (Sanitizer.isHere ? 700 : 60), "\(before) to \(most) MiB")
    }
  }

  @Test("of strangers hides no fault from the alerts, whatever they ask for")
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
      // PATCH, DELETE and PUT mean nothing there.
      #expect(metrics.contains(counted + #"method="other",route="/jobs",status="401"} 3"#))
      #expect(!metrics.contains(#"route="other""#))
    }
  }

  /// - Returns: what was resident at the most, in MiB.
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
