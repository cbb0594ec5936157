import TestSupport
import Testing

@testable import Engine
@testable import Jobs

@Suite("Resuming broken-off transfers")
struct ResumingRuleTests {
  private static let date = "Sun, 06 Nov 1994 08:49:37 GMT"
  private static let before = "Sun, 06 Nov 1994 08:49:36 GMT"
  private let now = Timestamp(milliseconds: 784_111_777_000)

  private static let url = SourceURL("http://a.example/")!

  private func response(
    _ status: Int = 200, length: Int? = 100, _ fields: [String: String]
  ) -> FetchedResponse {
    FetchedResponse(
      url: Self.url, status: status,
      headers: fields.map { HeaderField(name: $0.key, value: $0.value) }, contentLength: length,
      body: Nothing(), timings: TransferTimings())
  }

  private final class Nothing: ImageBytes {
    func next() async throws(FetchError) -> [UInt8]? { nil }
  }

  private func kept(_ validator: String, total: Int? = 100) async throws -> PartialTransfer {
    PartialTransfer(
      response: PartialResponse(url: Self.url, validator: validator, total: total), count: 40,
      bytes: .memory([UInt8](repeating: 1, count: 40)),
      staged: try await MemoryImageSpool().stage())
  }

  @Test(
    "a response can be continued by a strong entity tag, or by a date that was a second old",
    arguments: [
      (["ETag": "\"a\""], "\"a\""), (["ETag": "\"a\"", "Accept-Ranges": "bytes"], "\"a\""),
      (["ETag": "W/\"a\"", "Last-Modified": before, "Date": date], nil), (["ETag": "a"], nil),
      (["Last-Modified": before, "Date": date], before),
      (["Last-Modified": date, "Date": date], nil), (["Last-Modified": before], nil), ([:], nil),
      (["ETag": "\"a\"", "Content-Encoding": "gzip"], nil),
      (["ETag": "\"a\"", "Content-Encoding": "identity"], "\"a\""),
      (["ETag": "\"a\"", "Content-Encoding": "identity, Identity,"], "\"a\""),
      (["ETag": "\"a\"", "Content-Encoding": "gzip, identity"], nil),
      (["ETag": "\"a\"", "Accept-Ranges": "none"], nil),
      (["ETag": "\"a\"", "Cache-Control": "max-age=1, no-store"], nil),
    ] as [([String: String], String?)])
  func validators(fields: [String: String], validator: String?) {
    #expect(response(200, length: 100, fields).partial(now: now)?.validator == validator)
  }

  @Test("a resumed request asks for the rest of the bytes, or the whole image if it changed")
  func conditions() async throws {
    // With a cache_key the job's URL may have changed.
    let asked = SourceURL("http://a.example/?again")!
    var kept = try await kept("\"a\"")
    let conditions = kept.conditions(asking: asked)
    #expect(conditions.url == asked)
    #expect(conditions.fields.map(\.name) == ["Range", "If-Range"])
    #expect(conditions.fields.map(\.value) == ["bytes=40-", "\"a\""])
    kept.response.isRedirected = true
    #expect(kept.conditions(asking: asked).url == Self.url)
  }

  private func redirect(_ fields: [HeaderField] = []) -> FetchedRedirect {
    FetchedRedirect(
      url: SourceURL("http://b.example/")!, status: 302, headers: fields, hadFields: true,
      asked: .zero, answered: .zero)
  }

  @Test("a response of another URL is not taken as the rest")
  func elsewhere() async throws {
    var answer = response(206, length: 60, ["Content-Range": "bytes 40-99/100", "ETag": "\"a\""])
    var kept = try await kept("\"a\"")
    #expect(kept.isContinued(by: answer))
    answer.url = SourceURL("http://b.example/")!
    #expect(kept.isContinued(by: answer), "with a cache_key the two URLs are the same resource")
    answer.redirects = [redirect()]
    #expect(!kept.isContinued(by: answer))
    kept.response.isRedirected = true
    answer.redirects = []
    #expect(!kept.isContinued(by: answer))
  }

  @Test("a transfer is kept across redirects, unless a redirect forbids storing it")
  func redirected() {
    var answer = response(200, ["ETag": "\"a\""])
    #expect(answer.partial(now: now)?.isRedirected == false)
    answer.redirects = [redirect()]
    #expect(answer.partial(now: now)?.isRedirected == true)
    answer.redirects.append(redirect([HeaderField(name: "Cache-Control", value: "no-store")]))
    #expect(answer.partial(now: now) == nil)
  }

