import Foundation
import HTTP
import HTTPTypes
import Jobs
import Synchronization
import TestSupport
import Testing
import Waiting

@testable import API

@Suite("Many clients", .timeLimit(.minutes(15)))
struct CrowdTests {
  private static func events(_ address: String, _ routes: Routes) async -> Response {
    await routes.respond(
      to: Request(method: .get, path: "/events", remoteAddress: address))
  }

  @Test("one client waits on at most half of the connections while others wait too")
  func waits() async throws {
    let client = Client { $0.maxConnections = 6 }
    let routes = client.routes
    var streams: [Response] = []
    for _ in 0..<6 { streams.append(await Self.events("192.0.2.1", routes)) }
    #expect(streams.allSatisfy { $0.status == .ok })
    // The request above the limit is refused; it may be repeated later.
    #expect(await Self.events("192.0.2.2", routes).status == .tooManyRequests)
    streams.removeLast()
    let refused = await Self.events("192.0.2.1", routes)
    #expect(refused.status == .tooManyRequests && refused.fields[.retryAfter] != nil)
    let other = await Self.events("192.0.2.2", routes)
    #expect(other.status == .ok)
    let id = try await client.submitted()
    let wait = await client.get("/jobs/\(id)?wait=5")
    #expect(wait.status == 429 && wait.code == "rate_limited")
    #expect(await client.get("/jobs/\(id)").status == 200)
    streams.removeAll()
    #expect(await client.get("/jobs/\(id)?wait=0.001").status == 200)
    withExtendedLifetime(other) {}
    #expect(routes.connections.reserved == 1)
  }

  @Test("a client that disconnects before its turn leaves the queue for result pages")
  func leaves() async throws {
    let client = Client()
    let turns = client.routes.resultPages
    let list: HTTPFields = [.contentType: "text/plain"]
    let upload = await client.send(.post, "/batches", list, body: Array("http://a/".utf8))
    let id = try #require(upload.json?["id"]?.string)
    var others = await Self.both(turns)
    var streams = [try await Self.results(of: id, client.routes)]
    let first = streams[0].next()
    #expect(first == .nothingYet)
    try await Self.until { turns.waiting == 1 }
    streams.removeAll()
    try await Self.until { turns.waiting == 0 }
    #expect(others.allSatisfy { $0 != nil })
    others = []
    try await Self.until { turns.isIdle }
  }

  /// Both permits for pages, held by two other clients.
  private static func both(
    _ turns: FairSemaphore<RateLimiter.Client>
  ) async -> [FairSemaphore<RateLimiter.Client>.Permit?] {
    [await turns.acquire(for: .address("one")), await turns.acquire(for: .address("two"))]
  }

  @Test("a client with many result streams delays another client by at most one page")
  func streams() async throws {
    let client = Client()
    let turns = client.routes.resultPages
    let list: HTTPFields = [.contentType: "text/plain"]
    let upload = await client.send(.post, "/batches", list, body: Array("none".utf8))
    let id = try #require(upload.json?["id"]?.string)
    var others = await Self.both(turns)
    #expect(others.allSatisfy { $0 != nil })
    var streams: [any ContentStream] = []
    for _ in 0..<20 {
      let stream = try await Self.results(of: id, client.routes, from: "192.0.2.9")
      let first = stream.next()
      #expect(first == .nothingYet)
      streams.append(stream)
    }
    try await Self.until { turns.waiting == 20 }
    let single = try await Self.results(of: id, client.routes)
    let first = single.next()
    #expect(first == .nothingYet)
    try await Self.until { turns.waiting == 21 }
    // Each client gets its turn in the end.
    others = []
    for stream in streams + [single] {
      try await Self.until { stream.next() != .nothingYet }
    }
    try await Self.until { turns.isIdle }
  }

  private static func results(
    of batch: String, _ routes: Routes, from address: String = "192.0.2.1"
  ) async throws -> any ContentStream {
    let request = Request(
      method: .get, path: "/batches/\(batch)/results", remoteAddress: address)
    guard case .stream(let stream) = await routes.respond(to: request).content else {
      throw JobsError.unknownBatch
    }
    return stream
  }

