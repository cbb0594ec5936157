import Fetch
import Jobs
import TestSupport
import Testing

@Suite("Fetching from an origin")
struct FetchBasicsTests {
  private let origin: ScriptedOrigin
  private let fetcher: CurlFetcher

  init() throws {
    origin = try ScriptedOrigin()
    fetcher = try Self.makeFetcher()
  }

  private static func makeFetcher() throws -> CurlFetcher { try FetchTests.fetcher() }

  @Test("a fetch returns the whole body, its header fields and its length")
  func whole() async throws {
    let body = bytes(300_000)
    origin.on("/a.png", .ok(body, headers: [("ETag", "\"x\"")]))
    let response = try await fetcher.fetch(request(origin.url("/a.png?q=1")))
    #expect(response.status == 200)
    #expect(response.contentLength == body.count)
    #expect(response.url.string == origin.url("/a.png?q=1"))
    #expect(response.headers.contains(HeaderField(name: "ETag", value: "\"x\"")))
    #expect(response.timings.firstByte > .zero)
    #expect(try await readAll(response.body) == body)
    #expect(try await response.body.next() == nil)
    #expect(origin.requests.map(\.target) == ["/a.png?q=1"])
  }

  @Test("an IPv6 address is fetched from and checked like any other")
  func addressLiteral() async throws {
    let six = try ScriptedOrigin(host: "::1")
    defer { six.stop() }
    six.on("/a", .ok([1, 2, 3]))
    let url = "http://[::1]:\(six.port)/a"
    let open = try FetchTests.fetcher { $0.policy.allowNetworks = [CIDR("::1/128")!] }
    #expect(try await readAll(open.fetch(request(url)).body) == [1, 2, 3])
    #expect(six.requests.first?.header("Host") == "[::1]:\(six.port)")
    await #expect(
      throws: FetchError.blocked(target: "::1", .address("::1", name: "Loopback Address"))
    ) {
      _ = try await fetcher.fetch(request(url))
    }
    #expect(six.acceptedConnections == 1)
  }

  @Test("a chunked body has no length and arrives completely")
  func chunked() async throws {
    let body = bytes(50_000)
    origin.on(
      "/a", .chunked([Array(body[..<10]), Array(body[10..<40_000]), Array(body[40_000...])]))
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(response.contentLength == nil)
    #expect(try await readAll(response.body) == body)
  }

  @Test("bytes are returned as the origin sends them, not at the end")
  func streams() async throws {
    let body = bytes(1_000)
    origin.on("/a", .stalled(body, after: 100))
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(try await response.body.next() == Array(body[..<100]))
  }

  @Test("a connection is used again, even after errors and redirects")
  func reuse() async throws {
    origin.on("/a", .ok(bytes(10)))
    origin.on("/gone", .status(404, body: bytes(500)))
    origin.on("/to", .redirect(to: "/a"))
    for path in ["/a", "/gone", "/to", "/a"] {
      _ = await failure(of: fetcher, request(origin.url(path)))
    }
    #expect(origin.requests.count == 5)
    #expect(origin.acceptedConnections == 1)
  }

  @Test("a kept connection that the origin has closed causes no failure")
  func staleConnection() async throws {
    origin.on("/a", ScriptedReply(ScriptedReply.ok(bytes(10)).steps + [.close]))
    for _ in 0..<3 {
      #expect(await failure(of: fetcher, request(origin.url("/a"))) == nil)
    }
  }

  @Test("default fields are sent, and the client's fields replace them")
  func requestFields() async throws {
    origin.on("/a", .ok(bytes(10)))
    let own = try FetchTests.fetcher { $0.userAgent = "imagefetch/test" }
    _ = await failure(of: own, request(origin.url("/a")))
    _ = await failure(
      of: own,
      request(
        origin.url("/a"),
        headers: [
          HeaderField(name: "accept", value: "image/webp"), HeaderField(name: "X-Empty", value: ""),
          HeaderField(name: "Authorization", value: "Bearer x"),
        ]))
    let sent = origin.requests
    #expect(sent[0].header("User-Agent") == "imagefetch/test")
    #expect(sent[0].header("Accept-Encoding") == "identity")
    #expect(sent[0].header("Accept")?.hasPrefix("image/*") == true)
    #expect(
      Set(sent[0].headers.map(\.name)) == ["Host", "Accept", "Accept-Encoding", "User-Agent"])
    #expect(
      sent[1].headers.filter { $0.name.lowercased() == "accept" }.map(\.value) == ["image/webp"])
    #expect(sent[1].header("X-Empty") == "")
    #expect(sent[1].header("Authorization") == "Bearer x")
  }

  @Test(
    "fields that break the message's framing are never sent",
    arguments: [
      ("X-A", "b\r\nX-Injected: yes"), ("X-A\r\nX-Injected", "yes"), ("X-A", "b\u{0}c"),
      ("Host", "example.org"), ("Content-Length", "5"), ("Transfer-Encoding", "chunked"),
      ("X A", "b"), ("", "b"), ("Connection", "close"), ("X-A:", "b"),
    ])
  func refusedFields(name: String, value: String) async throws {
    origin.on("/a", .ok(bytes(10)))
    let field = HeaderField(name: name, value: value)
    #expect(await failure(of: fetcher, request(origin.url("/a"), headers: [field])) == nil)
    let names = Set(origin.requests[0].headers.map(\.name))
    #expect(names == ["Host", "Accept", "Accept-Encoding", "User-Agent"])
    #expect(origin.requests[0].header("Host") == "127.0.0.1:\(origin.port)")
  }

  @Test("a hundred fetches at once all receive the whole body")
  func manyAtOnce() async throws {
    let body = bytes(100_000)
    origin.on("/a", .ok(body))
    let (fetcher, url) = (fetcher, origin.url("/a"))
    let whole = await withTaskGroup(of: Bool.self) { group in
      for _ in 0..<100 {
        group.addTask {
          guard let response = try? await fetcher.fetch(request(url)) else { return false }
          return (try? await readAll(response.body)) == body
        }
      }
      return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
    }
    #expect(whole == 100)
  }

  @Test("requested ranges and conditions may be answered with 206 and 304")
  func partial() async throws {
    origin.on("/part", .status(206, headers: [("Content-Range", "bytes 5-9/10")], body: bytes(5)))
    origin.on("/same", .status(304))
    let part = try await fetcher.fetch(
      request(origin.url("/part"), conditions: [HeaderField(name: "Range", value: "bytes=5-")]))
    #expect(part.status == 206)
    #expect(try await readAll(part.body) == bytes(5))
    let same = try await fetcher.fetch(
      request(
        origin.url("/same"), conditions: [HeaderField(name: "If-None-Match", value: "\"x\"")]))
    #expect(same.status == 304)
    #expect(try await same.body.next() == nil)
  }

  @Test("shutting down ends running fetches and every later one")
  func shutdown() async throws {
    origin.on("/a", .stalled(bytes(100), after: 10))
    let response = try await fetcher.fetch(request(origin.url("/a")))
    fetcher.shutdown()
    #expect(await origin.waitForClose(of: 1) != nil)
    await #expect(throws: FetchError.cancelled) { try await readAll(response.body) }
    #expect(await failure(of: fetcher, request(origin.url("/a"))) == .cancelled)
    fetcher.shutdown()
  }

  @Test("a body outlives its fetcher")
  func outlives() async throws {
    origin.on("/a", .dripped(bytes(1_000), size: 500, every: .milliseconds(20)))
    let response = try await FetchTests.fetcher().fetch(request(origin.url("/a")))
    #expect(try await readAll(response.body).count == 1_000)
  }
}