  @Test(
    "a partial response is the rest only if unit, range, total, length and validator match",
    arguments: [
      ("bytes 40-99/100", "\"a\"", 60, true), ("Bytes 40-99/100", "\"a\"", nil, true),
      ("bytes 39-99/100", "\"a\"", 61, false), ("bytes 40-99/101", "\"a\"", 60, false),
      ("bytes 40-98/100", "\"a\"", 59, false), ("bytes 40-99/*", "\"a\"", 60, true),
      ("bytes 40-98/*", "\"a\"", 59, false), ("bytes 40-100/*", "\"a\"", 61, false),
      ("bytes 40-9223372036854775807/*", "\"a\"", 60, false),
      ("items 40-99/100", "\"a\"", 60, false), ("bytes 40-99/100", "\"b\"", 60, false),
      ("bytes 40-99/100", "W/\"a\"", 60, false), ("bytes 40-99/100", nil, 60, false),
      ("bytes 40-99/100", "\"a\"", 61, false), ("bytes */100", "\"a\"", 60, false),
      ("bytes 40-99999999999999999999/100", "\"a\"", 60, false),
      ("bytes40-99/100", "\"a\"", 60, false),
    ] as [(String, String?, Int?, Bool)])
  func agreement(range: String, tag: String?, length: Int?, fits: Bool) async throws {
    let fields: [String: String] =
      tag.map { ["Content-Range": range, "ETag": $0] } ?? ["Content-Range": range]
    let answer = response(206, length: length, fields)
    #expect(try await kept("\"a\"").isContinued(by: answer) == fits)
  }

  @Test("a total that was unknown before may come with the rest")
  func unknownTotal() async throws {
    let answer = response(206, length: 60, ["Content-Range": "bytes 40-99/100", "ETag": "\"a\""])
    #expect(try await kept("\"a\"", total: nil).isContinued(by: answer))
    let silent = response(206, length: 60, ["Content-Range": "bytes 40-99/*", "ETag": "\"a\""])
    #expect(try await !kept("\"a\"", total: nil).isContinued(by: silent))
    #expect(try await RestOfImage(silent, after: kept("\"a\""))?.total == 100)
  }

  @Test(
    "a partial response with a coding resumes nothing", arguments: ["gzip", "identity, br", "x"])
  func codedPart(coding: String) async throws {
    var answer = response(206, length: 60, ["Content-Range": "bytes 40-99/100", "ETag": "\"a\""])
    #expect(try await kept("\"a\"").isContinued(by: answer))
    answer.headers.append(HeaderField(name: "content-encoding", value: coding))
    answer.headers.append(HeaderField(name: "Content-Encoding", value: "identity"))
    #expect(try await !kept("\"a\"").isContinued(by: answer))
  }

  @Test("a partial response without Content-Range resumes nothing")
  func withoutRange() async throws {
    #expect(try await !kept("\"a\"").isContinued(by: response(206, ["ETag": "\"a\""])))
  }

  private final class Empty: ImageBytes {
    func next() async throws(FetchError) -> [UInt8]? { throw .noData }
  }

  @Test("a partial response without bytes counts as truncated, not as an image without data")
  func emptyPart() async throws {
    let kept = try await kept("\"a\"")
    var answer = response(206, length: nil, ["Content-Range": "bytes 40-99/100", "ETag": "\"a\""])
    answer.body = Empty()
    #expect(kept.isContinued(by: answer))
    let rest = try #require(RestOfImage(answer, after: kept))
    await #expect(throws: FetchError.truncated(received: 0, expected: 60)) {
      try await rest.next()
    }
    #expect(!rest.isExceeded)
  }

  @Test("with a date as the validator, the origin may omit Last-Modified but not change it")
  func dates() async throws {
    let range = "bytes 40-99/100"
    let kept = try await kept(Self.before)
    #expect(kept.isContinued(by: response(206, length: 60, ["Content-Range": range])))
    let other = response(
      206, length: 60, ["Content-Range": range, "Last-Modified": Self.date])
    #expect(!kept.isContinued(by: other))
  }
}

@Suite("Asking an origin again", .timeLimit(.minutes(15)))
struct AskingAgainTests {
  @Test(
    "a repeated request waits for no slot that its own load holds", arguments: [206, 304])
  func places(status: Int) async throws {
    try await Workshop.open({ $0.maxPerOrigin = 1 }) { shop in
      let url = "http://a.example/x"
      shop.fetcher.answer(url, with: .responds(status), .pieces([ok], total: ok.count))
      let redirect = FetchedRedirect(
        url: SourceURL(url)!, status: 302, headers: [], hadFields: true, asked: .zero,
        answered: .zero)
      shop.fetcher.redirect(url, over: [redirect], to: "http://b.example/y")
      let job = try await shop.finished(shop.submit(url))
      #expect(job.phase == .success && shop.fetcher.requests.count == 2)
    }
  }
}
