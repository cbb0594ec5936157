import Jobs
import Synchronization
import TestSupport
import Testing

@testable import Fetch

/// The codings that an origin may apply although none was requested.
enum AppliedCoding: String, CaseIterable {
  case gzip, deflate, bareDeflate, brotli

  var name: String {
    switch self {
    case .gzip: "gzip"
    case .deflate, .bareDeflate: "deflate"
    case .brotli: "br"
    }
  }

  func apply(to bytes: [UInt8]) -> [UInt8] {
    switch self {
    case .gzip: Compressed.gzip(bytes)
    case .deflate: Compressed.deflate(bytes)
    case .bareDeflate: Compressed.bareDeflate(bytes)
    case .brotli: Compressed.brotli(bytes)
    }
  }
}

@Suite("Content codings")
struct CodingTests {
  private let origin: ScriptedOrigin
  private let fetcher: CurlFetcher
  private let plain = bytes(300_000)

  init() throws {
    origin = try ScriptedOrigin()
    fetcher = try FetchTests.fetcher { $0.stallTimeout = .seconds(10) }
  }

  private func coded(_ body: [UInt8], as codings: String...) -> ScriptedReply {
    .ok(body, headers: codings.map { ("Content-Encoding", $0) })
  }

  private func fetched(_ reply: ScriptedReply) async throws -> [UInt8] {
    origin.on("/a", reply)
    return try await readAll(fetcher.fetch(request(origin.url("/a"))).body)
  }

  private func failure(_ reply: ScriptedReply, maxBytes: Int = 1 << 25) async -> FetchError? {
    origin.on("/a", reply)
    return await FetchTests.failure(of: fetcher, request(origin.url("/a"), maxBytes: maxBytes))
  }

  @Test("content codings are decoded although none was requested, and the length is then unknown")
  func undone() async throws {
    for coding in AppliedCoding.allCases {
      origin.on("/a", coded(coding.apply(to: plain), as: coding.name))
      let response = try await fetcher.fetch(request(origin.url("/a")))
      #expect(response.contentLength == nil)
      #expect(try await readAll(response.body) == plain, "\(coding)")
    }
    #expect(origin.requests.allSatisfy { $0.header("Accept-Encoding") == "identity" })
    #expect(origin.acceptedConnections == 1)
  }