  @Test(
    "a client with many long bodies delays another client by at most one body, and short bodies not at all"
  )
  func longBodies() async throws {
    let client = Client()
    let turns = client.routes.bodyParser.turns
    let json: HTTPFields = [.contentType: "application/json"]
    let space = String(repeating: " ", count: BodyParser.threshold)
    let long = Array(("[" + space + #"{"url":"http://a/"}]"#).utf8)
    let list = Array((space + "\n" + space + "\nhttp://a/").utf8)
    let busy = Mutex(await turns.acquire(for: .address("busy")))
    await withTaskGroup(of: Int.self) { group in
      for _ in 0..<5 {
        group.addTask {
          await client.send(.post, "/jobs", json, body: long, from: "192.0.2.9").status
        }
      }
      group.addTask { await client.send(.post, "/jobs", json, body: long).status }
      group.addTask {
        await client.send(
          .post, "/batches", [.contentType: "text/plain"], body: list, from: "192.0.2.8",
          pieces: 60_000
        ).status
      }
      try? await Self.until { turns.waiting == 7 }
      #expect(turns.waiting == 7, "all long bodies")
      #expect(await client.post(#"{"url":"http://a/"}"#).status == 202)
      #expect(turns.waiting == 7)
      busy.withLock { $0 = nil }
      for await status in group { #expect(status == 202) }
    }
    #expect(turns.isIdle)
  }

  @Test(
    "a client has at most 64 streams of all its jobs, independently of others and of streams of single jobs"
  )
  func eventStreams() async throws {
    let client = Client()
    let routes = client.routes
    var streams: [Response] = []
    for _ in 0..<APIConfiguration.maxEventStreams {
      streams.append(await Self.events("192.0.2.1", routes))
    }
    #expect(streams.allSatisfy { $0.status == .ok })
    let refused = await Self.events("192.0.2.1", routes)
    #expect(refused.status == .tooManyRequests && refused.fields[.retryAfter] != nil)
    #expect(Answer(refused).code == "rate_limited")
    let other = await Self.events("192.0.2.2", routes)
    #expect(other.status == .ok)
    let id = try await client.submitted()
    #expect(await client.get("/jobs/\(id)/events").status == 200)
    streams.removeLast()
    #expect(await Self.events("192.0.2.1", routes).status == .ok)
    streams.removeAll()
    withExtendedLifetime(other) {}
    #expect(routes.eventStreams.reserved == 1)
  }

  @Test("a client whose bodies exceed the memory limit is refused and can retry")
  func gathers() async throws {
    let client = Client()
    let routes = client.routes
    let budget = APIConfiguration().bodyLimits.budget
    let hog = routes.memory.allocation(for: .behind("192.0.2.9"))
    #expect(hog.reserve(budget))
    let answer = await client.post(#"{"url":"http://a/"}"#)
    #expect(answer.status == 503 && answer.code == "overloaded")
    #expect(answer.fields[.retryAfter].flatMap { Int($0) } != nil)
    #expect(await client.get("/jobs").status == 503)
    hog.release()
    #expect(await client.post(#"{"url":"http://a/"}"#).status == 202)
    #expect(await client.get("/jobs").status == 200)
    #expect(routes.memory.reserved == 0)
  }

  @Test("an object may have 1 MiB, an array what its jobs need, and neither more than a body")
  func lengths() async {
    let text = String(repeating: " ", count: (1 << 20) - 18)
    let client = Client()
    #expect(await client.post(text + #"{"url":"http://a/"}"#).code == "body_too_large")
    #expect(await client.post(text.dropFirst() + #"{"url":"http://a/"}"#).status == 202)
    #expect(await client.post("[" + text + #"{"url":"http://a/"}]"#).status == 202)
    let narrow = Client { ($0.maxBatch, $0.maxBody) = (9, 32 << 20) }
    let long = String(repeating: " ", count: 9 * (128 << 10))
    #expect(await narrow.post("[" + long + "]").code == "body_too_large")
    #expect(await narrow.post("[" + long.dropFirst(2) + "]").status == 422)
    // The limit depends on the first byte, whatever follows.
    let late = Array((String(repeating: " ", count: 99_999) + "[" + text + "]").utf8)
    let json: HTTPFields = [.contentType: "application/json"]
    let array = await client.send(.post, "/jobs", json, body: late, pieces: 50_000)
    #expect(array.status == 422, "\(array.text)")
    let braces = Array((" {" + text + String(repeating: "[", count: 18)).utf8)
    let object = await client.send(.post, "/jobs", json, body: braces, pieces: 70_000)
    #expect(object.code == "body_too_large", "\(object.text)")
    #expect(BodyLimits(maxBody: 100, maxBatch: .max) == BodyLimits(upTo: 100))
    // With and without a declared length.
    let unsaid = Request(
      method: .post, path: "/jobs", fields: [.contentType: "application/json"],
      body: .sending(Array((text + text).utf8), in: 70_000, declared: false))
    #expect(await client.routes.respond(to: unsaid).status == .contentTooLarge)
    #expect(client.routes.memory.reserved == 0 && narrow.routes.memory.reserved == 0)
  }

  @Test("clients that send long bodies share the memory, and release it at the end")
  func attack() async throws {
    let routes = Client().routes
    let server = try Self.serve(routes)
    let port = server.port
    let budget = APIConfiguration().bodyLimits.budget
    let others = routes.memory.allocation(for: .behind("127.0.0.1"))
    others.set(budget - (3 << 20))
    for _ in 0..<3 {
      let clients = try await Self.onThread {
        let clients = try (0..<12).map { _ in try RawConnection(port) }
        for client in clients {
          client.send(
            "POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
              + "Content-Length: \(2 << 20)\r\n\r\n[" + String(repeating: " ", count: 1 << 20))
        }
        return clients
      }
      try await Self.until { routes.memory.reserved >= budget - (5 << 19) }
      #expect(routes.memory.reserved <= budget)
      withExtendedLifetime(clients) {}
    }
    try await Self.until { routes.memory.reserved == budget - (3 << 20) }
    others.release()
    #expect(routes.memory.reserved == 0)
    await server.server.stop(within: .zero)
  }

  @Test("clients that disconnect at any moment release their reservations")
  func aborted() async throws {
    let client = Client()
    let id = try await client.submitted()
    let routes = client.routes
    let server = try Self.serve(routes)
    let port = server.port
    let json = "Content-Type: application/json\r\n"
    let starts = [
      "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET /jobs/\(id)/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET /jobs/\(id)?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET /jobs/\(id)/image?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "POST /jobs HTTP/1.1\r\nHost: localhost\r\n\(json)Content-Length: 100000\r\n\r\n[",
      "POST /jobs HTTP/1.1\r\nHost: localhost\r\n\(json)Transfer-Encoding: chunked\r\n\r\n3\r\n[  \r\n",
      "POST /jobs HTTP/1.1\r\nHost: localhost\r\n\(json)Content-Length: 100\r\n\r\n{",
      "GET /jobs HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]
    try await Self.onThread {
      for _ in 0..<25 {
        let clients = try starts.map { start in
          let client = try RawConnection(port)
          client.send(start)
          return client
        }
        withExtendedLifetime(clients) {}
      }
    }
    try await Self.until {
      routes.memory.reserved == 0 && routes.connections.reserved == 0
        && server.server.statistics.connections == 0
    }
    await server.server.stop(within: .zero)
  }

  // MARK: A server

  private static func serve(_ routes: Routes) throws -> (server: HTTPServer, port: Int) {
    var configuration = HTTPServer.Configuration()
    (configuration.port, configuration.threads) = (0, 2)
    let server = HTTPServer(
      configuration, handler: routes.respond(to:), refusal: routes.refuse(_:origin:))
    return (server, try server.start().port)
  }

  private static func onThread<Value: Sendable>(
    _ work: @escaping @Sendable () throws -> Value
  ) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
      Thread.detachNewThread { continuation.resume(with: Result { try work() }) }
    }
  }

  private static func until(_ holds: @Sendable () -> Bool) async throws {
    // Longer than the longest wait: a client that disconnects unnoticed keeps its connection at most that long.
    let end = ContinuousClock.now + .seconds(120)
    while !holds() {
      try #require(ContinuousClock.now < end)
      try await Task.sleep(for: .milliseconds(5))
    }
  }
}
