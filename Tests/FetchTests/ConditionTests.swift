import Fetch
import Jobs
import TestSupport
import Testing

@Suite("Conditions and ranges of a fetch")
struct ConditionTests {
  private let origin: ScriptedOrigin
  private let fetcher: CurlFetcher

  init() throws {
    origin = try ScriptedOrigin()
    fetcher = try FetchTests.fetcher()
    origin.on("/same", .status(304, headers: [("ETag", "\"x\"")]))
    origin.on("/part", .status(206, headers: [("Content-Range", "bytes 5-9/10")], body: bytes(5)))
  }

  private static let range = HeaderField(name: "Range", value: "bytes=5-")
  private static let ifRange = HeaderField(name: "If-Range", value: "\"x\"")
  private static let ifNoneMatch = HeaderField(name: "If-None-Match", value: "\"x\"")
  private static let ifModified = HeaderField(
    name: "If-Modified-Since", value: "Sun, 06 Nov 1994 08:49:37 GMT")

  @Test("conditions apply to one URL, while the client's fields go to the whole first origin")
  func followed() async throws {
    let other = try ScriptedOrigin()
    other.on("/part", .status(206, headers: [("Content-Range", "bytes 5-9/10")], body: bytes(5)))
    origin.on("/a", .redirect(to: "/b"))
    origin.on("/b", .redirect(to: other.url("/part")))
    let response = try await fetcher.fetch(
      request(
        origin.url("/a"), headers: [HeaderField(name: "Authorization", value: "s")],
        conditions: [Self.range, Self.ifRange], at: other.url("/part")))
    #expect(response.status == 206)
    #expect(try await readAll(response.body) == bytes(5))
    let all = origin.requests + other.requests
    #expect(all.map { $0.header("Range") } == [nil, nil, "bytes=5-"])
    #expect(all.map { $0.header("If-Range") } == [nil, nil, "\"x\""])
    #expect(all.map { $0.header("Authorization") } == ["s", "s", nil])
  }

  @Test("206 and 304 from a URL without conditions are errors")
  func elsewhere() async {
    origin.on("/a", .redirect(to: "/part"))
    origin.on("/b", .redirect(to: "/same"))
    for (path, condition) in [("/a", Self.range), ("/b", Self.ifNoneMatch)] {
      let error = await failure(
        of: fetcher, request(origin.url(path), conditions: [condition]))
      #expect(error == .originStatus(path == "/a" ? 206 : 304, retryAfter: nil))
    }
  }

  @Test("304 is a valid response to either condition", arguments: [ifNoneMatch, ifModified])
  func notModified(condition: HeaderField) async throws {
    let response = try await fetcher.fetch(request(origin.url("/same"), conditions: [condition]))
    #expect(response.status == 304)
    #expect(response.headers.contains(HeaderField(name: "ETag", value: "\"x\"")))
    #expect(try await response.body.next() == nil)
  }

  @Test("304 to a range and 206 to a condition are errors")
  func unasked() async {
    #expect(
      await failure(
        of: fetcher, request(origin.url("/same"), conditions: [Self.range, Self.ifRange]))
        == .originStatus(304, retryAfter: nil))
    #expect(
      await failure(of: fetcher, request(origin.url("/part"), conditions: [Self.ifNoneMatch]))
        == .originStatus(206, retryAfter: nil))
  }

  @Test("the client's own fields cannot request a part")
  func clientRange() async {
    origin.on("/whole", .ok(bytes(10)))
    let error = await failure(
      of: fetcher, request(origin.url("/whole"), headers: [Self.range, Self.ifNoneMatch]))
    #expect(error == nil)
    #expect(origin.requests[0].header("Range") == nil)
    #expect(origin.requests[0].header("If-None-Match") == nil)
  }

  @Test("only conditional fields are sent as conditions")
  func otherFields() async {
    origin.on("/whole", .ok(bytes(10)))
    let fields = [
      HeaderField(name: "X-Key", value: "1"),
      HeaderField(name: "If-None-Match", value: "\"a\"\r\nX-Injected: 1"),
    ]
    #expect(await failure(of: fetcher, request(origin.url("/whole"), conditions: fields)) == nil)
    #expect(
      Set(origin.requests[0].headers.map(\.name))
        == ["Host", "Accept", "Accept-Encoding", "User-Agent"])
  }

  @Test("a range that the origin cannot satisfy fails with the origin's status")
  func unsatisfiable() async {
    origin.on("/gone", .status(416, headers: [("Content-Range", "bytes */10")]))
    #expect(
      await failure(of: fetcher, request(origin.url("/gone"), conditions: [Self.range]))
        == .originStatus(416, retryAfter: nil))
  }

  @Test("the size limit applies to a part's own length")
  func partLimit() async {
    let part = origin.url("/part")
    #expect(
      await failure(of: fetcher, request(part, conditions: [Self.range], maxBytes: 4))
        == .tooLarge(limit: 4))
    #expect(
      await failure(of: fetcher, request(part, conditions: [Self.range], maxBytes: 5)) == nil)
  }

  @Test("203 returns an image like 200")
  func nonAuthoritative() async throws {
    origin.on("/a", .status(203, body: bytes(10)))
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(response.status == 203)
    #expect(try await readAll(response.body) == bytes(10))
    origin.on("/empty", .status(203))
    #expect(await failure(of: fetcher, request(origin.url("/empty"))) == .noData)
  }

  @Test(
    "a timeout of days or ages never expires early", arguments: [1_000_000, 1 << 40, Int64.max])
  func longTimeout(seconds: Int64) async throws {
    origin.on("/a", ScriptedReply.ok(bytes(10)).delayed(by: .milliseconds(50)))
    origin.on("/to", .redirect(to: "/a"))
    #expect(
      await failure(of: fetcher, request(origin.url("/to"), timeout: .seconds(seconds))) == nil)
  }

  @Test("an unrequested part is accepted if it is the complete image, even a coded one")
  func unaskedPart() async throws {
    let origin = try ScriptedOrigin()
    let fetcher = try FetchTests.fetcher()
    func failure(
      _ range: String, _ more: [(String, String)] = [], body: [UInt8] = bytes(10)
    ) async -> FetchError? {
      origin.on("/a", .status(206, headers: [("Content-Range", range)] + more, body: body))
      return await FetchTests.failure(of: fetcher, request(origin.url("/a")))
    }
    #expect(await failure("bytes 0-9/10") == nil)
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(response.status == 200 && response.contentLength == 10)
    #expect(try await readAll(response.body) == bytes(10))
    for range in ["bytes 0-9/11", "bytes 0-8/9", "bytes 1-9/10", "bytes 0-9/*", "bytes */10", ""] {
      #expect(await failure(range) == .originStatus(206, retryAfter: nil), "\(range)")
    }
    let gzip = Compressed.gzip(bytes(10))
    let all = "bytes 0-\(gzip.count - 1)/\(gzip.count)"
    #expect(await failure(all, [("Content-Encoding", "gzip")], body: gzip) == nil)
    let range = HeaderField(name: "Range", value: "bytes=5-")
    origin.on("/a", .status(206, headers: [("Content-Range", "bytes 0-9/10")], body: bytes(10)))
    let asked = try await fetcher.fetch(request(origin.url("/a"), conditions: [range]))
    #expect(asked.status == 206)
  }
}
