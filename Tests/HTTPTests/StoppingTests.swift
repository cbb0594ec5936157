import Foundation
import HTTP
import HTTPTypes
import Testing

@Suite("Stopping the server")
struct StoppingTests {
  @Test("stopping cancels 500 waiting handlers and sends their responses")
  func waiting() async throws {
    let gate = Gate()
    let served = try Served(handler: { _ in
      await gate.wait()
      return .text("stopped", .serviceUnavailable)
    })
    let port = served.port
    let clients = try await blocking {
      try (0..<500).map { _ in
        let client = try RawClient(port)
        try client.send(get)
        return client
      }
    }
    #expect(await eventually { gate.count == 500 })
    let begin = ContinuousClock.now
    await served.server.stop(within: .milliseconds(50))
    #expect(begin.duration(to: .now) < .seconds(60))
    let statuses = try await blocking { try clients.map { try $0.answer().status } }
    #expect(statuses == Array(repeating: 503, count: 500))
    #expect(served.server.statistics.active == 0)
    #expect(served.server.statistics.connections == 0)
  }

  @Test("stopping lets a request finish and accepts no new connection")
  func drains() async throws {
    let gate = Gate()
    let served = try Served(handler: { _ in
      await gate.wait()
      return .text(Task.isCancelled ? "cancelled" : "finished")
    })
    let port = served.port
    let (client, other) = try await blocking { (try RawClient(port), try RawClient(port)) }
    try client.send(get)
    #expect(await eventually { gate.count == 1 })
    served.server.stopAccepting()
    let isRefused = await eventually {
      (try? RawClient(port)) == nil
    }
    #expect(isRefused)
    async let stopped: Void = served.server.stop(within: .seconds(5))
    try other.send(get)
    #expect(await eventually { gate.count == 2 })
    gate.open()
    await stopped
    for client in [client, other] {
      let answer = try await blocking { try client.answer() }
      #expect(answer.body == "finished")
      #expect(answer.field("connection") == "close")
    }
  }

  @Test("stopping does not wait for idle connections, incomplete requests or paused uploads")
  func idle() async throws {
    let gate = Gate()
    let log = Log()
    let served = try Served(handler: { request in
      if request.path == "/held" {
        await gate.wait()
        log.add("\(Task.isCancelled)")
      }
      return .text("x")
    })
    let port = served.port
    let clients = try await blocking {
      let clients = try (0..<4).map { _ in try RawClient(port) }
      _ = try clients[1].exchange(get)
      try clients[2].send("GET / HT")
      try clients[3].send("POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n\r\n")
      clients[3].sendTimeout(milliseconds: 200)
      _ = try clients[3].sendSome([UInt8](repeating: 0, count: 30_000_000))
      return clients
    }
    #expect(await eventually { gate.count == 1 })
    let begin = ContinuousClock.now
    await served.server.stop(within: .milliseconds(50))
    #expect(begin.duration(to: .now) < .seconds(60))
    #expect(log.entries == ["true"])
    #expect(served.server.statistics.connections == 0)
    #expect(clients.count == 4)
  }

  @Test("stopping works twice, concurrently, and for a server that never started")
  func twice() async throws {
    let served = try Served(handler: echo)
    let server = served.server
    async let first: Void = server.stop(within: .zero)
    async let second: Void = server.stop(within: .seconds(1))
    _ = await (first, second)
    await server.stop(within: .zero)
    let never = HTTPServer(.init(), handler: echo, refusal: { _, _ in .text("") })
    await never.stop(within: .zero)
    #expect(throws: ServerError.alreadyStarted) { try server.start() }
  }

  @Test("stopping under load loses no response that was begun, and never aborts", arguments: 0..<5)
  func underLoad(round: Int) async throws {
    let served = try Served(handler: { request in
      if request.path == "/slow" { try? await Task.sleep(for: .milliseconds(1)) }
      return .text("ok")
    })
    let port = served.port
    let answered = Log()
    let clients = (0..<8).map { index in
      Task {
        try await blocking {
          let path = index % 2 == 0 ? "/slow" : "/"
          var count = 0
          guard let client = try? RawClient(port) else { return 0 }
          while (try? client.exchange("GET \(path) HTTP/1.1\r\nHost: x\r\n\r\n")) != nil {
            count += 1
            if count == 1 { answered.add("\(index)") }
          }
          return count
        }
      }
    }
    #expect(await eventually { answered.entries.count == 8 })
    await served.server.stop(within: .milliseconds(200))
    for client in clients { #expect(try await client.value > 0) }
  }
}
