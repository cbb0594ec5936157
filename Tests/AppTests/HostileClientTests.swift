import Foundation
import TestSupport
import Testing

@Suite("Malicious clients", .timeLimit(.minutes(15)))
struct HostileClientTests {
  private static let crowd = 150

  @Test(
    "endless heads, floods of fields, partial requests and unread responses do not block others"
  )
  func crowd() async throws {
    try await withPipeline(["server.max_connections": "2000"]) { service, origin in
      origin.on("/large", .ok(Fixtures.filedPNG + [UInt8](repeating: 1, count: 8 << 20)))
      let large = try await service.run(["url": origin.url("/large")])
      #expect(large.phase == "success")
      let port = try #require(service.base.split(separator: ":").last.flatMap { Int($0) })
      let held = try Self.attack(port, image: large.id)
      for number in 0..<20 {
        origin.on("/\(number)", .ok(image("\(number)")))
        let job = try await service.run(["url": origin.url("/\(number)")])
        #expect(job.phase == "success")
        #expect(try await service.image(of: job.id) == image("\(number)"))
        for connection in held.slow { connection.send("X-Slow-\(number): 1\r\n") }
      }
      for path in ["/livez", "/readyz", "/jobs", "/metrics"] {
        #expect(try await service.get(path).status == 200, "\(path)")
      }
      withExtendedLifetime(held) {}
      // Their memory is free again after they have disconnected.
      let metrics = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
      #expect(metrics.contains(#"imagefetch_jobs{phase="success"} 21"#))
    }
  }

  @Test("a rush for an image that clients do not read holds none of its bytes in memory")
  func rush() async throws {
    try await withPipeline(["server.max_connections": "2000"]) { service, origin in
      origin.on("/large", .ok(Fixtures.filedPNG + [UInt8](repeating: 1, count: 8 << 20)))
      let large = try await service.run(["url": origin.url("/large")])
      #expect(large.phase == "success")
      let port = try #require(service.base.split(separator: ":").last.flatMap { Int($0) })
      let before = try service.residentMegabytes()
      var held: [RawConnection] = []
      for _ in 0..<2 * Self.crowd {
        let unread = try RawConnection(port)
        unread.send("GET /jobs/\(large.id)/image HTTP/1.1\r\nHost: localhost\r\n\r\n")
        held.append(unread)
      }
      // Each connection has received a response up to the size of its buffers.
      for connection in held { #expect(connection.isAnswered) }
      #expect(try service.residentMegabytes() < before + 100)
      withExtendedLifetime(held) {}
    }
  }

  private struct Held {
    var slow: [RawConnection] = []
    var others: [RawConnection] = []
  }

  private static func attack(_ port: Int, image: String) throws -> Held {
    let host = "Host: localhost\r\n"
    var held = Held()
    for number in 0..<crowd {
      // A head that arrives one field at a time.
      let slow = try RawConnection(port)
      slow.send("GET /jobs HTTP/1.1\r\n\(host)")
      held.slow.append(slow)
      // Fields that exceed the limit.
      let flood = try RawConnection(port)
      flood.send(
        "GET /jobs HTTP/1.1\r\n\(host)"
          + (0..<2_000).map { "X-\($0): \(number)\r\n" }.joined())
      // No request at all, half a body, and a response that is never read.
      let idle = try RawConnection(port)
      let half = try RawConnection(port)
      half.send(
        "POST /jobs HTTP/1.1\r\n\(host)Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
      )
      let stream = try RawConnection(port)
      stream.send("GET /events HTTP/1.1\r\n\(host)Accept: text/event-stream\r\n\r\n")
      let unread = try RawConnection(port)
      unread.send("GET /jobs/\(image)/image HTTP/1.1\r\n\(host)\r\n")
      held.others += [flood, idle, half, stream, unread]
    }
    return held
  }
}
