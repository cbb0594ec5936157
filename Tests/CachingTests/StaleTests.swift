import Caching
import Testing

@Suite("A stale response")
struct StaleTests {
  @Test(
    "is not used where a directive forbids it",
    arguments: ["must-revalidate", "proxy-revalidate", "no-cache", "s-maxage=2", "Must-Revalidate"])
  func forbidden(directive: String) {
    let extensions = "stale-while-revalidate=60, stale-if-error=60"
    let freshness = freshness(["Cache-Control: max-age=2, \(directive), \(extensions)"], after: 5)
    #expect(!freshness.permitsStale)
    #expect(!freshness.permitsStaleWhileRevalidating)
    #expect(!freshness.permitsStaleIfError)
  }

  @Test("may be used where nothing forbids it, though RFC 5861 wants to be asked for")
  func permitted() {
    let freshness = freshness(["Cache-Control: max-age=2"], after: 5)
    #expect(freshness.permitsStale)
    #expect(!freshness.permitsStaleWhileRevalidating)
    #expect(!freshness.permitsStaleIfError)
  }

  @Test(
    "may be used within the windows of RFC 5861", arguments: [(1, true), (5, true), (6, false)])
  func windows(seconds: Int64, within: Bool) {
    let revalidating = freshness(
      ["Cache-Control: max-age=2, stale-while-revalidate=4"], after: seconds)
    #expect(revalidating.permitsStaleWhileRevalidating == within)
    let failing = freshness(["Cache-Control: max-age=2, stale-if-error=4"], after: seconds)
    #expect(failing.permitsStaleIfError == within)
  }

  @Test("has no window that is no number", arguments: ["", "=", "=x", "=-1", "=0"])
  func malformed(argument: String) {
    let line = "Cache-Control: max-age=2, stale-while-revalidate\(argument)"
    #expect(!freshness([line], after: 2).permitsStaleWhileRevalidating)
  }

  @Test("a window that never ends saturates")
  func endless() {
    let line = "Cache-Control: max-age=2, stale-if-error=99999999999"
    #expect(freshness([line], after: 1_000_000_000).permitsStaleIfError)
  }

  @Test("immutable is told")
  func immutable() {
    #expect(freshness(["Cache-Control: max-age=9, Immutable"]).isImmutable)
    #expect(!freshness(["Cache-Control: max-age=9"]).isImmutable)
  }
}
