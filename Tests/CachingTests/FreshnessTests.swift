import Caching
import Testing

@Suite("Freshness")
struct FreshnessTests {
  @Test(
    "the lifetime is that of s-maxage, then of max-age, then of Expires",
    arguments: [
      (["Cache-Control: max-age=60, s-maxage=3600"], 3600),
      (["Cache-Control: s-maxage=1, max-age=3600"], 1),
      (["Cache-Control: max-age=3600", "Cache-Control: s-maxage=1"], 1),
      (["Cache-Control: max-age=0, s-maxage=3600", date("Expires", -10)], 3600),
      (["Cache-Control: max-age=3600", date("Expires", -7200)], 3600),
      (["Cache-Control: max-age=3600", "Expires: 0"], 3600),
      (["Cache-Control: max-age=0", date("Expires", 3600)], 0),
      (["Cache-Control: max-age=x", date("Expires", 3600)], 0),
      (["Cache-Control: s-maxage, max-age=3600"], 0),
      ([date("Expires", 3600)], 3600),
      ([date("Expires", 300), date("Date", 400)], 0),
      ([date("Expires", 500), date("Date", 400)], 100),
      ([date("Expires", 10), "Date: foo"], 10),
      ([date("Expires", -10)], 0),
      (["Expires: 0"], 0),
      (["Expires: Thu, 18 Aug 2050 2:01:18 GMT", "Expires: Thu, 18 Aug 2050 02:01:18 GMT"], 0),
      (["Expires: Fri, 31 Dec 9999 23:59:59 GMT"], 2_147_483_648),
      (["Cache-Control: no-transform"], 0),
    ])
  func lifetime(lines: [String], seconds: Int) {
    #expect(freshness(lines).lifetime == seconds)
  }

  @Test("without a lifetime the job's is used, then the stored one, the fallback, the heuristic")
  func precedence() {
    let silent = response([date("Last-Modified", -1000)], assigned: 20)
    let unassigned = response([date("Last-Modified", -1000)])
    let explicit = response(
      ["Cache-Control: max-age=5", date("Last-Modified", -1000)], assigned: 20)
    func lifetime(_ response: StoredResponse, _ assigned: Int?, _ fallback: Int?) -> Int {
      Freshness(of: response, at: noon, assigned: assigned, fallback: fallback).lifetime
    }
    #expect(lifetime(silent, 10, 30) == 10)
    #expect(lifetime(silent, nil, 30) == 20)
    #expect(lifetime(response(["Cache-Control: public"], assigned: 20), nil, nil) == 0)
    // Another job assigned the stored lifetime, so the fallback limits it.
    #expect(lifetime(silent, nil, 10) == 10)
    #expect(lifetime(silent, nil, 30) == 20)
    #expect(lifetime(unassigned, nil, 30) == 30)
    #expect(lifetime(unassigned, nil, nil) == 100)
    #expect(lifetime(unassigned, 0, 30) == 0)
    #expect(lifetime(unassigned, -1, nil) == 0)
    #expect(lifetime(unassigned, .max, nil) == 2_147_483_648)
    #expect(lifetime(explicit, 10, 30) == 5)
  }

  @Test(
    "the heuristic needs Last-Modified before Date",
    arguments: [
      ([date("Last-Modified", -3600)], 360), ([date("Last-Modified", -5)], 0),
      ([date("Last-Modified", 100)], 0), (["Last-Modified: x"], 0), ([], 0),
      (["Date: x", date("Last-Modified", -3600)], 360),
    ])
  func heuristic(lines: [String], seconds: Int) {
    #expect(freshness(lines).lifetime == seconds)
  }

  @Test("a response is fresh until its age reaches its lifetime")
  func end() {
    let lines = ["Cache-Control: max-age=10"]
    #expect(freshness(lines, after: 9).isFresh)
    #expect(!freshness(lines, after: 10).isFresh)
    #expect(freshness(lines, after: 10).age == 10)
    #expect(freshness(lines).freshUntil == noon + 10_000)
    #expect(freshness(lines, after: -100).age == 0)
  }

  @Test(
    "the age of a response includes Age and Date",
    arguments: [
      (["Age: 7200"], 7200), (["Age: 30", date("Date", -7200)], 7200),
      (["Age: 7200", date("Date", -30)], 7200), ([date("Date", 30)], 0), (["Age: abc"], 0),
      (["Age: -7200"], 0), (["Age: 7200.0"], 0), (["Age: 7200;foo=1"], 0), (["Age: 7200, 0"], 7200),
      (["Age: 0, 7200"], 0), (["Age: 7200", "Age: 0"], 7200), (["Age: 0", "Age: 7200"], 0),
      (["Age: 2147483649"], 2_147_483_648), (["Age: 99999999999999999999"], 2_147_483_648),
      (["Age:"], 0),
    ])
  func age(lines: [String], seconds: Int) {
    #expect(freshness(lines).age == seconds)
  }

  @Test("the age includes the response's duration and the time since it was received")
  func delay() {
    let response = StoredResponse(
      to: [], fields: fields(["Age: 5", "Cache-Control: max-age=100"]), requestTime: noon - 3500,
      responseTime: noon, assignedLifetime: nil)
    let freshness = Freshness(of: response, at: noon + 20_999, assigned: nil, fallback: nil)
    #expect(freshness.age == 28)
    #expect(freshness.freshUntil == noon + 92_000)
  }

  @Test("age and lifetime are limited without an overflow")
  func saturation() {
    let lines = ["Age: 99999999999", "Cache-Control: max-age=99999999999"]
    let old = freshness(lines, after: 9_000_000_000)
    #expect(old.age == 2_147_483_648)
    #expect(!old.isFresh)
    #expect(freshness(["Cache-Control: max-age=99999999999"], after: 2_000_000_000).isFresh)
    let extreme = StoredResponse(
      to: [], fields: [], requestTime: .max, responseTime: .min, assignedLifetime: .max)
    #expect(Freshness(of: extreme, at: .max, assigned: nil, fallback: nil).isFresh == false)
  }

  @Test(
    "no-cache requires validation before each use, with a list of fields it does not",
    arguments: ["no-cache", "No-CaChE"])
  func noCache(directive: String) {
    let freshness = freshness(["Cache-Control: max-age=10000, \(directive)"])
    #expect(freshness.needsValidation)
    #expect(!freshness.isFresh)
    #expect(freshness.freshUntil == nil)
    #expect(CachingTests.freshness(["Cache-Control: max-age=9, no-cache=\"a\""]).isFresh)
  }
}
