import Caching
import Testing

@Suite("What a shared cache may store")
struct StoringTests {
  private func permits(
    _ response: [String], to request: [String] = [], status: Int = 200
  ) -> Bool {
    Storing.permits(request: fields(request), response: fields(response), status: status)
  }

  @Test("a 200 is stored with any freshness or none")
  func plain() {
    #expect(permits([]))
    #expect(permits(["Cache-Control: max-age=0"]))
    #expect(permits(["Cache-Control: no-cache"]))
    #expect(permits(["Pragma: no-cache", "Set-Cookie: a=b"]))
  }

  @Test(
    "no-store and private forbid storing",
    arguments: [
      "no-store", "No-StOrE", "max-age=10000, no-store", "private, max-age=3600", "private=a",
    ])
  func forbidden(directives: String) {
    #expect(!permits(["Cache-Control: \(directives)"]))
  }

  @Test("private with a list of fields excludes only these fields")
  func listed() {
    #expect(permits(["Cache-Control: private=\"a\""]))
    let stored = response(["Cache-Control: private=\"a\", no-cache=\"B\"", "A: 1", "b: 2", "c: 3"])
    #expect(stored.fields.map(\.name) == ["Cache-Control", "c", "Date"])
  }

  @Test(
    "must-understand overrides no-store for an understood status and forbids storing all others",
    arguments: [(200, true), (203, true), (299, false), (201, false)])
  func mustUnderstand(status: Int, permitted: Bool) {
    let response = ["Cache-Control: max-age=3600, no-store, must-understand"]
    #expect(permits(response, status: status) == permitted)
  }

  @Test(
    "a response to a request with credentials needs explicit permission",
    arguments: ["Authorization: FOO", "authorization: x", "Cookie: a=b"])
  func credentials(field: String) {
    #expect(!permits(["Cache-Control: max-age=100000"], to: [field]))
    #expect(!permits([], to: [field]))
    for leave in ["public", "must-revalidate", "s-maxage=3600"] {
      #expect(permits(["Cache-Control: max-age=3600, \(leave)"], to: [field]), "\(leave)")
    }
    #expect(!permits(["Cache-Control: proxy-revalidate, max-age=3600"], to: [field]))
    #expect(!permits(["Cache-Control: public, private"], to: [field]))
  }

  @Test(
    "a success that is not cacheable by default needs an explicit lifetime",
    arguments: [201, 202, 205, 226, 299])
  func otherSuccess(status: Int) {
    #expect(!permits(["Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"], status: status))
    for explicit in ["Cache-Control: max-age=1", "Cache-Control: s-maxage=1", "Expires: 0"] {
      #expect(permits([explicit], status: status), "\(explicit)")
    }
    #expect(permits(["Cache-Control: public"], status: status))
  }

  @Test(
    "parts, redirects and failures are not stored", arguments: [101, 206, 301, 304, 404, 500, 599])
  func notWhole(status: Int) {
    #expect(!permits(["Cache-Control: max-age=3600, public"], status: status))
  }

  @Test("a request's no-store and a Vary of * forbid storing")
  func request() {
    #expect(!permits([], to: ["Cache-Control: no-store"]))
    #expect(permits([], to: ["Cache-Control: no-cache"]))
    #expect(!permits(["Vary: *"]))
    #expect(permits(["Vary: Accept"]))
  }

  @Test("fields of a connection or a proxy are dropped, other fields and Set-Cookie are kept")
  func connectionSpecific() {
    let stored = response([
      "Connection: close, X-Hop", "Keep-Alive: 5", "X-Hop: 1", "TE: x",
      "Transfer-Encoding: chunked",
      "Upgrade: h2c", "Proxy-Connection: x", "Proxy-Authenticate: x", "Proxy-Authorization: x",
      "Proxy-Authentication-Info: x", "X-Kept: 1", "Set-Cookie: a=b", "ETag: \"a\"",
    ])
    #expect(stored.fields.map(\.name) == ["X-Kept", "Set-Cookie", "ETag", "Date"])
  }

  @Test("fields that control caching are kept even if they are listed as excluded")
  func governing() {
    let stored = response([
      "Connection: cache-control, vary", "Cache-Control: no-cache=\"cache-control\", max-age=1",
      "Vary: A",
    ])
    #expect(stored.fields.map(\.name) == ["Cache-Control", "Vary", "Date"])
  }

  @Test("a response without a Date gets the time when it was received")
  func dated() {
    let stored = response(["A: 1"])
    #expect(
      stored.fields.last == Field(name: "Date", value: HTTPDate(milliseconds: noon).description))
    #expect(response(["date: foo"]).fields == [Field(name: "date", value: "foo")])
  }
}
