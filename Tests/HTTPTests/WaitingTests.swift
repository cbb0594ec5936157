import Foundation
import Glibc
import HTTP
import HTTPTypes
import TestSupport
import Testing

@Suite("Requests with waiting handlers")
struct WaitingTests {
  @Test("many requests are answered when their handlers finish, again and again")
  func waits() async throws {
    let handler: RequestHandler = { request in
      for _ in 0..<Int.random(in: 0...3) { await Task.yield() }
      if Bool.random() { try? await Task.sleep(for: .microseconds(Int.random(in: 0...300))) }
      return .text(request.path)
    }
    let wrong = try await Served.with(handler: handler) { port in
      let clients = try (0..<50).map { _ in try RawClient(port) }
      var wrong = 0
      for round in 0..<40 {
        for (index, client) in clients.enumerated() {
          try client.send("GET /\(round).\(index) HTTP/1.1\r\nHost: x\r\n\r\n")
        }
        for (index, client) in clients.enumerated()
        where try client.answer().body != "/\(round).\(index)" { wrong += 1 }
      }
      return wrong
    }
    #expect(wrong == 0)
  }

  @Test("a waiting handler occupies no thread, so other requests are answered")
  func holdsNoThread() async throws {
    let gate = Gate()
    let handler: RequestHandler = { request in
      if request.path == "/wait" { await gate.wait() }
      return .text(request.path)
    }
    let bodies = try await Served.with(handler: handler) { port in
      let waiting = try (0..<100).map { _ in try RawClient(port) }
      for client in waiting { try client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n") }
      var bodies = [try RawClient(port).exchange(get).body]
      gate.open()
      bodies += try waiting.map { try $0.answer().body }
      return Set(bodies)
    }
    #expect(bodies == ["/", "/wait"])
  }

  @Test(
    "a client that disconnects with an incomplete request is not waited for",
    arguments: ["GET /x HT", "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc"])
  func leavesEarly(request: String) async throws {
    let served = try Served { _ in .text("") }
    let port = served.port
    try await blocking {
      for _ in 0..<50 { try RawClient(port).send(request) }  // closed when released
    }
    #expect(await eventually { served.server.statistics.connections == 0 })
    await served.server.stop(within: .zero)
  }

  @Test(
    "a handler is cancelled when its client disconnects, even after the content",
    arguments: [false, true], [get, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"])
  func leaves(byReset: Bool, request: String) async throws {
    let (gate, log) = (Gate(), Log())
    let handler: RequestHandler = { request in
      _ = try? await request.body.collect(upTo: 9)
      await gate.wait()
      log.add(Task.isCancelled ? "cancelled" : "let through")
      return .text("")
    }
    let served = try Served(handler: handler)
    let port = served.port
    let clients = try await blocking {
      try (0..<100).map { _ in
        let client = try RawClient(port)
        try client.send(request)
        return client
      }
    }
    #expect(await eventually { gate.count == 100 })
    for client in clients {
      var linger = Glibc.linger(l_onoff: byReset ? 1 : 0, l_linger: 0)
      setsockopt(
        client.descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<linger>.size))
      shutdown(client.descriptor, Int32(SHUT_RDWR))
    }
    #expect(await eventually { log.entries.count == 100 })
    #expect(Set(log.entries) == ["cancelled"])
    #expect(await eventually { served.server.statistics.connections == 0 })
    #expect(served.server.statistics.active == 0)
    await served.server.stop(within: .zero)
  }

  @Test(
    "a handler is cancelled when its client stops sending, but may respond at once"
  )
  func halfClosed() async throws {
    let gate = Gate()
    let handler: RequestHandler = { request in
      if request.path == "/wait" { await gate.wait() }
      return .text("done")
    }
    try await Served.with(handler: handler) { port in
      let quick = try RawClient(port)
      try quick.send(get)
      quick.shutdownSending()
      #expect(try quick.answer().body == "done")
      let slow = try RawClient(port)
      try slow.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
      slow.shutdownSending()
      // The response may have been sent before libmicrohttpd noticed the end.
      let rest = try slow.readToEnd()
      #expect(rest.isEmpty || rest.hasSuffix("done"))
    }
  }
}

@Suite("A slow client")
struct SlowTests {
  static let configure = { @Sendable (configuration: inout HTTPServer.Configuration) in
    configuration.requestTimeout = .milliseconds(400)
  }

  @Test(
    "a client that sends too slowly is disconnected",
    arguments: [
      "GET / HTTP/1.1\r\nHost: x\r\nFoo: ",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n",
    ], [false, true])
  func drips(start: String, afterAnother: Bool) async throws {
    let seconds = try await Served.with(Self.configure, handler: echo) { port in
      // The server may count from the beginning of the connection.
      var begin = ContinuousClock.now
      let client = try RawClient(port)
      if afterAnother {
        _ = try client.exchange(get)
        usleep(300_000)
        begin = .now
      }
      try client.send(start)
      while begin.duration(to: .now) < patience {
        usleep(50_000)
        if try client.sendSome([120]) == 0 { break }
      }
      return begin.duration(to: .now)
    }
    #expect(seconds < patience)
    #expect(seconds > .milliseconds(300))
  }

  @Test("slow streamed content is cut after a refusal, but not while it is read")
  func lists() async throws {
    let handler: RequestHandler = { request in
      var count = 0
      do throws(BodyError) {
        if request.path == "/refused", try await request.body.next() != nil { return .text("no") }
        while let piece = try await request.body.next() { count += piece.count }
      } catch { return .text("\(error)") }
      return .text("\(count)")
    }
    let configure = { @Sendable (configuration: inout HTTPServer.Configuration) in
      Self.configure(&configuration)
      configuration.takesStreams = { _ in true }
    }
    let (refused, read) = try await Served.with(configure, handler: handler) { port in
      func isCut(_ path: String, within limit: Duration) throws -> Bool {
        let client = try RawClient(port)
        try client.send(
          "POST \(path) HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n")
        let end = ContinuousClock.now + limit
        while ContinuousClock.now < end {
          usleep(50_000)
          if try client.sendSome([120]) == 0 { return true }
        }
        return false
      }
      // Five times the request timeout.
      return (try isCut("/refused", within: patience), try isCut("/read", within: .seconds(2)))
    }
    #expect(refused && !read)
  }

  @Test("a connection may be silent between requests for longer than the request timeout")
  func idles() async throws {
    try await Served.with(Self.configure, handler: echo) { port in
      let client = try RawClient(port)
      for _ in 0..<2 {
        usleep(1_000_000)
        #expect(try client.exchange(get).status == 200)
      }
    }
  }

  @Test("a connection is closed after the idle timeout")
  func silent() async throws {
    try await Served.with({ $0.idleTimeout = .seconds(1) }, handler: echo) { port in
      let client = try RawClient(port)
      _ = try client.exchange(get)
      #expect(try client.isClosed())
    }
  }

  @Test("a client has no deadline while its handler waits")
  func waits() async throws {
    let handler: RequestHandler = { _ in
      try? await Task.sleep(for: .seconds(1))
      return .text("late")
    }
    let answer = try await Served.with(Self.configure, handler: handler) {
      try RawClient($0).exchange(get)
    }
    #expect(answer.body == "late")
  }
}
