import Fetch
import Jobs
import TestSupport
import Testing

@Suite("Field lines of a response")
struct FieldLineTests {
  private let origin: ScriptedOrigin
  private let fetcher: CurlFetcher

  init() throws {
    origin = try ScriptedOrigin()
    fetcher = try FetchTests.fetcher()
    origin.on("/to", .ok(bytes(10)))
  }

  /// Serves a response of 10 bytes whose field lines are these.
  private func serve(_ lines: String, status: String = "200 OK", body: [UInt8] = bytes(10)) {
    let head = "HTTP/1.1 \(status)\r\n\(lines)\r\nContent-Length: \(body.count)\r\n\r\n"
    origin.on("/a", ScriptedReply(.send(Array(head.utf8) + body), .close))
  }

  private func failure() async -> FetchError? {
    await FetchTests.failure(of: fetcher, request(origin.url("/a")))
  }

  @Test(
    "a folded line continues the value before it after one space",
    arguments: [
      ("Cache-Control: max-age=3600,\r\n no-store", ["max-age=3600, no-store"]),
      ("Cache-Control: max-age=3600,\r\n\tno-store", ["max-age=3600, no-store"]),
      ("Cache-Control: public, \r\n \t  max-age=5 \t", ["public, max-age=5"]),
      ("Cache-Control:\r\n no-store", ["no-store"]),
      ("Cache-Control: private\r\n \r\n\t\r\n , no-store", ["private , no-store"]),
      ("Cache-Control: a,\r\n b,\r\n\tc\r\nX: y\r\n z", ["a, b, c"]),
      ("Cache-Control: a\r\n X: b\r\nCache-Control: c", ["a X: b", "c"]),
      ("Cache-Control : no-store", ["no-store"]),
      ("Cache-Control\t:a,\r\n b", ["a, b"]),
    ])
  func folded(lines: String, values: [String]) async throws {
    serve(lines)
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(
      response.headers.filter { $0.name.lowercased() == "cache-control" }.map(\.value) == values)
    #expect(try await readAll(response.body) == bytes(10))
  }

  @Test("characters beyond ASCII in a folded value are kept")
  func foldedBytes() async throws {
    serve("X: ü,\r\n é")
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(response.headers.first { $0.name == "X" }?.value == "ü, é")
  }

  @Test("a folded field of a redirect, an error and a coded body is obeyed")
  func obeyed() async throws {
    serve("Location:\r\n \(origin.url("/to"))", status: "302 Found")
    #expect(await failure() == nil)
    #expect(origin.requests.last?.target == "/to")
    serve("Retry-After:\r\n\t120", status: "503 Slow")
    #expect(await failure() == .originStatus(503, retryAfter: 120))
    serve("Content-Encoding:\r\n gzip", body: bytes(10))
    #expect(await failure() == .brokenCoding("gzip"))
  }

  @Test("a fold in an interim response does not affect the final response")
  func interim() async throws {
    let head = "HTTP/1.1 103 Early\r\nCache-Control: a,\r\n b\r\n\r\n"
    origin.on(
      "/a",
      ScriptedReply([.send(Array(head.utf8))] + ScriptedReply.ok(bytes(10)).steps))
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(!response.headers.contains { $0.name == "Cache-Control" })
  }

  @Test("a webhook's receiver may fold its Retry-After")
  func webhook() async throws {
    serve("Retry-After:\r\n 7", status: "429 Slow")
    let sender = fetcher.sender(under: .everywhere)
    let response = try await sender.post(
      WebhookRequest(
        #require(SourceURL(origin.url("/a"))), body: [], fields: [], timeout: .seconds(10)))
    #expect(response.retryAfter == .seconds(7))
  }

  @Test(
    "fields that determine the body's length must be written as libcurl reads them",
    arguments: [
      "Transfer-Encoding:\r\n chunked", "Transfer-Encoding : chunked",
      "Transfer-Encoding: identity,\r\n\tchunked", "Content-Length : 10", "Content-Length: 1\r\n 0",
      "Content-Length:\r\n 10",
    ])
  func framing(lines: String) async {
    serve(lines)
    guard case .noResponse = await failure() else {
      Issue.record("\(lines) was accepted")
      return
    }
  }

  @Test(
    "a line that is not a field makes the response invalid",
    arguments: [" folded: before any field", "no colon", "Cache-Control: a\u{0}b"])
  func noField(lines: String) async {
    serve(lines)
    guard case .noResponse = await failure() else {
      Issue.record("\(lines) was accepted")
      return
    }
  }
}
