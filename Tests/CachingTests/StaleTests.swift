import Caching
import Testing

@Suite("A stale response")
struct StaleTests {
  @Test(
    "a stale response is not used if a directive forbids it",
    arguments: ["must-revalidate", "proxy-revalidate", "no-cache", "s-maxage=2", "Must-Revalidate"])
  func forbidden(directive: String) {
    let extensions = "stale-while-revalidate=60, stale-if-error=60"
    let freshness = freshness(["Cache-Control: max-age=2, \(directive), \(extensions)"], after: 5)
    #expect(!freshness.permitsStale)
    #expect(!freshness.permitsStaleWhileRevalidating)
    #expect(!freshness.permitsStaleIfError)
  }

  @Test("a stale response may be used if nothing forbids it, but RFC 5861 needs its directives")
  func permitted() {
    let freshness = freshness(["Cache-Control: max-age=2"], after: 5)
    #expect(freshness.permitsStale)
    #expect(!freshness.permitsStaleWhileRevalidating)
    #expect(!freshness.permitsStaleIfError)
  }

  @Test(
    "a stale response may be used within the windows of RFC 5861",
    arguments: [(1, true), (5, true), (6, false)])
  func windows(seconds: Int64, within: Bool) {
    let revalidating = freshness(
      ["Cache-Control: max-age=2, stale-while-revalidate=4"], after: seconds)
    #expect(revalidating.permitsStaleWhileRevalidating == within)
    let failing = freshness(["Cache-Control: max-age=2, stale-if-error=4"], after: seconds)
    #expect(failing.permitsStaleIfError == within)
  }

  @Test("a window without a positive number is none", arguments: ["", "=", "=x", "=-1", "=0"])
  func malformed(argument: String) {
    let line = "Cache-Control: max-age=2, stale-while-revalidate\(argument)"
    #expect(!freshness([line], after: 2).permitsStaleWhileRevalidating)
  }

  @Test("a window may have more than 2^31 seconds")
  func endless() {
    let line = "Cache-Control: max-age=2, stale-if-error=99999999999"
    #expect(freshness([line], after: 1_000_000_000).permitsStaleIfError)
  }

  @Test("a response is immutable if the directive says so")
  func immutable() {
    #expect(freshness(["Cache-Control: max-age=9, Immutable"]).isImmutable)
    #expect(!freshness(["Cache-Control: max-age=9"]).isImmutable)
  }
}
