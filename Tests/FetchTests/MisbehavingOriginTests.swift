import Fetch
import Jobs
import TestSupport
import Testing

@Suite("An origin that misbehaves")
struct MisbehavingOriginTests {
  private let origin: ScriptedOrigin
  private let fetcher: CurlFetcher

  init() throws {
    origin = try ScriptedOrigin()
    fetcher = try FetchTests.fetcher { $0.stallTimeout = patience }
  }

  private func failure(_ reply: ScriptedReply, maxBytes: Int = 1 << 25) async -> FetchError? {
    origin.on("/a", reply)
    return await FetchTests.failure(
      of: fetcher, request(origin.url("/a"), maxBytes: maxBytes))
  }

  @Test("a body that ends early is truncated, and the error has the lengths")
  func truncated() async {
    #expect(
      await failure(.truncated(bytes(1_000), after: 400))
        == .truncated(received: 400, expected: 1_000))
    #expect(
      await failure(.lying(length: 2_000, body: bytes(1_000)))
        == .truncated(received: 1_000, expected: 2_000))
    #expect(
      await failure(.brokenChunks([bytes(100)])) == .truncated(received: 100, expected: nil))
    #expect(
      await failure(.resetting(bytes(1_000), after: 10))
        == .truncated(received: 10, expected: 1_000))
  }

  @Test("a chunked body without its last chunk is truncated")
  func truncatedChunks() async {
    let head = ScriptedReply.head(200, [("Transfer-Encoding", "chunked")])
    let reply = ScriptedReply(.send(head + ScriptedReply.chunk(bytes(100))), .close)
    #expect(await failure(reply) == .truncated(received: 100, expected: nil))
  }

  @Test("bytes beyond the declared length are not part of the body")
  func longer() async throws {
    origin.on("/a", .lying(length: 10, body: bytes(1_000)))
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(try await readAll(response.body) == bytes(10))
    origin.on("/a", .ok(bytes(20)))
    #expect(await FetchTests.failure(of: fetcher, request(origin.url("/a"))) == nil)
    #expect(origin.acceptedConnections == 2)
  }

  @Test("the bytes before a truncation are returned")
  func bytesBeforeTruncation() async throws {
    origin.on("/a", .truncated(bytes(1_000), after: 400))
    let response = try await fetcher.fetch(request(origin.url("/a")))
    var got: [UInt8] = []
    await #expect(throws: FetchError.truncated(received: 400, expected: 1_000)) {
      while let more = try await response.body.next() { got += more }
    }
    #expect(got == Array(bytes(1_000)[..<400]))
  }

  @Test("two different lengths are refused, and a repeated length is accepted")
  func twoLengths() async throws {
    for fields in [
      [("Content-Length", "4"), ("Content-Length", "10")], [("Content-Length", "4, 10")],
    ] {
      for status in [200, 302] {
        let head = ScriptedReply.head(status, fields + [("Location", "/b")])
        #expect(
          await failure(ScriptedReply(.send(head + bytes(10)), .close))
            == .noResponse(host: "127.0.0.1", detail: "different Content-Length values"))
      }
    }
    let head = ScriptedReply.head(200, [("Content-Length", "10"), ("Content-Length", "10")])
    #expect(await failure(ScriptedReply(.send(head + bytes(10)))) == nil)
    #expect(origin.requests(to: "/b").isEmpty)
  }

  @Test("a transfer coding overrides every length")
  func overruledLengths() async throws {
    let head = ScriptedReply.head(
      200, [("Content-Length", "4"), ("Transfer-Encoding", "chunked"), ("Content-Length", "9")])
    let body = ScriptedReply.chunk(bytes(10)) + ScriptedReply.chunk([])
    origin.on("/a", ScriptedReply(.send(head + body)))
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(response.contentLength == nil)
    #expect(try await readAll(response.body) == bytes(10))
  }

  @Test("silence is a stall, before the header section and within the body")
  func stalls() async throws {
    let impatient = try FetchTests.fetcher { $0.stallTimeout = .milliseconds(300) }
    for reply: ScriptedReply in [.silent, .stalled(bytes(100), after: 10)] {
      origin.on("/a", reply)
      let error = await FetchTests.failure(of: impatient, request(origin.url("/a")))
      #expect(error == .stalled(seconds: 0.3))
    }
    #expect(await origin.waitForClose(of: 2) != nil)
  }

  @Test("after a long pause of the reader, an origin may be silent for as long before it stalls")
  func heldBack() async throws {
    let impatient = try FetchTests.fetcher { $0.stallTimeout = .milliseconds(500) }
    let gate = Gate()
    let head = ScriptedReply.head(200, [("Content-Length", "\(4 << 20)")])
    origin.on(
      "/a", ScriptedReply(.send(head + bytes(2 << 20)), .hold(gate), .send(bytes(2 << 20))))
    let response = try await impatient.fetch(request(origin.url("/a")))
    // Much longer than the silence, even on a busy machine.
    try await Task.sleep(for: .seconds(5))
    async let all = readAll(response.body)
    try await Task.sleep(for: .seconds(1))
    gate.open()
    #expect(try await all.count == 4 << 20)
  }

  @Test("a slow drip of bytes is not a stall, but reaches the timeout")
  func drip() async {
    origin.on("/a", .dripped(bytes(10_000), size: 1, every: .milliseconds(50)))
    let error = await FetchTests.failure(
      of: fetcher, request(origin.url("/a"), timeout: .milliseconds(800)))
    #expect(error == .timeout(seconds: 0.8))
  }

  @Test("the size limit applies to the declared length and to the received bytes")
  func tooLarge() async {
    #expect(await failure(.ok(bytes(1_001)), maxBytes: 1_000) == .tooLarge(limit: 1_000))
    #expect(await failure(.ok(bytes(1_000)), maxBytes: 1_000) == nil)
    #expect(await failure(.chunked([bytes(1_001)]), maxBytes: 1_000) == .tooLarge(limit: 1_000))
    #expect(await failure(.chunked([bytes(1_000)]), maxBytes: 1_000) == nil)
    #expect(await failure(.endless(), maxBytes: 1_000_000) == .tooLarge(limit: 1_000_000))
  }

  @Test("the size limit also applies to bytes that libcurl buffered during a pause")
  func tooLargeAfterPause() async throws {
    origin.on("/a", .endless())
    // The buffer holds 262,144 bytes. These limits are reached within the read that did not fit.
    for limit in [280_000, 290_000, 300_000] {
      let response = try await fetcher.fetch(
        request(origin.url("/a"), timeout: .seconds(60), maxBytes: limit))
      // Meanwhile the buffer fills up, and the transfer is paused.
      try await Task.sleep(for: .milliseconds(300))
      await #expect(throws: FetchError.tooLarge(limit: limit)) {
        _ = try await readAll(response.body)
      }
    }
  }

  @Test(
    "a length that is too large to count is too large, not missing",
    arguments: ["18446744073709551616", "9223372036854775808", "99999999999999999999"])
  func enormous(length: String) async {
    for fields in [[("Content-Length", length)], [("Content-Length", "\(length), \(length)")]] {
      let head = ScriptedReply.head(200, fields)
      #expect(
        await failure(ScriptedReply(.send(head + bytes(10)), .close)) == .tooLarge(limit: 1 << 25))
    }
  }

  @Test(
    "a length that is not a number makes the response invalid",
    arguments: ["-1", "+5", "5 5", "5abc", "0x5", "", "5;", "5,", "-18446744073709551616"])
  func unclearLength(text: String) async {
    let head = ScriptedReply.head(200, [("Content-Length", text)])
    guard
      case .noResponse("127.0.0.1", let detail) = await failure(
        ScriptedReply(.send(head + bytes(5)), .close))
    else {
      Issue.record("\(text) was taken")
      return
    }
    #expect(!detail.isEmpty)
  }

  @Test("an empty body is no data")
  func noData() async {
    #expect(await failure(.ok([])) == .noData)
    #expect(await failure(.chunked([])) == .noData)
    #expect(await failure(.status(204)) == .noData)
    #expect(await failure(.raw("HTTP/1.1 200 OK\r\n\r\n")) == .noData)
  }

  @Test("a response that is not HTTP is refused")
  func garbage() async {
    for reply: ScriptedReply in [
      .raw("\u{0}\u{1}garbage\r\n\r\n"), .raw("SSH-2.0-OpenSSH_9\r\n"), .closed,
      ScriptedReply(.reset), .raw("HTTP/1.1 200 OK\r\nContent-Le"),
      .raw("HTTP/1.1 abc OK\r\n\r\nbody"), .raw("<html>no status line</html>"),
    ] {
      guard case .noResponse("127.0.0.1", let detail) = await failure(reply) else {
        Issue.record("\(reply)")
        continue
      }
      #expect(!detail.isEmpty)
    }
  }

  /// libcurl 8.0 and later accept one space only, so the response is refused.
  @Test("extra spaces before the status code are accepted by libcurl 7", arguments: ["1.0", "1.1"])
  func statusLine(version: String) async throws {
    let isLenient = CurlLibrary.version.hasPrefix("7.")
    let fetcher = try FetchTests.fetcher()
    func serve(_ line: String, _ fields: String = "", before: String = "") {
      let head = "\(before)HTTP/\(version)\(line)\r\n\(fields)Content-Length: 10\r\n\r\n"
      origin.on("/a", ScriptedReply(.send(Array(head.utf8) + bytes(10)), .close))
    }
    func failure() async -> FetchError? {
      await FetchTests.failure(of: fetcher, request(origin.url("/a")))
    }
    func expect(_ expected: FetchError?, _ location: SourceLocation = #_sourceLocation) async {
      let result = await failure()
      if isLenient {
        #expect(result == expected, sourceLocation: location)
      } else {
        guard case .noResponse = result else {
          Issue.record("\(String(describing: result))", sourceLocation: location)
          return
        }
      }
    }
    for spaces in ["  ", "     "] {
      serve("\(spaces)200 OK")
      await expect(nil)
      serve("\(spaces)200")
      await expect(nil)
      serve("\(spaces)503 Slow", "Retry-After: 7\r\n")
      await expect(.originStatus(503, retryAfter: 7))
      serve("\(spaces)302 Found", "Location: /missing\r\n")
      await expect(.originStatus(404, retryAfter: nil))
      serve("\(spaces)200 OK", before: "HTTP/\(version)\(spaces)103 Early\r\nX: y\r\n\r\n")
      await expect(nil)
    }
    for line in ["", " ", " OK", " 20 OK", " 099 OK", " +200 OK"] {
      serve(line)
      guard case .noResponse = await failure() else {
        Issue.record("\(line) was accepted")
        continue
      }
    }
  }

  @Test("a header section is limited, including single lines and interim responses")
  func hugeHeaders() async {
    #expect(await failure(.hugeHeader(bytes: 100_000)) == .headerTooLarge(.bytes(65_536)))
    #expect(await failure(.hugeHeader(bytes: 30_000)) == nil)
    let line = String(repeating: "x", count: 1_000_000)
    #expect(
      await failure(.raw("HTTP/1.1 200 OK\r\nX: \(line)\r\n\r\nbody"))
        == .headerTooLarge(.bytes(65_536)))
    let many = (0..<1_000).map { "X-\($0): y\r\n" }.joined()
    #expect(
      await failure(.raw("HTTP/1.1 200 OK\r\n\(many)\r\nbody")) == .headerTooLarge(.lines(264)))
    let few = (0..<262).map { "X-\($0): y\r\n" }.joined()
    #expect(await failure(.raw("HTTP/1.1 200 OK\r\n\(few)\r\nbody")) == nil)
    let ok = ScriptedReply.ok(bytes(10))
    #expect(await failure(.interim(103, times: 5_000, then: ok)) == .headerTooLarge(.lines(264)))
  }

  @Test("interim responses are skipped", arguments: [100, 102, 103])
  func interim(status: Int) async throws {
    origin.on("/a", .interim(status, times: 3, then: .ok(bytes(10))))
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(response.status == 200)
    #expect(!response.headers.contains { $0.name == "X-Interim" })
    #expect(try await readAll(response.body) == bytes(10))
  }

  @Test("switching protocols unasked is a failure")
  func switching() async {
    #expect(await failure(.raw("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nabc")) != nil)
  }

  @Test(
    "other statuses are errors of the origin, even 206 and 304 if not requested",
    arguments: [201, 206, 300, 304, 400, 401, 403, 404, 408, 410, 429, 500, 502, 503, 504])
  func status(_ status: Int) async {
    let body = status == 304 ? [] : bytes(10)
    #expect(await failure(.status(status, body: body)) == .originStatus(status, retryAfter: nil))
  }

  @Test("Retry-After is read in both forms")
  func retryAfter() async throws {
    let seconds = await failure(.status(503, headers: [("Retry-After", "120")]))
    #expect(seconds == .originStatus(503, retryAfter: 120))
    let past = await failure(
      .status(429, headers: [("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT")]))
    #expect(past == .originStatus(429, retryAfter: 0))
    guard
      case .originStatus(429, let later?) = await failure(
        .status(429, headers: [("Retry-After", "Sun, 06 Nov 2094 08:49:37 GMT")]))
    else { throw FetchError.noData }
    #expect(later > 1e9)
    for nonsense in ["soon", "-5", "1e3", "", "12 h"] {
      #expect(
        await failure(.status(503, headers: [("Retry-After", nonsense)]))
          == .originStatus(503, retryAfter: nil))
    }
  }

  @Test("a port without a listener is a connection failure")
  func refused() async throws {
    let port = try ScriptedOrigin().port
    guard
      case .connectFailure = await FetchTests.failure(
        of: fetcher, request("http://127.0.0.1:\(port)/"))
    else { throw FetchError.noData }
  }
}