  @Test("a coding is decoded wherever the pieces end", arguments: AppliedCoding.allCases)
  func pieces(coding: AppliedCoding) async throws {
    let small = bytes(2_000)
    let chunks = coding.apply(to: small).map { [$0] }
    let head = ScriptedReply.head(
      200, [("Content-Encoding", coding.name), ("Transfer-Encoding", "chunked")])
    let framed = chunks.map { ScriptedReply.chunk($0) } + [ScriptedReply.chunk([])]
    #expect(
      try await fetched(
        ScriptedReply(
          framed.reduce(into: [.send(head)]) {
            $0.append(.send($1))
          })) == small)
  }

  @Test("a coding's name may have other cases and an alias, and identity is no coding")
  func names() async throws {
    let gzip = Compressed.gzip(plain)
    for name in ["x-gzip", "GZIP", "X-Gzip", " gzip ,", "identity, gzip"] {
      #expect(try await fetched(coded(gzip, as: name)) == plain, "\(name)")
    }
    origin.on("/a", coded(plain, as: "identity", "Identity,identity", ""))
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(response.contentLength == plain.count)
    #expect(try await readAll(response.body) == plain)
  }

  @Test("several codings are decoded from the last to the first, in one field or several")
  func rows() async throws {
    let two = Compressed.brotli(Compressed.gzip(plain))
    #expect(try await fetched(coded(two, as: "gzip, br")) == plain)
    #expect(try await fetched(coded(two, as: "gzip", "br")) == plain)
    let three = Compressed.gzip(Compressed.brotli(Compressed.deflate(plain)))
    #expect(try await fetched(coded(three, as: "deflate,br", "identity", "x-gzip")) == plain)
    #expect(await failure(coded(two, as: "br, gzip")) == .brokenCoding("gzip"))
  }

  @Test("unknown or too many codings are reported, and the content is not decoded")
  func unknown() async throws {
    for (fields, named) in [
      (["compress"], "compress"), (["zstd"], "zstd"), (["gzip, Foo"], "foo"), (["gzip", "x"], "x"),
      (["gzip, gzip, gzip, gzip"], "gzip, gzip, gzip, gzip"), (["br, gzip, br"], "br, gzip, br"),
      (["none"], "none"), (["gzip;q=1"], "gzip;q=1"), (["aws-chunked"], "aws-chunked"),
    ] {
      origin.on("/a", .ok(plain, headers: fields.map { ("Content-Encoding", $0) }))
      let response = try await fetcher.fetch(request(origin.url("/a")))
      #expect(response.unsupportedCoding == named)
      #expect(response.contentLength == plain.count)
      #expect(try await readAll(response.body) == plain)
    }
    origin.on("/a", .ok(plain))
    #expect(try await fetcher.fetch(request(origin.url("/a"))).unsupportedCoding == nil)
  }

  @Test("codings are ignored for redirects, errors, 304 and parts")
  func untouched() async throws {
    let br = ("Content-Encoding", "br")
    let odd = ("Content-Encoding", "zstd")
    origin.on("/to", .status(302, headers: [("Location", "/b"), odd], body: bytes(100)))
    origin.on("/b", coded(Compressed.gzip(plain), as: "gzip"))
    let response = try await fetcher.fetch(request(origin.url("/to")))
    #expect(try await readAll(response.body) == plain)
    #expect(
      await failure(.status(503, headers: [odd], body: bytes(9)))
        == .originStatus(503, retryAfter: nil))
    let condition = HeaderField(name: "If-None-Match", value: "\"x\"")
    origin.on("/same", .status(304, headers: [odd]))
    let same = try await fetcher.fetch(request(origin.url("/same"), conditions: [condition]))
    #expect(same.status == 304)
    #expect(try await same.body.next() == nil)
    let range = HeaderField(name: "Range", value: "bytes=5-")
    origin.on(
      "/part", .status(206, headers: [("Content-Range", "bytes 5-9/10"), br], body: bytes(5)))
    let part = try await fetcher.fetch(request(origin.url("/part"), conditions: [range]))
    #expect(try await readAll(part.body) == bytes(5))
  }

  @Test(
    "a coding that ends early is broken, or truncated if the connection ended early",
    arguments: AppliedCoding.allCases)
  func cut(coding: AppliedCoding) async throws {
    let whole = coding.apply(to: plain)
    for count in [1, 5, whole.count / 2, whole.count - 1] {
      let cut = Array(whole.prefix(count))
      #expect(await failure(coded(cut, as: coding.name)) == .brokenCoding(coding.name), "\(count)")
    }
    let header = ScriptedReply.head(
      200, [("Content-Encoding", coding.name), ("Content-Length", "\(whole.count)")])
    let half = whole.count / 2
    #expect(
      await failure(ScriptedReply(.send(header + whole.prefix(half)), .close))
        == .truncated(received: half, expected: whole.count))
    #expect(try await fetched(coded(whole, as: coding.name)) == plain)
  }

  @Test("a broken coding is reported")
  func broken() async {
    for coding in AppliedCoding.allCases {
      #expect(
        await failure(coded([0xFF] + bytes(5_000), as: coding.name)) == .brokenCoding(coding.name))
    }
    // The checksums are checked.
    for (coding, place) in [(AppliedCoding.gzip, 8), (.gzip, 1), (.deflate, 1)] {
      var whole = coding.apply(to: plain)
      whole[whole.count - place] ^= 1
      #expect(await failure(coded(whole, as: coding.name)) == .brokenCoding(coding.name))
    }
  }

  @Test("bytes after the end of a coding are ignored", arguments: AppliedCoding.allCases)
  func garbage(coding: AppliedCoding) async throws {
    let whole = coding.apply(to: plain)
    for garbage in [[0], [0, 0, 0], Array("<!-- cached -->".utf8), [0] + whole, bytes(400_000)] {
      #expect(try await fetched(coded(whole + garbage, as: coding.name)) == plain)
    }
    // Also in many pieces, of which later ones look like the beginning of a coding.
    let head = ScriptedReply.head(
      200,
      [("Content-Encoding", coding.name), ("Content-Length", "\(whole.count * 3 + 1)")])
    let reply = ScriptedReply(
      .send(head + whole + [0]), .pause(.milliseconds(20)), .send(whole),
      .pause(.milliseconds(20)), .send(whole))
    #expect(try await fetched(reply) == plain)
    #expect(
      await failure(coded(whole + bytes(400_000), as: coding.name), maxBytes: 350_000)
        == .tooLarge(limit: 350_000))
  }

  @Test("a gzip body may have several members, each of which must be complete")
  func members() async throws {
    let member = Compressed.gzip(plain)
    #expect(try await fetched(coded(member + member + member, as: "gzip")) == plain + plain + plain)
    #expect(await failure(coded(member + member.dropLast(3), as: "gzip")) == .brokenCoding("gzip"))
    let head = ScriptedReply.head(
      200, [("Content-Encoding", "gzip"), ("Content-Length", "\(member.count * 2)")])
    let reply = ScriptedReply(.send(head + member), .pause(.milliseconds(20)), .send(member))
    #expect(try await fetched(reply) == plain + plain)
  }

  @Test("a coded body without content is no data")
  func nothing() async {
    for coding in AppliedCoding.allCases {
      #expect(await failure(coded(coding.apply(to: []), as: coding.name)) == .noData)
      #expect(await failure(coded([], as: coding.name)) == .noData)
      let head = ScriptedReply.head(
        200, [("Content-Encoding", coding.name), ("Transfer-Encoding", "chunked")])
      #expect(await failure(ScriptedReply(.send(head + ScriptedReply.chunk([])))) == .noData)
    }
  }

  @Test("the size limit applies to the sent bytes and to the decoded bytes")
  func limits() async {
    let zeros = [UInt8](repeating: 0, count: 100_000)
    for coding in AppliedCoding.allCases {
      let small = coding.apply(to: zeros)
      #expect(await failure(coded(small, as: coding.name), maxBytes: 100_000) == nil)
      #expect(
        await failure(coded(small, as: coding.name), maxBytes: 99_999) == .tooLarge(limit: 99_999))
    }
    // Empty members: bytes that produce no output.
    let nothing = [[UInt8]](repeating: Compressed.gzip([]), count: 1_000).flatMap(\.self)
    let limit = nothing.count - 1
    #expect(await failure(coded(nothing, as: "gzip"), maxBytes: limit) == .tooLarge(limit: limit))
    // Inside another coding the same limit applies.
    let inner = Compressed.gzip([1]) + nothing
    let outer = Compressed.brotli(inner)
    #expect(outer.count < 1_000)
    #expect(
      await failure(coded(outer, as: "gzip, br"), maxBytes: inner.count - 1)
        == .tooLarge(limit: inner.count - 1))
    #expect(await failure(coded(outer, as: "gzip, br"), maxBytes: inner.count) == nil)
  }

  @Test("a body that expands a thousandfold is decoded only up to the limit")
  func bombs() async throws {
    let megabyte = [UInt8](repeating: 0, count: 1 << 20)
    let member = Compressed.gzip(megabyte)
    let gigabyte = [[UInt8]](repeating: member, count: 1_024).flatMap(\.self)
    #expect(gigabyte.count < 1_200_000)
    let large = [UInt8](repeating: 0, count: 1 << 26)
    for (bomb, name) in [
      (gigabyte, "gzip"), (Compressed.deflate(large), "deflate"), (Compressed.brotli(large), "br"),
      (Compressed.brotli(gigabyte), "gzip, br"), (Compressed.gzip(gigabyte), "gzip, gzip"),
    ] {
      origin.on("/a", coded(bomb, as: name))
      let limit = 3_000_000
      let response = try await fetcher.fetch(request(origin.url("/a"), maxBytes: limit))
      var count = 0
      await #expect(throws: FetchError.tooLarge(limit: limit)) {
        while let piece = try await response.body.next() {
          #expect(piece.count <= 65_536)
          count += piece.count
        }
      }
      #expect(count <= limit, "\(name)")
    }
  }

  @Test("a body is decoded only as far as it is read, and does not delay other transfers")
  func lazy() async throws {
    let member = Compressed.gzip([UInt8](repeating: 0, count: 1 << 20))
    let gigabyte = [[UInt8]](repeating: member, count: 1_024).flatMap(\.self)
    origin.on("/bomb", coded(gigabyte, as: "gzip"))
    origin.on("/a", coded(Compressed.gzip(plain), as: "gzip"))
    let bomb = try await fetcher.fetch(request(origin.url("/bomb"), maxBytes: 1 << 31))
    #expect(try await bomb.body.next()?.count == 65_536)
    // Besides the buffered bytes, nothing of the rest has left the origin's kernel.
    for _ in 0..<3 {
      let response = try await fetcher.fetch(request(origin.url("/a")))
      #expect(try await readAll(response.body) == plain)
    }
    #expect(bomb.body.codedCount < gigabyte.count)
  }

  @Test("decoding stops when the reading task is cancelled")
  func cancellation() async throws {
    let empty = [[UInt8]](repeating: Compressed.gzip([]), count: 10_000).flatMap(\.self)
    let head = ScriptedReply.head(200, [("Content-Encoding", "gzip"), ("Connection", "close")])
    origin.on("/a", ScriptedReply(.send(head), .repeating(empty)))
    let task = Task { await failure(ofEndless: origin.url("/a")) }
    #expect(await origin.waitForRequests(to: "/a"))
    task.cancel()
    #expect(await task.value == .cancelled)
    #expect(await origin.waitForClose(of: 1) != nil)
  }

  private func failure(ofEndless url: String) async -> FetchError? {
    await FetchTests.failure(of: fetcher, request(url, maxBytes: .max))
  }

  @Test("transfer codings are refused, in every spelling, because they are not decoded")
  func transferCodings() async throws {
    let gzip = Compressed.gzip(plain)
    for value in ["gzip, chunked", "gzip", "deflate,chunked", "br, chunked", "x"] {
      let head = ScriptedReply.head(200, [("Transfer-Encoding", value)])
      let body = ScriptedReply.chunk(gzip) + ScriptedReply.chunk([])
      guard
        case .noResponse("127.0.0.1", "an unrequested transfer coding") =
          await failure(ScriptedReply(.send(head + body), .close))
      else {
        Issue.record("\(value)")
        continue
      }
    }
    let head = ScriptedReply.head(200, [("Transfer-Encoding", "Chunked")])
    let body = ScriptedReply.chunk(plain) + ScriptedReply.chunk([])
    #expect(try await fetched(ScriptedReply(.send(head + body))) == plain)
  }

  @Test(
    "a transfer coding is found at every place where a line may seem to end or a response to begin",
    arguments: [
      "Transfer-Encoding: chunked\r,gzip\r\n", "Transfer-Encoding: gzip,chunked\r, chunked\r\n",
      "Transfer-Encoding: gzip,chunked\r\nHTTP/1.1 200 OK: x\r\n",
      "Transfer-Encoding: gzip,chunked\r\nHTTP/1.1 200 OK: x\r\nTransfer-Encoding: chunked\r\n",
      "A: b\rTransfer-Encoding: gzip,chunked\r\n", "\rTransfer-Encoding: gzip,chunked\r\n",
    ])
  func hiddenTransferCodings(fields: String) async {
    let head = Array("HTTP/1.1 200 OK\r\n\(fields)\r\n".utf8)
    let body = ScriptedReply.chunk(Compressed.gzip(plain)) + ScriptedReply.chunk([])
    switch await failure(ScriptedReply(.send(head + body), .close)) {
    case .noResponse("127.0.0.1", "an unrequested transfer coding"),
      .noResponse("127.0.0.1", "a malformed header section"):
      break
    case let other: Issue.record("\(other as Any)")
    }
  }

  @Test("a line that looks like a status line does not begin another response")
  func secondStatusLine() async throws {
    let body = Array("\(plain.count)".utf8)
    let head = Array(
      "HTTP/1.1 200 OK\r\nContent-Length: \(body.count)\r\nHTTP/1.1 404 No: x\r\n\r\n".utf8)
    #expect(try await fetched(ScriptedReply(.send(head + body))) == body)
    let lengths = Array(
      "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nHTTP/1.1 200 OK: x\r\nContent-Length: 5\r\n\r\n".utf8
    )
    #expect(
      await failure(ScriptedReply(.send(lengths + bytes(9)), .close))
        == .noResponse(host: "127.0.0.1", detail: "different Content-Length values"))
    let interim = Array("HTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n".utf8)
    let rest = Array("Content-Length: \(body.count)\r\n\r\n".utf8)
    #expect(try await fetched(ScriptedReply(.send(interim + rest + body))) == body)
  }

  @Test("a body that arrives byte by byte uses little more memory than its bytes")
  func dripping() async throws {
    let source = Drops(Compressed.gzip(bytes(2_000)))
    let content = DecodedContent(source, coding: .gzip, maxBytes: 1 << 20)
    var (all, most): ([UInt8], Int) = ([], 0)
    while let piece = try await content.next() {
      all += piece
      if piece.count < 1_000 { most = max(most, piece.capacity) }
    }
    #expect(all == bytes(2_000))
    #expect((1..<4_000).contains(most))
  }

  private final class Drops: ImageBytes {
    private let bytes: Mutex<ArraySlice<UInt8>>

    init(_ bytes: [UInt8]) { self.bytes = Mutex(bytes[...]) }

    func next() async throws(FetchError) -> [UInt8]? {
      bytes.withLock { $0.popFirst() }.map { [$0] }
    }
  }
}
