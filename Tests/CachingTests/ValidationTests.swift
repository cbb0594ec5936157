import Caching
import Testing

@Suite("Validation")
struct ValidationTests {
  private let modified = "Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT"

  private func freshen(_ stored: [String], _ update: [String]) -> StoredResponse? {
    Validation.freshen(
      response(stored), with: fields(update), requestTime: noon + 9_000,
      responseTime: noon + 10_000)
  }

  @Test(
    "a conditional request sends the validators unchanged",
    arguments: [
      ["\"abc\""], ["W/\"abc\""], ["abc"], ["w/\"abc\""],
    ])
  func entityTags(tag: [String]) {
    let stored = response(["ETag: \(tag[0])", modified])
    #expect(
      Validation.conditions(for: stored) == [
        Field(name: "If-None-Match", value: tag[0]),
        Field(name: "If-Modified-Since", value: "Wed, 01 Jan 2020 00:00:00 GMT"),
      ])
  }

  @Test("a conditional request sends only a date, only a tag, or no condition")
  func few() {
    #expect(Validation.conditions(for: response([modified])).map(\.name) == ["If-Modified-Since"])
    #expect(Validation.conditions(for: response(["ETag: \"a\""])).map(\.name) == ["If-None-Match"])
    #expect(Validation.conditions(for: response(["ETag:", "Last-Modified: x"])).isEmpty)
    #expect(Validation.conditions(for: response([])).isEmpty)
  }

  @Test("a 304 replaces its fields and the times")
  func updates() throws {
    let fresh = try #require(
      freshen(
        [
          "A: 1", "B: 1", "Cache-Control: max-age=2", "ETag: \"a\"", "Age: 500", date("Date", -500),
        ],
        ["ETag: \"a\"", "a: 2", "a: 3", "C: 4", "Cache-Control: max-age=60"]))
    #expect(
      fresh.fields
        == fields([
          "B: 1", "ETag: \"a\"", "a: 2", "a: 3", "C: 4", "Cache-Control: max-age=60",
          date("Date", 10),
        ]))
    #expect(fresh.requestTime == noon + 9_000)
    #expect(fresh.responseTime == noon + 10_000)
    let freshness = Freshness(of: fresh, at: noon + 11_000, assigned: nil, fallback: nil)
    #expect(freshness.age == 2)
    #expect(freshness.lifetime == 60)
  }

  @Test("a 304 does not change fields of the stored bytes, and adds no connection fields")
  func unchanged() throws {
    let bytes = ["Content-Length: 36", "Content-Encoding: gzip", "ETag: \"a\""]
    let fresh = try #require(
      freshen(
        bytes,
        [
          "Content-Length: 10", "Content-Encoding: br", "Content-Range: bytes 0-1/2",
          "Connection: X", "X: 1", date("Date", 10),
        ]))
    #expect(fresh.fields == fields(bytes + [date("Date", 10)]))
  }

  @Test(
    "a 304 for another response does not update",
    arguments: [
      (["ETag: \"a\""], ["ETag: \"b\""]), (["ETag: W/\"a\""], ["ETag: W/\"b\""]),
      (["ETag: \"a\""], ["ETag: W/\"b\""]), (["A: 1"], ["ETag: \"b\""]),
      (
        ["Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT"],
        ["Last-Modified: Thu, 02 Jan 2020 00:00:00 GMT"]
      ),
    ])
  func another(stored: [String], update: [String]) {
    #expect(freshen(stored, update) == nil)
  }

  @Test(
    "a 304 with the same validator or none updates",
    arguments: [
      (["ETag: \"a\""], []), (["ETag: \"a\""], ["ETag: W/\"a\""]),
      (["ETag: W/\"a\""], ["ETag: \"a\""]), (["ETag: abc"], ["ETag: abc"]),
      (["ETag: \"a\""], ["Last-Modified: Thu, 02 Jan 2020 00:00:00 GMT"]),
      (
        ["Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT"],
        ["Last-Modified: Wednesday, 01-Jan-20 00:00:00 GMT"]
      ), (["Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT"], []),
    ])
  func same(stored: [String], update: [String]) {
    #expect(freshen(stored, update) != nil)
  }

  @Test("after a 304 that forbids storing, the response needs validation before each use")
  func forbidding() throws {
    for directive in ["no-store", "private", "no-cache"] {
      let fresh = try #require(
        freshen(["ETag: \"a\"", "Cache-Control: max-age=60"], ["Cache-Control: \(directive)"]))
      let freshness = Freshness(of: fresh, at: noon + 10_000, assigned: 60, fallback: nil)
      #expect(freshness.needsValidation && !freshness.isFresh && !freshness.permitsStale)
    }
  }

  @Test("after a 304 that varies by more fields, the response matches no request")
  func varying() throws {
    let fresh = try #require(freshen(["ETag: \"a\""], ["Vary: Foo"]))
    #expect(!fresh.matches([]))
  }
}
